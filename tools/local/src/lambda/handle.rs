//! [`Lambda`]: functions and their environments.

use super::environment::{Environment, Place, Request};
use super::invocation::Invocation;
use super::logs::{LogLine, Source};
use super::process::Leash;
use super::{Function, invoke_api, lock};
use anyhow::{Context, bail};
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, broadcast, oneshot, watch};
use tokio::time::sleep;
use uuid::Uuid;

/// The most environments of a function at a time.
const MAX_ENVIRONMENTS: usize = 64;
/// How often it is looked whether a process waits in a snapshot.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Functions on this machine.
///
/// Clones are handles of the same functions. When the last one is dropped, every process is killed and
/// every invocation is abandoned.
#[derive(Clone, Debug)]
pub struct Lambda {
    functions: Arc<Functions>,
    /// Stops everything when it is dropped. The HTTP API and the invocations do not hold it.
    _alive: Arc<Alive>,
}

/// Why an invocation was not started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InvokeError {
    /// There is no function of this name.
    NotFound(String),
    /// The function has the most invocations that are permitted at a time.
    Throttled(String),
    /// Every handle was dropped.
    Stopped,
}

#[derive(Debug)]
pub(super) struct Functions {
    endpoint: String,
    by_name: BTreeMap<String, Deployed>,
    environments: AtomicU32,
    lines: broadcast::Sender<LogLine>,
    stopped: watch::Receiver<()>,
}

#[derive(Debug)]
struct Deployed {
    function: Arc<Function>,
    environments: Mutex<Vec<Arc<Environment>>>,
    /// Has one permit for each invocation that all environments together may have in progress.
    room: Arc<Semaphore>,
}

/// Stops everything when it is dropped.
#[derive(Debug)]
struct Alive {
    functions: Arc<Functions>,
    _stop: watch::Sender<()>,
}

impl Drop for Alive {
    fn drop(&mut self) {
        for environment in self.functions.all() {
            environment.leash.send(Signal::KILL);
        }
    }
}

impl Lambda {
    /// Makes functions available. The first invocation starts a process.
    ///
    /// # Errors
    /// Returns an error if a binary does not exist, if two functions have the same name, if the concurrency of a
    /// function is 0, or if there is no free loopback port.
    pub async fn start(functions: Vec<Function>) -> anyhow::Result<Self> {
        let mut by_name = BTreeMap::new();
        for mut function in functions {
            let binary = function.binary.canonicalize();
            function.binary = binary.with_context(|| format!("no binary {}", function.binary.display()))?;
            let name = function.name.clone();
            if function.concurrency == 0 {
                bail!("the concurrency of {name:?} must be at least 1; got 0");
            }
            if by_name.insert(name.clone(), Deployed::new(function)).is_some() {
                bail!("two functions have the name {name:?}");
            }
        }
        let listener = TcpListener::bind("127.0.0.1:0").await.context("there is no free loopback port")?;
        let (stop, stopped) = watch::channel(());
        let functions = Arc::new(Functions {
            endpoint: format!("http://{}", listener.local_addr()?),
            by_name,
            environments: AtomicU32::new(0),
            lines: broadcast::channel(1024).0,
            stopped,
        });
        functions.beside(invoke_api::serve(listener, Arc::downgrade(&functions)));
        Ok(Self { functions: functions.clone(), _alive: Arc::new(Alive { functions, _stop: stop }) })
    }

    /// The URL of the Invoke HTTP API, for `--endpoint-url`.
    pub fn endpoint(&self) -> &str {
        &self.functions.endpoint
    }

    /// Invokes a function and waits for its end. An environment that has room runs it, preferably a warm one. If
    /// there is none, a new one is created.
    ///
    /// The invocation continues when the future is dropped, as in Lambda.
    ///
    /// # Errors
    /// Returns [`InvokeError`] if nothing was invoked. A failure of the function is an
    /// [`Outcome`](super::Outcome) and not an error.
    pub async fn invoke(&self, name: &str, payload: &str) -> anyhow::Result<Invocation> {
        self.invoke_as(name, &Uuid::new_v4().to_string(), payload).await
    }

    /// [Invokes](Lambda::invoke) a function with this request id. Other invocations may have the same one, even at the
    /// same time, as in Lambda when it delivers an event again.
    ///
    /// # Errors
    /// The errors of [`invoke`](Lambda::invoke).
    pub async fn invoke_as(&self, name: &str, request_id: &str, payload: &str) -> anyhow::Result<Invocation> {
        Ok(self.functions.invoke(name, request_id.to_owned(), None, payload.to_owned()).await?)
    }

