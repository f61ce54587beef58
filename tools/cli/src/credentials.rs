//! The configuration of AWS, which is read once by each command, and credentials, which are asked for again when they end.
//!
//! A thread of its own does both. The SDK reads files for that, which may be pipes, or stand on a file server that does not
//! respond. Then nothing else waits: a command still ends with its lease, and gets the signals that are passed on.

use crate::asking::Asking;
use crate::exit::Failure;
use crate::family;
use crate::screen;
use aws_config::SdkConfig;
use aws_credential_types::Credentials;
use aws_credential_types::provider::error::CredentialsError;
use aws_credential_types::provider::{self, ProvideCredentials, SharedCredentialsProvider, future};
use std::future::pending;
use std::io;
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::Duration;
use tokio::runtime::{Builder, Handle};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// How long is waited for the configuration and the credentials. Somebody may have to type a code of his MFA device.
const CREDENTIALS: Duration = Duration::from_secs(60);
/// How long is waited for them until the command says so.
const SILENCE: Duration = Duration::from_secs(5);

/// Reads the configuration, and asks for the first credentials. Returns it with where the next ones come from. Without the first
/// ones, each request would end as one without a response.
pub(crate) async fn with_known(
    profile: Option<&str>,
    read: impl Future<Output = Result<SdkConfig, Failure>> + Send + 'static,
) -> Result<SdkConfig, Failure> {
    let thread = thread_of_its_own()?;
    let children = family::children();
    let mut asked = thread.spawn(first(thread.clone(), profile.map(str::to_owned), read));
    let mut answer = timeout(SILENCE, &mut asked).await;
    if answer.is_err() {
        let left = screen::span(CREDENTIALS - SILENCE);
        let said = format!(
            "waiting for the configuration and credentials of AWS, {left} more at most: a program of the profile may ask for \
             something, or a file does not respond"
        );
        // Nobody may read it.
        let _ = thread::Builder::new().spawn(move || screen::tell(said));
        answer = timeout(CREDENTIALS - SILENCE, asked).await;
    }
    let Ok(answer) = answer else {
        family::kill_children_but(&children);
        return Err(Failure::slow_credentials(profile, CREDENTIALS));
    };
    answer.unwrap_or_else(|error| Err(io::Error::other(error).into()))
}

/// The configuration with the first credentials, and where the next ones come from.
async fn first(
    thread: Handle,
    profile: Option<String>,
    read: impl Future<Output = Result<SdkConfig, Failure>>,
) -> Result<SdkConfig, Failure> {
    let config = read.await?;
    let Some(provider) = config.credentials_provider() else { return Ok(config) };
    let source = Source { provider, thread };
    // Whoever waits for this gives up before.
    let answer = source.ask(CREDENTIALS * 2).await;
    let first = answer
        .unwrap_or_else(|error| Err(CredentialsError::unhandled(error)))
        .map_err(|error| Failure::without_credentials(profile.as_deref(), &error))?;
    check(&first)?;
    let known = SharedCredentialsProvider::new(Known::new(first, source));
    Ok(config.into_builder().credentials_provider(known).build())
}

/// The runtime is made by its own thread: where none can be started, it would have to end within another one, which panics.
fn thread_of_its_own() -> io::Result<Handle> {
    let (tell, told) = mpsc::channel();
    let run = move || match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => {
            let _ = tell.send(Ok(runtime.handle().clone()));
            runtime.block_on(pending::<()>());
        }
        Err(error) => _ = tell.send(Err(error)),
    };
    let started = thread::Builder::new().name("credentials".to_owned()).spawn(run);
    started.map_err(|error| io::Error::other(format!("no thread can be started: {error}")))?;
    told.recv().unwrap_or_else(|error| Err(io::Error::other(error)))
}

/// Where credentials come from.
#[derive(Debug)]
struct Source {
    provider: SharedCredentialsProvider,
    thread: Handle,
}

impl Source {
    fn ask(&self, at_most: Duration) -> JoinHandle<provider::Result> {
        let (provider, asking) = (self.provider.clone(), Asking::begun());
        self.thread.spawn(async move {
            let _asking = asking;
            let asked = timeout(at_most, provider.provide_credentials()).await;
            asked.unwrap_or_else(|_| Err(CredentialsError::provider_timed_out(at_most)))
        })
    }
}

/// Credentials that were resolved already, and where the next ones come from when they end.
#[derive(Debug)]
struct Known {
    first: Mutex<Option<Credentials>>,
    then: Source,
    /// Who asks for the next ones now.
    asking: tokio::sync::Mutex<Option<JoinHandle<provider::Result>>>,
}

impl Known {
    fn new(first: Credentials, then: Source) -> Self {
        Self { first: Mutex::new(Some(first)), then, asking: tokio::sync::Mutex::default() }
    }

    /// The SDK waits for five seconds, and asks anew for its next request. A program that takes longer would be started again for
    /// each of them, so the next request waits for the one that runs.
    async fn next(&self) -> provider::Result {
        let mut asking = self.asking.lock().await;
        let asked = asking.get_or_insert_with(|| self.then.ask(CREDENTIALS));
        let answer = asked.await;
        *asking = None;
        let credentials = answer.map_err(CredentialsError::unhandled)??;
        check(&credentials).map_err(|failure| CredentialsError::provider_error(failure.to_string()))?;
        Ok(credentials)
    }
}

impl ProvideCredentials for Known {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        match self.first.lock().ok().and_then(|mut first| first.take()) {
            Some(first) => future::ProvideCredentials::ready(Ok(first)),
            None => future::ProvideCredentials::new(self.next()),
        }
    }
}

/// The SDK panics where it signs with what no header can carry.
fn check(credentials: &Credentials) -> Result<(), Failure> {
    let named = [
        ("access key id", Some(credentials.access_key_id())),
        ("secret access key", Some(credentials.secret_access_key())),
        ("session token", credentials.session_token()),
    ];
    let is_printable = |text: &str| text.chars().all(|c| c.is_ascii_graphic());
    let wrong = named.into_iter().find(|(_, text)| text.is_some_and(|text| !is_printable(text)));
    wrong.map_or(Ok(()), |(what, _)| Err(Failure::unusable_credentials(what)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// Never answers, and counts how often it is asked.
    #[derive(Clone, Debug, Default)]
    struct Hangs(Arc<AtomicU32>);

    impl ProvideCredentials for Hangs {
        fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
        where
            Self: 'a,
        {
            self.0.fetch_add(1, Ordering::Relaxed);
            future::ProvideCredentials::new(pending())
        }
    }

    fn known_then(then: impl ProvideCredentials + 'static) -> Known {
        let source = Source { provider: SharedCredentialsProvider::new(then), thread: Handle::current() };
        Known::new(Credentials::new("id", "secret", None, None, "test"), source)
    }

    /// A program may respond with anything the second time.
    #[tokio::test]
    async fn the_next_credentials_are_checked_as_the_first_ones() {
        let known = known_then(Credentials::new("AK\n", "secret", None, None, "test"));
        known.provide_credentials().await.unwrap();

        assert!(known.provide_credentials().await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_program_for_the_next_credentials_that_hangs_runs_once_a_minute_however_many_requests_need_them() {
        let hangs = Hangs::default();
        let known = known_then(hangs.clone());
        known.provide_credentials().await.unwrap();

        for _ in 0..15 {
            let _ = timeout(Duration::from_secs(5), known.provide_credentials()).await;
        }

        assert_eq!(hangs.0.load(Ordering::Relaxed), 2, "in 75 seconds");
    }
}
