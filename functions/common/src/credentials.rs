//! Where the credentials of the function's role come from: the variables that Lambda sets, or the endpoint that it
//! names where it sets none, as with SnapStart.
//!
//! The SDK's client asks the endpoint at its first request, and again 5 to 10 s before the credentials expire.

use aws_config::ecs::EcsCredentialsProvider;
use aws_config::provider_config::ProviderConfig;
use aws_credential_types::provider::error::CredentialsError;
use aws_credential_types::provider::{ProvideCredentials, Result as Provided, future};
use aws_sdk_dynamodb::config::{Credentials, SharedCredentialsProvider};
use aws_smithy_runtime_api::client::http::SharedHttpClient;
use aws_smithy_types::error::display::DisplayErrorContext;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

/// Pauses between attempts to reach the endpoint. Together they are longer than a lock request waits for its response:
/// as long as the endpoint fails, the outcome of a lock request is unknown, and the caller may retry.
const PAUSES: [Duration; 5] = [
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(200),
    Duration::from_millis(400),
    Duration::from_millis(800),
];

/// With less time left, credentials are asked for again, as the SDK does.
const NEARLY_EXPIRED: Duration = Duration::from_secs(10);

/// Where the credentials come from.
#[derive(Clone)]
pub(crate) enum CredentialsSource {
    /// The variables `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY` and `AWS_SESSION_TOKEN`.
    Variables(Credentials),
    /// The endpoint that `AWS_CONTAINER_CREDENTIALS_FULL_URI` names. The SDK reads this and the variables of its
    /// authorization token from the process's environment itself.
    Endpoint,
}

impl CredentialsSource {
    /// Provides an SDK client with them. Sends nothing before that client's first request.
    pub(crate) fn provider(&self, http: &SharedHttpClient) -> SharedCredentialsProvider {
        match self {
            Self::Variables(credentials) => SharedCredentialsProvider::new(credentials.clone()),
            Self::Endpoint => {
                // Without a way to sleep it does not retry, and each failure is seen here.
                let config = ProviderConfig::empty().with_http_client(http.clone());
                let provider = EcsCredentialsProvider::builder().configure(&config).build();
                SharedCredentialsProvider::new(Endpoint { provider: Arc::new(provider), asking: Mutex::default() })
            }
        }
    }
}

/// Asks the endpoint in a task of its own. A lock request waits for a second only, and an answer that takes longer
/// must not be lost with it: the next request waits for the same answer.
#[derive(Debug)]
struct Endpoint {
    provider: Arc<EcsCredentialsProvider>,
    asking: Mutex<Option<JoinHandle<Provided>>>,
}

impl Endpoint {
    #[expect(clippy::disallowed_methods, reason = "the task ends with the answer, or after the last pause")]
    async fn provided(&self) -> Provided {
        let mut asking = self.asking.lock().await;
        // Nobody waited for the end of this task. What it returned may be old.
        if asking.as_ref().is_some_and(JoinHandle::is_finished)
            && let Some(ended) = asking.take()
            && let Ok(Ok(credentials)) = ended.await
            && !is_old(&credentials)
        {
            return Ok(credentials);
        }
        loop {
            let ended = asking.get_or_insert_with(|| tokio::spawn(ask(Arc::clone(&self.provider)))).await;
            *asking = None;
            match ended {
                // The outcome of the lock request stays unknown, see `PAUSES`.
                Ok(Err(error)) if may_pass(&error) => {}
                Ok(provided) => return provided,
                Err(panicked) => return Err(CredentialsError::unhandled(panicked)),
            }
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the SDK compares the expiry with this clock too")]
fn is_old(credentials: &Credentials) -> bool {
    credentials.expiry().is_some_and(|expiry| expiry <= SystemTime::now() + NEARLY_EXPIRED)
}

/// Asks the endpoint, and says in the log when it fails: the error of a lock request that waits for credentials in
/// vain says nothing about them.
async fn ask(provider: Arc<EcsCredentialsProvider>) -> Provided {
    for (attempt, pause) in PAUSES.into_iter().enumerate() {
        let failure = match provider.credentials().await {
            Err(error) if may_pass(&error) => error,
            provided => return provided,
        };
        if attempt == 0 {
            let error = DisplayErrorContext(&failure);
            tracing::warn!("AWS_CONTAINER_CREDENTIALS_FULL_URI returned no credentials: {error}");
        }
        #[expect(clippy::disallowed_methods, reason = "whoever waits for credentials limits the time")]
        tokio::time::sleep(pause).await;
    }
    provider.credentials().await
}

impl ProvideCredentials for Endpoint {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        future::ProvideCredentials::new(self.provided())
    }
}

/// Whether the next attempt may succeed. A URL that is refused stays refused.
fn may_pass(error: &CredentialsError) -> bool {
    !matches!(error, CredentialsError::InvalidConfiguration(_) | CredentialsError::CredentialsNotLoaded(_))
}
