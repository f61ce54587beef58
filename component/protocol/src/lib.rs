//! The lock's decisions as a component without imports: the world `protocol` of `lambda-lock:lock`.
#![cfg(target_family = "wasm")]

mod call;
#[path = "../../shared/convert.rs"]
mod convert;
mod decision;
mod error;
mod lock;
mod request;
mod table;

mod bindings {
    #![allow(missing_docs, unsafe_code, unreachable_pub, reason = "generated")]
    wit_bindgen::generate!({ path: "../wit", world: "protocol" });
    use super::Component;
    export!(Component);
}

/// What implements the world.
struct Component;

impl bindings::exports::lambda_lock::lock::decisions::Guest for Component {
    type Table = table::Table;
    type Lock = lock::Lock;
    type Decision = decision::Decision;
}
