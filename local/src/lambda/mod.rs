//! Lambda functions on this machine: real binaries under a Runtime API that keeps deadlines.
//!
//! An execution environment is one process with one loopback port. It runs one invocation at a time.
//! Between invocations the process is stopped (SIGSTOP), as Lambda freezes it. After the deadline it is
//! killed (SIGKILL). After that, or after a crash, the next invocation starts a new process.
//!
//! | file | idea |
//! |---|---|
//! | `invocation` | the result of an invocation |
//! | `handle` | [`Lambda`]: functions and their environments |
//! | `environment` | one execution environment: start, deliver, wait for the response, freeze |
//! | `process` | the process in it: variables, signals, memory |
//! | `runtime_api` | the API for the process: next, response, error |
//! | `logs` | the output of the process, by invocation |
//! | `report` | the lines and errors that Lambda itself adds |
//! | `invoke_api` | the API for callers: the HTTP API of `aws lambda invoke` |
//! | `template` | functions and tables of `template.yaml` |
//! | `build` | builds the functions with cargo |

mod build;
mod environment;
mod handle;
mod invocation;
mod invoke_api;
mod logs;
mod process;
mod report;
mod runtime_api;
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

/// The Region of the functions.
pub(crate) const REGION: &str = "eu-central-1";
/// The account of the functions. It is the one in AWS's own examples.
pub(crate) const ACCOUNT: &str = "123456789012";

/// A function to deploy.
#[derive(Clone, Debug)]
pub struct Function {
    /// The name by which it is invoked.
    pub name: String,
    /// Its executable, which would be `bootstrap` in the archive.
    pub binary: PathBuf,
    /// Its own variables. They override those that Lambda sets.
    pub environment: BTreeMap<String, String>,
    /// How long an invocation may take before its process is killed.
    pub timeout: Duration,
    /// The memory that the function is told. It is not limited here.
    pub memory_mb: u32,
}

pub(crate) fn arn(function: &str) -> String {
    format!("arn:aws:lambda:{REGION}:{ACCOUNT}:function:{function}")
}

/// Locks a mutex. A panic does not damage what these mutexes guard.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
