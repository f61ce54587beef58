//! What a script learns from the exit code.

use crate::asking::Asking;
use crate::screen;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use lambda_lock::{Error, ErrorKind, LockKey, Refusal};
use lambda_lock_protocol::{Fault, Rejection};
use std::fmt;
use std::process::ExitCode;
use std::time::Duration;

/// Another holder has the lock. (`EX_TEMPFAIL`: try again later.)
const HELD: u8 = 75;
/// The lock was lost, or is not the one that was seen.
pub(crate) const LOST: u8 = 76;
/// DynamoDB did not respond or throttles, so it may be unknown what was applied. (`EX_UNAVAILABLE`.)
pub(crate) const UNAVAILABLE: u8 = 69;
/// Access was denied. (`EX_NOPERM`.)
pub(crate) const DENIED: u8 = 77;
/// The table cannot be used, or a row is no lock record. (`EX_CONFIG`.)
pub(crate) const UNUSABLE: u8 = 78;
/// The arguments or what was read are wrong. `clap` exits with it too.
const USAGE: u8 = 2;
/// Anything else.
const OTHER: u8 = 1;

/// What to do where credentials do not come.
const SLOW_CREDENTIALS: &str = "See whether the program of a credential_process hangs, or waits for somebody, or a file of the \
                                configuration, of credentials or of certificates does not respond";

/// Why a command failed.
#[derive(Debug)]
pub(crate) enum Failure {
    Lock(Box<Error>),
    /// Another holder had the lock for all the time that the command could wait.
    Held(LockKey, Box<Refusal>),
    /// The lock was lost, or is not the one that was seen.
    Lost(String),
    /// The arguments, or what was read, cannot be used.
    Usage(String),
    /// Somebody was asked, and has said no.
    Declined,
    /// A request that is not the lock's failed.
    Sdk {
        message: String,
        code: u8,
    },
    Io(std::io::Error),
    /// Somebody was to be asked, and could not be.
    Unasked(std::io::Error),
    /// A lock could not be printed for whoever renews and releases it.
    Unprinted(std::io::Error),
    /// This was done, and could not be told.
    Untold(&'static str, std::io::Error),
}

impl Failure {
    /// A header cannot have them. The SDK panics where it signs with them.
    pub(crate) fn unusable_credentials(what: &str) -> Self {
        let message = format!(
            "the {what} has a character that no request can carry, such as the end of a line of Windows: look where the \
             credentials come from, for example at the variables AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN"
        );
        Self::Sdk { message, code: DENIED }
    }

    /// As the AWS command line: other credentials would be those of another account.
    pub(crate) fn without_profile(name: &str) -> Self {
        let message = format!(
            "the profile {name:?} is not in the configuration files of AWS: give another one with --profile, AWS_PROFILE or \
             AWS_DEFAULT_PROFILE, or add it with aws configure, or aws configure sso and aws sso login"
        );
        Self::Sdk { message, code: DENIED }
    }

    pub(crate) fn without_credentials(profile: Option<&str>, error: &dyn std::error::Error) -> Self {
        let of = profile.map(|profile| format!(" in the profile {profile}")).unwrap_or_default();
        let login = profile.map(|profile| format!(" --profile {profile}")).unwrap_or_default();
        // The SDK says this of everything that it has tried.
        let said = with_causes(error).replace("the credential provider was not enabled: ", "");
        let (why, tried) = said.split_once(" Attempted:").unwrap_or((&said, ""));
        let tried: Vec<_> = tried.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let tried = if tried.is_empty() { String::new() } else { format!(" (tried {})", tried.join("; ")) };
        let message = format!(
            "there are no credentials{of}: {}. Log in, for example with aws sso login{login}{tried}",
            why.trim_end_matches('.')
        );
        Self::Sdk { message, code: DENIED }
    }

    pub(crate) fn slow_credentials(profile: Option<&str>, waited: Duration) -> Self {
        let of = profile.map(|profile| format!(" in the profile {profile}")).unwrap_or_default();
        let message = format!(
            "there are no credentials{of}: they did not come within {}. {SLOW_CREDENTIALS}, then try again",
            screen::span(waited)
        );
        Self::Sdk { message, code: DENIED }
    }

    pub(crate) fn code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::Lock(error) => of_kind(error.kind()),
            Self::Held(..) => HELD,
            Self::Lost(_) => LOST,
            Self::Usage(_) => USAGE,
            Self::Sdk { code, .. } => *code,
            Self::Declined | Self::Io(_) | Self::Unasked(_) | Self::Unprinted(_) | Self::Untold(..) => OTHER,
        })
    }
}

