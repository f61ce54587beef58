//! [`Lambda`]: functions, and the environments of each.

use super::environment::{Environment, Sandbox};
use super::invocation::Invocation;
use super::logs::{LogLine, Source};
use super::process::Leash;
use super::{Function, invoke_api, lock, report};
use anyhow::{Context, bail};
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::{OwnedMutexGuard, OwnedSemaphorePermit, Semaphore, broadcast, watch};
use tokio::time::sleep;
use uuid::Uuid;

/// How many environments a function may have at a time.
const MOST_ENVIRONMENTS: usize = 64;
/// How often it is looked whether a process waits in a snapshot.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Functions on this machine, as long as a handle of it lives.
///
/// Clones are handles of the same functions. When the last one is dropped, every process is killed and
/// every invocation abandoned.
#[derive(Clone, Debug)]
pub struct Lambda {
    functions: Arc<Functions>,
    /// What the HTTP API and the invocations do not hold.
    _alive: Arc<Alive>,
}

/// Why an invocation was not begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InvokeError {
    /// There is no function of this name.
    NotFound(String),
    /// As many invocations of this function as there may be are under way.
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
    /// One permit for each environment that may be busy.
    room: Arc<Semaphore>,
}

/// An environment that nobody else uses.
struct Reserved {
    function: Arc<Function>,
    environment: Arc<Environment>,
    sandbox: OwnedMutexGuard<Option<Sandbox>>,
    _room: OwnedSemaphorePermit,
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
    /// Makes functions available. No process is started before the first invocation.
    ///
    /// # Errors
    /// When a binary does not exist, when two functions have one name, or when no loopback port can be
    /// had.
    pub async fn start(functions: Vec<Function>) -> anyhow::Result<Self> {
        let mut by_name = BTreeMap::new();
        for mut function in functions {
            let binary = function.binary.canonicalize();
            function.binary = binary.with_context(|| format!("no binary {}", function.binary.display()))?;
            let name = function.name.clone();
            if by_name.insert(name.clone(), Deployed::new(function)).is_some() {
                bail!("there are two functions {name:?}");
            }
        }
        let listener = TcpListener::bind("127.0.0.1:0").await.context("no loopback port could be had")?;
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

    /// Invokes a function and waits for the end. An idle environment takes it, a warm one rather than a
    /// cold one; if there is none, another one is made.
    ///
    /// The invocation goes on when the future is dropped, as in Lambda.
    ///
    /// # Errors
    /// [`InvokeError`]: nothing was invoked. Whatever the function did is no error but an
    /// [`Outcome`](super::Outcome).
    pub async fn invoke(&self, name: &str, payload: &str) -> anyhow::Result<Invocation> {
        Ok(self.functions.invoke(name, payload.to_owned()).await?)
    }

    /// Stops the process in this environment (SIGSTOP), whatever it is doing. Deadlines do not stop.
    ///
    /// # Errors
    /// When there is no process in it.
    pub fn freeze(&self, environment: u32) -> anyhow::Result<()> {
        self.send(environment, Signal::STOP)
    }

    /// Stops the process in this environment, as when its whole host stands still: its deadline passes, and
    /// nobody kills it. After [`thaw`](Lambda::thaw) it has 2 s before it is killed for that.
    ///
    /// # Errors
    /// When there is no process in it.
    pub fn stand_still(&self, environment: u32) -> anyhow::Result<()> {
        self.reach(environment, Leash::stand_still)
    }

    /// Lets the process in this environment go on (SIGCONT).
    ///
    /// # Errors
    /// When there is no process in it.
    pub fn thaw(&self, environment: u32) -> anyhow::Result<()> {
        self.reach(environment, Leash::go_on)
    }

    /// Kills the process in this environment (SIGKILL). The next invocation starts another one.
    ///
    /// # Errors
    /// When there is no process in it.
    pub fn kill(&self, environment: u32) -> anyhow::Result<()> {
        self.send(environment, Signal::KILL)
    }

    /// The environments of a function, the oldest first, busy or not.
    pub fn environments(&self, name: &str) -> Vec<u32> {
        let deployed = self.functions.by_name.get(name);
        deployed.map_or_else(Vec::new, |deployed| lock(&deployed.environments).iter().map(|one| one.id).collect())
    }

    /// The process in this environment, if there is one: its leader, whose group has the same id.
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
    /// When no process waits in a snapshot there.
    pub fn restore(&self, environment: u32) -> anyhow::Result<()> {
        self.reach(environment, |leash| leash.snapshot().send_replace(false) && leash.go_on())
    }

    /// What all functions write from now on, line by line, while they write it, with Lambda's own lines at
    /// the end of each invocation.
    pub fn log_lines(&self) -> broadcast::Receiver<LogLine> {
        self.functions.lines.subscribe()
    }

    fn send(&self, environment: u32, signal: Signal) -> anyhow::Result<()> {
        self.reach(environment, |leash| leash.send(signal))
    }

    fn reach(&self, environment: u32, reaches: impl Fn(&Leash) -> bool) -> anyhow::Result<()> {
        let reached = self.functions.all().iter().any(|one| one.id == environment && reaches(&one.leash));
        if !reached {
            bail!("no process in environment {environment}");
        }
        Ok(())
    }
}

impl Functions {
    pub(super) fn function(&self, name: &str) -> Option<&Function> {
        self.by_name.get(name).map(|deployed| deployed.function.as_ref())
    }

