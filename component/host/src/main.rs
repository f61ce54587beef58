//! The Rust hosts for the conformance scenarios. They read one line of JSON per call from standard input, and write one
//! line per result to standard output.

mod bindings;
mod client;
mod convert;
mod driver;
mod dynamodb;
mod http;
mod lines;
mod protocol;
mod sandbox;

use anyhow::bail;

const HELP: &str = "usage: lambda-lock-component-host client|protocol COMPONENT

Runs the component of that world under wasmtime and answers the lines of JSON that `lambda-lock-conformance` asks.";

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments[..] {
        [world, component] if world == "client" => lines::serve(client::Host::new(component)?),
        [world, component] if world == "protocol" => lines::serve(protocol::Host::new(component)?),
        [help] if help == "--help" || help == "-h" => {
            println!("{HELP}");
            Ok(())
        }
        _ => bail!("{HELP}"),
    }
}
