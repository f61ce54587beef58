//! The decisions of the lock as a component without imports: the world `protocol` of `lambda-lock:lock`.
#![cfg(target_family = "wasm")]

mod bindings;
mod call;
#[path = "../../shared/convert.rs"]
mod convert;
mod decision;
mod error;
mod hold;
mod lock;
mod request;
mod shared;
mod table;

/// The implementation of the world.
struct Component;

impl bindings::exports::lambda_lock::lock::decisions::Guest for Component {
    type Table = table::Table;
    type Lock = hold::Lock;
    type Decision = decision::Decision;
}

mod exported {
    #![allow(unsafe_code, unreachable_pub, reason = "generated")]

    use super::Component;

    crate::bindings::export!(Component with_types_in crate::bindings);
}
