//! Lambda functions on this machine: real binaries under a Runtime API that keeps deadlines.
//!
//! An execution environment is one process with one loopback port. It runs one invocation at a time.
//! Between invocations the process is stopped (SIGSTOP), as Lambda freezes it. After the deadline it is
//! killed (SIGKILL). After that, or after a crash, the next invocation starts a new process.
//!
//! With [`Function::concurrency`] and [`Function::kills`] it is as on Lambda Managed Instances: several invocations at
//! once in one process, which is never stopped, and which goes on after a deadline.
//!
//! | file | idea |
//! |---|---|
//! | `invocation` | the result of an invocation |
//! | `handle` | [`Lambda`]: functions and their environments |
//! | `environment` | one execution environment: start, deliver, wait for the responses, freeze |
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
    /// How long an invocation may take. Default: 3 s.
    pub timeout: Duration,
    /// The memory that the function is told. It is not limited here. Default: 128 MB.
    pub memory_mb: u32,
    /// How many invocations a process may have at a time, at least 1. Default: 1.
    ///
    /// With more than one, the process is told by `AWS_LAMBDA_MAX_CONCURRENCY`, and is not stopped between invocations.
    /// It may have as many polls under way. Further invocations go to another environment.
    pub concurrency: u32,
    /// Whether the process is killed when the time of an invocation is up. Default: `true`.
    ///
    /// If it is not, the caller is told [`TimedOut`](Outcome::TimedOut) and the process goes on. Its late answer is
    /// refused (410), and until then the invocation counts as under way. The process is not stopped between invocations.
    pub kills: bool,
}

/// Lambda's defaults; name and binary are empty.
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
    /// How many invocations a process may have at a time.
    fn at_once(&self) -> usize {
        self.concurrency as usize
    }

    /// Whether it runs as on Lambda Managed Instances: its processes are never stopped.
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