    /// [Invokes](Lambda::invoke) a function for this tenant, as Lambda does in tenant isolation mode: an environment
    /// serves one tenant, and invocations without a tenant have others. It is not checked whether the function is in
    /// that mode.
    ///
    /// # Errors
    /// The errors of [`invoke`](Lambda::invoke).
    pub async fn invoke_for(&self, name: &str, tenant: &str, payload: &str) -> anyhow::Result<Invocation> {
        let (request_id, tenant) = (Uuid::new_v4().to_string(), Some(tenant.to_owned()));
        Ok(self.functions.invoke(name, request_id, tenant, payload.to_owned()).await?)
    }

    /// Stops the process in this environment (SIGSTOP). Its deadline does not stop.
    ///
    /// # Errors
    /// Returns an error if there is no process in it.
    pub fn freeze(&self, environment: u32) -> anyhow::Result<()> {
        self.send(environment, Signal::STOP)
    }

    /// Stops the process in this environment, as when its whole host stands still. Its deadline passes, but
    /// it is not killed. After [`thaw`](Lambda::thaw) it has 2 s before it is killed for that.
    ///
    /// # Errors
    /// Returns an error if there is no process in it.
    pub fn stand_still(&self, environment: u32) -> anyhow::Result<()> {
        self.reach(environment, Leash::stand_still)
    }

    /// Continues the process in this environment (SIGCONT).
    ///
    /// # Errors
    /// Returns an error if there is no process in it.
    pub fn thaw(&self, environment: u32) -> anyhow::Result<()> {
        self.reach(environment, Leash::go_on)
    }

    /// Kills the process in this environment (SIGKILL). The next invocation starts another one.
    ///
    /// # Errors
    /// Returns an error if there is no process in it.
    pub fn kill(&self, environment: u32) -> anyhow::Result<()> {
        self.send(environment, Signal::KILL)
    }

    /// Returns the environments of a function, the oldest first, busy or not.
    pub fn environments(&self, name: &str) -> Vec<u32> {
        let deployed = self.functions.by_name.get(name);
        deployed.map_or_else(Vec::new, |deployed| lock(&deployed.environments).iter().map(|one| one.id).collect())
    }

    /// Returns the id of the process in this environment, if there is one. Its process group has the same
    /// id.
    pub fn process(&self, environment: u32) -> Option<u32> {
        let environments = self.functions.all();
        environments.iter().find(|one| one.id == environment)?.leash.process()
    }

    /// Waits until a process of this function waits in a snapshot, and returns its environment. It is stopped (SIGSTOP)
    /// at the end of its initialisation. A function has snapshots when it has the variable
    /// `AWS_LAMBDA_INITIALIZATION_TYPE` with the value `snap-start`; it needs an invocation to be started.
    pub async fn snapshot(&self, name: &str) -> u32 {
        let waits = |environment: &u32| self.reach(*environment, |leash| *leash.snapshot().borrow()).is_ok();
        loop {
            match self.environments(name).into_iter().find(waits) {
                Some(environment) => return environment,
                None => sleep(LOOK_AGAIN).await,
            }
        }
    }

    /// Restores the process in this environment from its snapshot: it goes on, and finds that time has passed. It has
    /// 10 s from its start to its first poll, the time in the snapshot included.
    ///
    /// # Errors
    /// Returns an error if no process waits in a snapshot there.
    pub fn restore(&self, environment: u32) -> anyhow::Result<()> {
        self.reach(environment, |leash| leash.snapshot().send_replace(false) && leash.go_on())
    }

    /// Returns a receiver of all log lines from now on, at the time when they are written. Lambda's own
    /// lines come at the end of each invocation.
    pub fn log_lines(&self) -> broadcast::Receiver<LogLine> {
        self.functions.lines.subscribe()
    }

    fn send(&self, environment: u32, signal: Signal) -> anyhow::Result<()> {
        self.reach(environment, |leash| leash.send(signal))
    }

    fn reach(&self, environment: u32, reaches: impl Fn(&Leash) -> bool) -> anyhow::Result<()> {
        let reached = self.functions.all().iter().any(|one| one.id == environment && reaches(&one.leash));
        if !reached {
            bail!("there is no process in environment {environment}");
        }
        Ok(())
    }
}

