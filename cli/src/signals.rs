//! The signals that end a command, and those that are sent to one.

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tokio::process::Child;
use tokio::signal::unix::{self, SignalKind};

/// SIGINT, SIGTERM and SIGHUP, as they arrive.
pub(crate) struct Signals {
    interrupt: unix::Signal,
    terminate: unix::Signal,
    hang_up: unix::Signal,
}

impl Signals {
    pub(crate) fn new() -> std::io::Result<Self> {
        Ok(Self {
            interrupt: unix::signal(SignalKind::interrupt())?,
            terminate: unix::signal(SignalKind::terminate())?,
            hang_up: unix::signal(SignalKind::hangup())?,
        })
    }

    /// The next one. Cancel safe.
    pub(crate) async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.interrupt.recv() => Signal::INT,
            _ = self.terminate.recv() => Signal::TERM,
            _ = self.hang_up.recv() => Signal::HUP,
        }
    }
}

/// Where the signals for a command go.
#[derive(Clone, Copy)]
pub(crate) struct Target {
    pid: Option<Pid>,
    /// The command leads a process group of its own.
    group: bool,
}

impl Target {
    pub(crate) fn of(child: &Child, group: bool) -> Self {
        let pid = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        Self { pid, group }
    }

    /// Sends a signal. A command that has ended gets none.
    pub(crate) fn send(self, signal: Signal) {
        let Some(pid) = self.pid else { return };
        // The only error is that nobody is there any more.
        let _ = if self.group { kill_process_group(pid, signal) } else { kill_process(pid, signal) };
    }

    /// Passes on a signal that this process got. In the foreground the terminal sends SIGINT to the command itself.
    pub(crate) fn pass_on(self, signal: Signal) {
        if self.group || signal != Signal::INT {
            self.send(signal);
        }
    }
}
