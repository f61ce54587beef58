//! Clients of others, who write the row by their own rules.

use crate::plan::Peer;
use crate::worker::Me;

pub(crate) async fn live(_me: Me, _peer: Peer) {}
