//! Lambda functions on this machine: real binaries under a Runtime API that keeps deadlines.
//!
//! An execution environment is one process behind one loopback port. It answers one invocation at a
//! time, is killed (SIGKILL) when the deadline has passed, is started anew at the next invocation after
//! that or after a crash, and is stopped (SIGSTOP) between invocations, as Lambda freezes it.
//!
//! | file | idea |
//! |---|---|
//! | `invocation` | what became of an invocation |
//! | `handle` | [`Lambda`]: functions, and the environments of each |
//! | `environment` | one execution environment: start, deliver, await the answer, freeze |
//! | `process` | the process in it: variables, signals, memory |
//! | `runtime_api` | what the process sees: next, response, error |
//! | `snapstart` | what it sees of a snapshot: restore/next, restore/error |
//! | `logs` | what it wrote, by invocation |
//! | `report` | what Lambda itself says of an invocation |
//! | `invoke_api` | what callers see: the HTTP API of `aws lambda invoke` |
//! | `template` | functions and tables as `template.yaml` says them |
//! | `build` | has cargo build them |

mod build;
mod environment;
mod handle;
mod invocation;
mod invoke_api;
mod logs;
mod process;
mod report;
mod runtime_api;
mod snapstart;
mod template;

pub use build::{build, cargo_build, workspace};
pub use handle::{InvokeError, Lambda};
pub use invocation::{Invocation, Outcome};
pub use logs::LogLine;
pub use template::Template;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Where the functions believe to be.
pub(crate) const REGION: &str = "eu-central-1";
/// Whose they believe to be: the account of AWS's own examples.
pub(crate) const ACCOUNT: &str = "123456789012";

/// A function, as one would deploy it.
#[derive(Clone, Debug)]
pub struct Function {
    /// What it is invoked by.
    pub name: String,
    /// Its executable: what would be `bootstrap` in the archive.
    pub binary: PathBuf,
    /// Its own variables, beside those that Lambda sets. They win over Lambda's.
    pub environment: BTreeMap<String, String>,
    /// How long an invocation may take before its process is killed.
    pub timeout: Duration,
    /// What the function is told that it has. Nothing limits it here.
    pub memory_mb: u32,
}

pub(crate) fn arn(function: &str) -> String {
    format!("arn:aws:lambda:{REGION}:{ACCOUNT}:function:{function}")
}

/// What these locks guard stays whole when somebody panics.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