pub(crate) fn of_kind(kind: ErrorKind) -> u8 {
    match kind {
        ErrorKind::Held => HELD,
        ErrorKind::Lost | ErrorKind::CutShort => LOST,
        ErrorKind::Unknown | ErrorKind::Unavailable | ErrorKind::OutOfTime => UNAVAILABLE,
        ErrorKind::Denied => DENIED,
        ErrorKind::Table | ErrorKind::InvalidRecord => UNUSABLE,
        ErrorKind::InvalidRequest => USAGE,
        _ => OTHER,
    }
}

/// Whether such a request was not allowed.
pub(crate) fn is_denied<E: ProvideErrorMetadata>(error: &SdkError<E, HttpResponse>) -> bool {
    code_of_request(error) == DENIED
}

/// Whether such a request had no response, or was throttled.
pub(crate) fn is_out_of_reach<E: ProvideErrorMetadata>(error: &SdkError<E, HttpResponse>) -> bool {
    code_of_request(error) == UNAVAILABLE
}

/// The failure of a request that the command sends itself.
pub(crate) fn of_request<E>(error: &SdkError<E, HttpResponse>, table: &str) -> Failure
where
    E: ProvideErrorMetadata + std::error::Error + 'static,
{
    Failure::Sdk { message: format!("table {table}: {}", said(error)), code: code_of_request(error) }
}

fn code_of_request<E: ProvideErrorMetadata>(error: &SdkError<E, HttpResponse>) -> u8 {
    match (Fault::of_error(error.code(), error.message()), error.code()) {
        (Fault::Rejected(Rejection::Denied(_)), _) => DENIED,
        (Fault::Rejected(Rejection::Table(_)), _) => UNUSABLE,
        // Throttling of a stream has a name of its own.
        (Fault::Throttled, _) | (_, None | Some("InternalServerError" | "LimitExceededException")) => UNAVAILABLE,
        (_, Some(_)) => OTHER,
    }
}

/// What a failed request of the SDK says: DynamoDB's own words, or why there are none.
pub(crate) fn said<E>(error: &SdkError<E, HttpResponse>) -> String
where
    E: ProvideErrorMetadata + std::error::Error + 'static,
{
    match (error.message(), error.raw_response().map(|response| response.status().as_u16())) {
        (Some(message), _) => message.to_owned(),
        // Something between this machine and AWS may have answered.
        (None, Some(status)) => format!("{}, in a response with the HTTP status {status}", with_causes(error)),
        (None, None) => with_causes(error),
    }
}

/// What failed, and why no response came. What DynamoDB itself has said stands in the error's text.
pub(crate) fn with_reasons(error: &Error) -> String {
    let said = match error.kind() {
        ErrorKind::Unknown => with_causes(error),
        _ => error.to_string(),
    };
    match without_next_credentials() {
        Some(why) if of_kind(error.kind()) == UNAVAILABLE => format!("{said}, because {why}. {SLOW_CREDENTIALS}"),
        _ => said,
    }
}

/// Why no request can be sent now: it would be signed with credentials that have not come.
pub(crate) fn without_next_credentials() -> Option<&'static str> {
    Asking::is_under_way().then_some("the next credentials have not come")
}

pub(crate) fn with_causes(error: &dyn std::error::Error) -> String {
    let mut said = error.to_string();
    let mut cause = error.source();
    while let Some(one) = cause {
        said += &format!(": {one}");
        cause = one.source();
    }
    said
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lock(error) => f.write_str(&screen::plain(&with_reasons(error))),
            Self::Held(key, held) if held.freeze_reason.is_some() => {
                let reason = screen::quoted(held.freeze_reason.as_deref().unwrap_or_default());
                let key = screen::named_key(key);
                write!(f, "{key} is frozen, because: {reason}. Try again when it is thawed")
            }
            Self::Held(key, held) if held.left_to_line => {
                let (key, left) = (screen::named_key(key), screen::span(held.retry_after));
                write!(f, "{key} is held by nobody, and left to {} who wait in line. Try again in {left}", held.waiting)
            }
            Self::Held(key, held) => {
                write!(f, "{} is held by {}", screen::named_key(key), screen::named(&held.holder))?;
                write!(f, ", which can be proven dead in {} if it does not renew", screen::span(held.retry_after))
            }
            Self::Lost(message) | Self::Usage(message) | Self::Sdk { message, .. } => {
                f.write_str(&screen::plain(message))
            }
            Self::Declined => f.write_str("nothing was changed"),
            Self::Io(error) => error.fmt(f),
            Self::Unasked(error) => write!(f, "nothing was changed, because nobody can be asked: {error}. Give --yes"),
            Self::Untold(what, error) => write!(f, "{what}, but this cannot be printed: {error}"),
            Self::Unprinted(error) => write!(f, "the lock cannot be printed: {error}"),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Lock(Box::new(error))
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error)
    }
}
