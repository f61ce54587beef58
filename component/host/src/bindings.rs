//! The WIT package as Rust types. They are generated once for both worlds, which share most of them.

#![allow(clippy::all, reason = "generated")]

wasmtime::component::bindgen!({
    path: "../wit",
    inline: "
        package lambda-lock:host;
        world either {
            include lambda-lock:lock/client@0.1.0;
            include lambda-lock:lock/protocol@0.1.0;
        }
    ",
});

pub use exports::lambda_lock::lock::{decisions, locks, types};
