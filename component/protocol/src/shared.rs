//! The state that all operations on a table share.

use lambda_lock_protocol::Settings;
use std::rc::Rc;
use std::time::Duration;

pub(crate) struct Shared {
    pub(crate) table: String,
    pub(crate) settings: Rc<Settings>,
    pub(crate) request_timeout: Duration,
}
