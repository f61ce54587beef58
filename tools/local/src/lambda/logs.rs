//! The output of a process, by invocation.
//!
//! stdout and stderr are one pipe, so their order is kept. When an invocation has ended, all of its output is in
//! the pipe, which is read to its end at that time. If a process has several invocations at the same time, each
//! gets the output of all of them. They end with the response: what a process writes after that, such as its metrics,
//! is in the output of another invocation, or in none.

use super::lock;
use rustix::io::{Errno, read};
use std::io::{self, PipeReader};
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard};
use tokio::net::unix::pipe::Receiver;
use tokio::sync::broadcast;

const BUFFER: usize = 8192;

/// A line that a function has just written.
#[derive(Clone, Debug)]
pub struct LogLine {
    /// The function's name.
    pub function: String,
    /// Its environment.
    pub environment: u32,
    /// The line, without its end.
    pub line: String,
}

/// Where lines are sent when they are written, and which function they belong to.
#[derive(Clone, Debug)]
pub(super) struct Source {
    pub(super) function: String,
    pub(super) environment: u32,
    pub(super) listeners: broadcast::Sender<LogLine>,
}

impl Source {
    pub(super) fn say(&self, line: String) {
        let (function, environment) = (self.function.clone(), self.environment);
        // Often there is no receiver.
        let _ = self.listeners.send(LogLine { function, environment, line });
    }
}

/// The output of a process.
#[derive(Debug)]
pub(super) struct Logs {
    pipe: Receiver,
    kept: Mutex<Kept>,
    source: Source,
}

#[derive(Debug, Default)]
struct Kept {
    /// The output that is still needed.
    text: Vec<u8>,
    /// How many bytes were written before it.
    forgotten: usize,
    /// The beginning of a line that is not complete.
    line: Vec<u8>,
}

impl Logs {
    pub(super) fn new(pipe: PipeReader, source: Source) -> io::Result<Self> {
        Ok(Self { pipe: Receiver::from_owned_fd(OwnedFd::from(pipe))?, kept: Mutex::default(), source })
    }

    /// Reads until the process has closed its end, so that the process never waits for a reader.
    pub(super) async fn follow(&self) {
        let mut buffer = [0; BUFFER];
        while self.pipe.readable().await.is_ok() {
            let mut kept = lock(&self.kept);
            match self.pipe.try_read(&mut buffer) {
                Ok(length @ 1..) => self.keep(&mut kept, buffer.get(..length).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Ok(_) | Err(_) => break,
            }
        }
    }

    /// Returns how many bytes were written until now.
    pub(super) fn written(&self) -> usize {
        let kept = self.up_to_date();
        kept.forgotten + kept.text.len()
    }

    /// Returns what was written after this many bytes.
    pub(super) fn since(&self, written: usize) -> String {
        let kept = self.up_to_date();
        let from = written.saturating_sub(kept.forgotten);
        String::from_utf8_lossy(kept.text.get(from..).unwrap_or_default()).into_owned()
    }

    /// Drops the first bytes, which are not needed any more.
    pub(super) fn forget(&self, written: usize) {
        let mut kept = lock(&self.kept);
        let less = written.saturating_sub(kept.forgotten).min(kept.text.len());
        kept.text.drain(..less);
        kept.forgotten += less;
    }

    fn up_to_date(&self) -> MutexGuard<'_, Kept> {
        let mut kept = lock(&self.kept);
        let mut buffer = [0; BUFFER];
        // Reads the pipe directly, because the runtime may not yet know that there is something to
        // read.
        loop {
            match read(&self.pipe, &mut buffer) {
                Ok(length @ 1..) => self.keep(&mut kept, buffer.get(..length).unwrap_or_default()),
                Err(Errno::INTR) => {}
                Ok(_) | Err(_) => break,
            }
        }
        kept
    }

    fn keep(&self, kept: &mut Kept, written: &[u8]) {
        kept.text.extend_from_slice(written);
        for piece in written.split_inclusive(|byte| *byte == b'\n') {
            kept.line.extend_from_slice(piece);
            if piece.ends_with(b"\n") {
                let line = String::from_utf8_lossy(&std::mem::take(&mut kept.line)).trim_end().to_owned();
                self.source.say(line);
            }
        }
    }
}
