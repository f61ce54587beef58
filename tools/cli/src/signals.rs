//! The signals that end or stop a process, as this one gets them.

use crate::proc;
use nix::sys::signal::SigSet;
use rustix::process::{Signal, getpid, kill_process};
use std::future::poll_fn;
use std::task::Poll;
use tokio::signal::unix::{self, SignalKind};

/// What ends a process that does not handle it. Left out are SIGKILL, faults of the program, and what has no name: they end
/// this process, and on Linux the command with it.
const ENDING: &[Signal] = &[
    Signal::HUP,
    Signal::INT,
    Signal::QUIT,
    Signal::ABORT,
    Signal::USR1,
    Signal::USR2,
    Signal::ALARM,
    Signal::TERM,
    Signal::XCPU,
    Signal::XFSZ,
    Signal::VTALARM,
    Signal::PROF,
    #[cfg(target_os = "linux")]
    Signal::STKFLT,
    #[cfg(target_os = "linux")]
    Signal::IO,
    #[cfg(target_os = "linux")]
    Signal::POWER,
];

/// By which somebody ends a script too. The others mean something to the command alone.
pub(crate) const ASKS_TO_END: [Signal; 3] = [Signal::INT, Signal::TERM, Signal::HUP];

/// What stops a process that does not handle it. SIGTTOU is handled only while a command runs: it stops whoever writes to a
/// terminal from the background, where the terminal is set so (`stty tostop`), and who handles it writes again at once.
const STOPPING: &[Signal] = &[Signal::TSTP, Signal::TTIN, Signal::TTOU];

/// The signals that end or stop a process, as they arrive.
pub(crate) struct Signals(Vec<(Signal, unix::Signal)>);

impl Signals {
    pub(crate) fn new() -> std::io::Result<Self> {
        let stopping = STOPPING.iter().filter(|signal| **signal != Signal::TTOU);
        ENDING.iter().chain(stopping).copied().filter_map(listen).collect::<std::io::Result<_>>().map(Self)
    }

    /// A command begins to run, which is to stop with this process. From now on, whatever is written is written by threads
    /// that [never get](without_ttou) SIGTTOU.
    pub(crate) fn a_command_runs(&mut self) -> std::io::Result<()> {
        self.0.extend(listen(Signal::TTOU).transpose()?);
        Ok(())
    }

    /// The next one. Cancel safe.
    pub(crate) async fn next(&mut self) -> Signal {
        let arrived = poll_fn(|context| {
            let mut all = self.0.iter_mut();
            let arrived = all.find_map(|(signal, arrivals)| arrivals.poll_recv(context).is_ready().then_some(*signal));
            arrived.map_or(Poll::Pending, Poll::Ready)
        });
        arrived.await
    }

    /// One that has come already, and [asks to end](ASKS_TO_END).
    pub(crate) async fn come_already(&mut self) -> Option<Signal> {
        loop {
            tokio::select! {
                biased;
                signal = self.next_ending() => if ASKS_TO_END.contains(&signal) {
                    return Some(signal);
                },
                () = std::future::ready(()) => return None,
            }
        }
    }

    /// The next one that ends. What stops is obeyed meanwhile. Cancel safe.
    pub(crate) async fn next_ending(&mut self) -> Signal {
        loop {
            let signal = self.next().await;
            if !stops(signal) {
                return signal;
            }
            stop_this_process();
        }
    }
}

/// `None` where this process was told to ignore it.
fn listen(signal: Signal) -> Option<std::io::Result<(Signal, unix::Signal)>> {
    let is_ignored = ignored() >> (signal.as_raw() - 1) & 1 != 0;
    (!is_ignored).then(|| Ok((signal, unix::signal(SignalKind::from_raw(signal.as_raw()))?)))
}

/// What this thread writes is written, also to a terminal that stops whoever writes from the background.
pub(crate) fn without_ttou() {
    // It cannot fail: there is such a signal.
    let _ = SigSet::from(nix::sys::signal::Signal::SIGTTOU).thread_block();
}

/// The signals that this process was told to ignore, as `nohup` does it, by their bits. The command ignores them too.
fn ignored() -> u64 {
    // Elsewhere than on Linux it is not known.
    let status = proc::text("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default()
}

pub(crate) fn stops(signal: Signal) -> bool {
    STOPPING.contains(&signal)
}

/// Stops this process. Returns when somebody continues it.
pub(crate) fn stop_this_process() {
    // It cannot fail: the process is there.
    let _ = kill_process(getpid(), Signal::STOP);
}
