//! Puts code that hardly any start needs behind the rest, see `functions/common/later.ld`.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=../../../functions/common/later.ld");
    // As it is deployed. The linkers of other targets may not know such scripts.
    if std::env::var("CARGO_CFG_TARGET_ENV").as_deref() == Ok("musl") {
        println!("cargo::rustc-link-arg-bins=-Wl,-T,{}/../../../functions/common/later.ld", env!("CARGO_MANIFEST_DIR"));
    }
}
