//! Credentials that rotate, behind an endpoint, as Lambda gives them to a function with SnapStart.

use crate::proxy::{self, Answer, Handle, Serving};
use aws_sdk_dynamodb::primitives::{DateTime, DateTimeFormat};
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::AUTHORIZATION;
use hyper::{Request, Response, StatusCode};
use serde_json::json;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// An endpoint on a loopback port that returns another set of credentials each time that it is asked. The access key
/// ids are `set-1`, `set-2` and so on. It serves from when it is made until it is dropped.
pub struct ContainerCredentials {
    shared: Arc<Shared>,
    serving: Serving,
}

struct Shared {
    state: Mutex<State>,
}

#[derive(Clone, Copy)]
struct State {
    sets: u32,
    lifetime: Duration,
    delay: Duration,
}

impl ContainerCredentials {
    /// What the endpoint wants to be asked with.
    pub const TOKEN: &str = "an-authorization-token";

    /// Begins to serve on a port that the system chooses. Each set lasts an hour, unless [`lasting`] says otherwise.
    ///
    /// [`lasting`]: ContainerCredentials::lasting
    ///
    /// # Errors
    /// When no loopback port can be had.
    pub async fn start() -> anyhow::Result<Self> {
        let state = State { sets: 0, lifetime: Duration::from_secs(3600), delay: Duration::ZERO };
        let shared = Arc::new(Shared { state: Mutex::new(state) });
        let serving = proxy::serve(Arc::clone(&shared)).await?;
        Ok(Self { shared, serving })
    }

    /// The variables of a function that gets its credentials here.
    pub fn variables(&self) -> [(String, String); 2] {
        let url = format!("{}/credentials", self.serving.endpoint);
        [("AWS_CONTAINER_CREDENTIALS_FULL_URI", url), ("AWS_CONTAINER_AUTHORIZATION_TOKEN", Self::TOKEN.to_owned())]
            .map(|(name, value)| (name.to_owned(), value))
    }

    /// From now on, each set lasts so long: whole seconds from when it is asked for.
    pub fn lasting(&self, lifetime: Duration) {
        self.shared.lock().lifetime = lifetime;
    }

    /// From now on, each answer takes so long.
    pub fn answering_after(&self, delay: Duration) {
        self.shared.lock().delay = delay;
    }

    /// How many sets it has returned.
    pub fn sets(&self) -> u32 {
        self.shared.lock().sets
    }
}

impl fmt::Debug for ContainerCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ContainerCredentials").field("endpoint", &self.serving.endpoint).finish_non_exhaustive()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Handle for Shared {
    async fn handle(&self, request: Request<Bytes>) -> anyhow::Result<Answer> {
        let token = request.headers().get(AUTHORIZATION);
        let asked = (request.method().as_str(), request.uri().path());
        if asked != ("GET", "/credentials") || token.is_none_or(|token| token != ContainerCredentials::TOKEN) {
            return Ok(Response::builder().status(StatusCode::FORBIDDEN).body(Full::default())?);
        }
        let delay = self.lock().delay;
        tokio::time::sleep(delay).await;
        let State { sets, lifetime, .. } = {
            let mut state = self.lock();
            state.sets += 1;
            *state
        };
        let expiration = (SystemTime::now() + lifetime).duration_since(UNIX_EPOCH)?.as_secs();
        let credentials = json!({
            "AccessKeyId": format!("set-{sets}"),
            "SecretAccessKey": "a-secret-access-key",
            "Token": "a-session-token",
            "Expiration": DateTime::from_secs(i64::try_from(expiration)?).fmt(DateTimeFormat::DateTime)?,
        });
        let response = Response::builder().header("content-type", "application/json");
        Ok(response.body(Full::new(Bytes::from(credentials.to_string())))?)
    }
}
