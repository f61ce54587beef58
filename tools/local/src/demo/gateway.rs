//! A gateway that takes a limited number of calls at once, and measures how many are inside.

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// How long a call takes.
const TAKES: Duration = Duration::from_millis(60);

/// The gateway. Dropping it ends all calls.
pub(crate) struct Gateway {
    pub(crate) url: String,
    calls: Calls,
    _serving: JoinSet<std::io::Result<()>>,
}

/// What the gateway has measured.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    /// How many calls it takes at once.
    pub(crate) limit: u32,
    inside: u32,
    /// How many calls it took.
    pub(crate) calls: u64,
    /// How many calls were inside at once, at most.
    pub(crate) most: u32,
    /// How many calls found it full.
    pub(crate) too_many: u64,
}

#[derive(Clone)]
struct Calls(Arc<Mutex<Measured>>);

/// A call that is inside. It leaves when this is dropped, also when its caller was killed.
struct Inside(Calls);

impl Gateway {
    /// Starts a gateway that takes this many calls at once.
    pub(crate) async fn start(limit: u32) -> anyhow::Result<Self> {
        let calls = Calls(Arc::new(Mutex::new(Measured { limit, inside: 0, calls: 0, most: 0, too_many: 0 })));
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let router = Router::new().route("/calls", post(call)).with_state(calls.clone());
        let mut serving = JoinSet::new();
        serving.spawn(async { axum::serve(listener, router).await });
        Ok(Self { url, calls, _serving: serving })
    }

    pub(crate) fn measured(&self) -> Measured {
        self.calls.lock().clone()
    }
}

async fn call(State(calls): State<Calls>) -> StatusCode {
    let Some(_inside) = calls.enter() else { return StatusCode::SERVICE_UNAVAILABLE };
    tokio::time::sleep(TAKES).await;
    StatusCode::OK
}

impl Calls {
    fn lock(&self) -> MutexGuard<'_, Measured> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self) -> Option<Inside> {
        let mut measured = self.lock();
        if measured.inside >= measured.limit {
            measured.too_many += 1;
            return None;
        }
        measured.inside += 1;
        measured.calls += 1;
        measured.most = measured.most.max(measured.inside);
        Some(Inside(self.clone()))
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.lock().inside -= 1;
    }
}