impl Functions {
    pub(super) fn function(&self, name: &str) -> Option<&Function> {
        self.by_name.get(name).map(|deployed| deployed.function.as_ref())
    }

    pub(super) async fn invoke(
        &self,
        name: &str,
        request_id: String,
        tenant: Option<String>,
        payload: String,
    ) -> Result<Invocation, InvokeError> {
        let deployed = self.deployed(name)?;
        let room = deployed.room.clone().try_acquire_owned();
        let room = room.map_err(|_| InvokeError::Throttled(name.to_owned()))?;
        self.deliver(deployed, room, request_id, tenant, payload).await.map_err(|_| InvokeError::Stopped)
    }

    /// Invokes a function without waiting. The invocation waits in a queue while all environments are busy.
    pub(super) fn enqueue(
        self: &Arc<Self>,
        name: &str,
        tenant: Option<String>,
        payload: String,
    ) -> Result<String, InvokeError> {
        let room = self.deployed(name)?.room.clone();
        let (functions, name, request_id) = (self.clone(), name.to_owned(), Uuid::new_v4().to_string());
        let id = request_id.clone();
        self.beside(async move {
            if let (Ok(room), Ok(deployed)) = (room.acquire_owned().await, functions.deployed(&name)) {
                // The outcome is not needed.
                drop(functions.deliver(deployed, room, id, tenant, payload));
            }
        });
        Ok(request_id)
    }

    fn deployed(&self, name: &str) -> Result<&Deployed, InvokeError> {
        self.by_name.get(name).ok_or_else(|| InvokeError::NotFound(name.to_owned()))
    }

    /// Gives an invocation to an environment. Returns its result.
    fn deliver(
        &self,
        deployed: &Deployed,
        room: OwnedSemaphorePermit,
        request_id: String,
        tenant: Option<String>,
        payload: String,
    ) -> oneshot::Receiver<Invocation> {
        let (caller, done) = oneshot::channel();
        let (environment, permit) = self.reserve(deployed, tenant.as_deref());
        let place = Place { _in_environment: permit, _in_function: room };
        environment.deliver(Request { request_id, tenant, payload, caller, place });
        done
    }

    /// Reserves room in an environment of this tenant, and creates one if no other has room. The caller has reserved
    /// room in the function, so fewer environments are busy than it may have.
    fn reserve(&self, deployed: &Deployed, tenant: Option<&str>) -> (Arc<Environment>, OwnedSemaphorePermit) {
        let mut environments = lock(&deployed.environments);
        loop {
            let theirs = environments.iter().filter(|one| one.tenant.as_deref() == tenant);
            let (warm, cold): (Vec<_>, Vec<_>) = theirs.partition(|one| one.leash.process().is_some());
            let mut all = warm.into_iter().chain(cold);
            let free = all.find_map(|one| Some((one.clone(), one.room.clone().try_acquire_owned().ok()?)));
            if let Some(free) = free {
                return free;
            }
            environments.push(Arc::new(self.environment(&deployed.function, tenant)));
        }
    }

    fn environment(&self, function: &Arc<Function>, tenant: Option<&str>) -> Environment {
        let id = self.environments.fetch_add(1, Ordering::Relaxed) + 1;
        let source = Source { function: function.name.clone(), environment: id, listeners: self.lines.clone() };
        let (environment, life) = Environment::new(function.clone(), tenant, source);
        self.beside(life);
        environment
    }

    fn all(&self) -> Vec<Arc<Environment>> {
        self.by_name.values().flat_map(|deployed| lock(&deployed.environments).clone()).collect()
    }

    /// Runs work in the background until it is done, or until the last handle is dropped.
    fn beside(&self, work: impl Future<Output = ()> + Send + 'static) {
        let mut stopped = self.stopped.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = work => {}
                // Nothing is sent. This ends when the other half is dropped.
                _ = stopped.changed() => {}
            }
        });
    }
}

impl Deployed {
    fn new(function: Function) -> Self {
        let room = Arc::new(Semaphore::new(MAX_ENVIRONMENTS * function.at_once()));
        Self { function: Arc::new(function), environments: Mutex::default(), room }
    }
}

impl fmt::Display for InvokeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound(name) => write!(f, "there is no function {name:?}"),
            Self::Throttled(name) => {
                write!(f, "all {MAX_ENVIRONMENTS} environments of {name:?} are busy, which is the limit")
            }
            Self::Stopped => f.write_str("the functions were stopped"),
        }
    }
}

impl std::error::Error for InvokeError {}
