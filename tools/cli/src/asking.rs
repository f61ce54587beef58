//! Whether this process asks for credentials now. No request can be sent meanwhile, and a program may run for it, whose end somebody
//! waits for.

use std::sync::atomic::{AtomicUsize, Ordering};

static ASKING: AtomicUsize = AtomicUsize::new(0);

/// Credentials are asked for, until this is dropped.
pub(crate) struct Asking(());

impl Asking {
    /// For before a program is started.
    pub(crate) fn begun() -> Self {
        ASKING.fetch_add(1, Ordering::SeqCst);
        Self(())
    }

    pub(crate) fn is_under_way() -> bool {
        ASKING.load(Ordering::SeqCst) > 0
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        ASKING.fetch_sub(1, Ordering::SeqCst);
    }
}
