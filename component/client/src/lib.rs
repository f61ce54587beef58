//! The lock as a component that sends its requests to DynamoDB itself: the world `client` of `lambda-lock:lock`.
#![cfg(target_family = "wasm")]

mod client;
#[path = "../../shared/convert.rs"]
mod convert;
mod error;
mod fence;
mod lock;
mod options;
mod run;
mod set;

mod bindings {
    #![allow(missing_docs, unsafe_code, unreachable_pub, reason = "generated")]
    wit_bindgen::generate!({ path: "../wit", world: "client" });
    use super::Component;
    export!(Component);
}

/// The implementation of the world.
struct Component;

impl bindings::exports::lambda_lock::lock::locks::Guest for Component {
    type Client = client::Client;
    type Lock = lock::Lock;
    type LockSet = set::LockSet;
}
