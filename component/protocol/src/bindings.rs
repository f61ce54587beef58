//! Bindings generated from the WIT world.

#![allow(missing_docs, unsafe_code, unreachable_pub, reason = "generated")]

wit_bindgen::generate!({ path: "../wit", world: "protocol", pub_export_macro: true, export_macro_name: "export" });