    pub(super) async fn invoke(self: &Arc<Self>, name: &str, payload: String) -> Result<Invocation, InvokeError> {
        let deployed = self.deployed(name)?;
        let room = deployed.room.clone().try_acquire_owned();
        let room = room.map_err(|_| InvokeError::Throttled(name.to_owned()))?;
        let reserved = self.reserve(deployed, room);
        self.run(reserved, Uuid::new_v4(), payload).await
    }

    /// Invokes a function and waits for nothing. It waits in a queue if there is no room.
    pub(super) fn enqueue(self: &Arc<Self>, name: &str, payload: String) -> Result<Uuid, InvokeError> {
        let room = self.deployed(name)?.room.clone();
        let (functions, name, request_id) = (self.clone(), name.to_owned(), Uuid::new_v4());
        self.beside(async move {
            if let (Ok(room), Ok(deployed)) = (room.acquire_owned().await, functions.deployed(&name)) {
                // Nobody waits for what becomes of it.
                let _ = functions.run(functions.reserve(deployed, room), request_id, payload).await;
            }
        });
        Ok(request_id)
    }

    fn deployed(&self, name: &str) -> Result<&Deployed, InvokeError> {
        self.by_name.get(name).ok_or_else(|| InvokeError::NotFound(name.to_owned()))
    }

    async fn run(&self, reserved: Reserved, request_id: Uuid, payload: String) -> Result<Invocation, InvokeError> {
        let (done, result) = tokio::sync::oneshot::channel();
        self.beside(async move {
            let Reserved { function, environment, sandbox, _room } = reserved;
            let invocation = environment.invoke(sandbox, &function, request_id.to_string(), payload).await;
            for line in report::end(&function, &invocation) {
                environment.source.say(line);
            }
            drop(_room);
            // The caller may have gone.
            let _ = done.send(invocation);
        });
        result.await.map_err(|_| InvokeError::Stopped)
    }

    fn reserve(&self, deployed: &Deployed, room: OwnedSemaphorePermit) -> Reserved {
        let mut environments = lock(&deployed.environments);
        let free =
            environments.iter().filter_map(|one| Some((one.clone(), one.sandbox.clone().try_lock_owned().ok()?)));
        let mut free: Vec<_> = free.collect();
        let warm = free.iter().position(|(_, sandbox)| sandbox.is_some()).unwrap_or_default();
        let function = deployed.function.clone();
        if warm < free.len() {
            let (environment, sandbox) = free.swap_remove(warm);
            return Reserved { function, environment, sandbox, _room: room };
        }
        let id = self.environments.fetch_add(1, Ordering::Relaxed) + 1;
        let source = Source { function: function.name.clone(), environment: id, listeners: self.lines.clone() };
        let environment = Arc::new(Environment::new(id, source));
        environments.push(environment.clone());
        loop {
            // Nobody else has seen it: the list is locked.
            if let Ok(sandbox) = environment.sandbox.clone().try_lock_owned() {
                return Reserved { function, environment, sandbox, _room: room };
            }
        }
    }

    fn all(&self) -> Vec<Arc<Environment>> {
        self.by_name.values().flat_map(|deployed| lock(&deployed.environments).clone()).collect()
    }

    /// Runs something until it is done, or until the last handle is dropped.
    fn beside(&self, work: impl Future<Output = ()> + Send + 'static) {
        let mut stopped = self.stopped.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = work => {}
                // Nothing is ever sent: it ends when the other half is dropped.
                _ = stopped.changed() => {}
            }
        });
    }
}

impl Deployed {
    fn new(function: Function) -> Self {
        let room = Arc::new(Semaphore::new(MOST_ENVIRONMENTS));
        Self { function: Arc::new(function), environments: Mutex::default(), room }
    }
}

impl fmt::Display for InvokeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound(name) => write!(f, "there is no function {name:?}"),
            Self::Throttled(name) => {
                write!(f, "{MOST_ENVIRONMENTS} invocations of {name:?} are under way, and there may be no more")
            }
            Self::Stopped => f.write_str("the functions were stopped"),
        }
    }
}

impl std::error::Error for InvokeError {}
