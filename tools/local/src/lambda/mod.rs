//! Lambda functions on this machine: real binaries under a Runtime API that keeps deadlines.
//!
//! An execution environment is one process with one loopback port. It runs one invocation at a time.
//! Between invocations the process is stopped (SIGSTOP), as Lambda freezes it. After the deadline it is
//! killed (SIGKILL). After that, or after a crash, the next invocation starts a new process.
//!
//! [`Function::concurrency`] and [`Function::kills`] change this, as on Lambda Managed Instances. A process has several
//! invocations at the same time, it is never stopped, and it continues after a deadline.
//!
//! | file | idea |
//! |---|---|
//! | `invocation` | the result of an invocation |
//! | `handle` | [`Lambda`]: functions and their environments |
//! | `environment` | one execution environment: start, deliver, wait for the responses, freeze |
//! | `process` | the process in it: variables, signals, memory |
//! | `runtime_api` | the API for the process: next, response, error |
//! | `snapstart` | the API for the process in a snapshot: restore/next, restore/error |
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
mod snapstart;
mod template;

pub use build::{build, cargo_build, is_clone, workspace};
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
    /// How long an invocation may take. Default: 3 s.
    pub timeout: Duration,
    /// The memory that the function is told. It is not limited here. Default: 128 MB.
    pub memory_mb: u32,
    /// How many invocations a process may have at the same time, at least 1. Default: 1.
    ///
    /// If it may have more than one, `AWS_LAMBDA_MAX_CONCURRENCY` tells it how many, and it is not stopped between
    /// invocations. It may have the same number of open polls. Further invocations go to another environment.
    pub concurrency: u32,
    /// Whether the process is killed when the deadline of an invocation has passed. Default: `true`.
    ///
    /// If it is not, the caller gets [`TimedOut`](Outcome::TimedOut), and the process continues. Its late response is
    /// refused (410). Until then it has no room for another invocation. It is not stopped between invocations.
    pub kills: bool,
}

/// Lambda's defaults. The name and the binary are empty.
impl Default for Function {
    fn default() -> Self {
        Self {
            name: String::new(),
            binary: PathBuf::new(),
            environment: BTreeMap::new(),
            timeout: Duration::from_secs(3),
            memory_mb: 128,
            concurrency: 1,
            kills: true,
        }
    }
}

impl Function {
    /// How many invocations a process may have at the same time.
    fn at_once(&self) -> usize {
        self.concurrency as usize
    }

    /// Whether its processes run as on Lambda Managed Instances, so that they are never stopped.
    fn is_managed(&self) -> bool {
        self.concurrency > 1 || !self.kills
    }
}

pub(crate) fn arn(function: &str) -> String {
    format!("arn:aws:lambda:{REGION}:{ACCOUNT}:function:{function}")
}

/// Locks a mutex. A panic does not damage what these mutexes guard.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
