//! The imports of a component of the world `client`: clocks, random bytes and `wasi:http`. It gets no files, no
//! environment and no sockets.

use crate::http::{Connections, system_roots};
use wasmtime::component::{Component, InstancePre, Linker, ResourceTable};
use wasmtime::{Engine, Store};
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};
use wasmtime_wasi_http::WasiHttpCtx;
use wasmtime_wasi_http::p2::{WasiHttpCtxView, WasiHttpView};

/// The data of one instance.
pub struct Sandbox {
    wasi: WasiCtx,
    http: WasiHttpCtx,
    connections: Connections,
    table: ResourceTable,
}

impl WasiView for Sandbox {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: &mut self.wasi, table: &mut self.table }
    }
}

impl WasiHttpView for Sandbox {
    fn http(&mut self) -> WasiHttpCtxView<'_> {
        WasiHttpCtxView { ctx: &mut self.http, table: &mut self.table, hooks: &mut self.connections }
    }
}

/// A compiled component with its imports, and the store for its instance.
pub fn load(path: &str) -> anyhow::Result<(InstancePre<Sandbox>, Store<Sandbox>)> {
    let engine = Engine::default();
    let component = Component::from_file(&engine, path)?;
    let mut linker = Linker::new(&engine);
    wasmtime_wasi::p2::add_to_linker_sync(&mut linker)?;
    wasmtime_wasi_http::p2::add_only_http_to_linker_sync(&mut linker)?;
    let sandbox = Sandbox {
        wasi: WasiCtx::builder().build(),
        http: WasiHttpCtx::new(),
        connections: Connections::trusting(system_roots())?,
        table: ResourceTable::new(),
    };
    Ok((linker.instantiate_pre(&component)?, Store::new(&engine, sandbox)))
}
