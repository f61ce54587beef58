//! A gateway for the sample call-gateway. It takes a limited number of calls at once, measures how many are inside, and
//! keeps the newest fencing token of each place.

use crate::proxy::{self, Answer, Handle, Serving};
use anyhow::Context;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::{Request, Response, StatusCode};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A gateway that takes a limited number of calls at once.
///
/// Dropping it ends all calls.
pub struct LimitedGateway {
    shared: Arc<Shared>,
    serving: Serving,
}

/// What happens to a call that the gateway takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Treatment {
    /// How long the call takes.
    pub takes: Duration,
    /// Whether the caller gets a response. Otherwise the connection breaks.
    pub responds: bool,
}

/// What the gateway has measured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    /// How many calls the gateway took.
    pub calls: u64,
    /// How many calls were inside at once, at most, since the limit was set.
    pub most: u32,
    /// How many calls found the gateway full, and were refused.
    pub too_many: u64,
    /// How many calls were refused because their place has a newer holder.
    pub stale: u64,
}

type Treat = Box<dyn Fn(&Value) -> Treatment + Send + Sync>;

struct Shared {
    state: Mutex<State>,
    treat: Mutex<Treat>,
}

struct State {
    limit: u32,
    inside: u32,
    measured: Measured,
    /// The newest fencing token of each place.
    newest: BTreeMap<u64, u64>,
}

impl LimitedGateway {
    /// Starts a gateway that takes this many calls at once, on a port that the system chooses.
    ///
    /// # Errors
    /// Returns an error if there is no free loopback port.
    pub async fn start(limit: u32) -> anyhow::Result<Self> {
        let state = State { limit, inside: 0, measured: Measured::default(), newest: BTreeMap::new() };
        let at_once = |_: &Value| Treatment { takes: Duration::ZERO, responds: true };
        let shared = Arc::new(Shared { state: Mutex::new(state), treat: Mutex::new(Box::new(at_once)) });
        let serving = proxy::serve(Arc::clone(&shared)).await?;
        Ok(Self { shared, serving })
    }

    /// The URL of the gateway, for `GATEWAY_URL`.
    pub fn url(&self) -> &str {
        &self.serving.endpoint
    }

    /// Takes this many calls at once from now on. Returns what was measured until now, and begins to measure anew.
    pub fn limit(&self, limit: u32) -> Measured {
        let mut state = lock(&self.shared.state);
        state.limit = limit;
        let most = state.inside;
        std::mem::replace(&mut state.measured, Measured { most, ..Measured::default() })
    }

    /// Returns what was measured since the limit was set.
    pub fn measured(&self) -> Measured {
        lock(&self.shared.state).measured.clone()
    }

    /// Sets what happens to calls from now on, by the request.
    pub fn treat(&self, treat: impl Fn(&Value) -> Treatment + Send + Sync + 'static) {
        *lock(&self.shared.treat) = Box::new(treat);
    }
}

impl fmt::Debug for LimitedGateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LimitedGateway").field("url", &self.serving.endpoint).finish_non_exhaustive()
    }
}

/// A call that is inside. It leaves when this is dropped, also when its caller has gone.
struct Inside<'a>(&'a Mutex<State>);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        lock(self.0).inside -= 1;
    }
}

impl Handle for Shared {
    async fn handle(&self, request: Request<Bytes>) -> anyhow::Result<Answer> {
        let number = |name: &str| {
            let value = request.headers().get(name).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
            value.with_context(|| format!("the header {name} is no number"))
        };
        let (place, token) = (number("place")?, number("fencing-token")?);
        let body: Value = serde_json::from_slice(request.body())?;
        let _inside = match self.enter(place, token) {
            Ok(inside) => inside,
            Err(status) => return response(status, &json!({ "error": "the call is refused" })),
        };
        let Treatment { takes, responds } = lock(&self.treat)(&body);
        tokio::time::sleep(takes).await;
        anyhow::ensure!(responds, "the response is lost on purpose");
        response(StatusCode::OK, &json!({ "done": body }))
    }
}

impl Shared {
    fn enter(&self, place: u64, token: u64) -> Result<Inside<'_>, StatusCode> {
        let mut state = lock(&self.state);
        let newest = state.newest.entry(place).or_default();
        if token < *newest {
            state.measured.stale += 1;
            return Err(StatusCode::CONFLICT);
        }
        *newest = token;
        if state.inside >= state.limit {
            state.measured.too_many += 1;
            return Err(StatusCode::SERVICE_UNAVAILABLE);
        }
        state.inside += 1;
        state.measured.calls += 1;
        state.measured.most = state.measured.most.max(state.inside);
        Ok(Inside(&self.state))
    }
}

fn response(status: StatusCode, json: &Value) -> anyhow::Result<Answer> {
    let response = Response::builder().status(status).header("content-type", "application/json");
    Ok(response.body(Full::new(Bytes::from(json.to_string())))?)
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
