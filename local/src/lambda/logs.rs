//! What a process wrote, by invocation.
//!
//! stdout and stderr are one pipe, so their order is kept. Whatever was written before an invocation has answered is in
//! the pipe then: it is read to its end there and then. Of several invocations at once, each has the lines of all.

use super::lock;
use rustix::io::{Errno, read};
use std::io::{self, PipeReader};
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard};
use tokio::net::unix::pipe::Receiver;
use tokio::sync::broadcast;

const BUFFER: usize = 8192;

/// A line that a function wrote, as it is written.
#[derive(Clone, Debug)]
pub struct LogLine {
    /// The function's name.
    pub function: String,
    /// Its environment.
    pub environment: u32,
    /// The line, without its end.
    pub line: String,
}

/// Where lines go while they are written, and whose they are.
#[derive(Clone, Debug)]
pub(super) struct Source {
    pub(super) function: String,
    pub(super) environment: u32,
    pub(super) listeners: broadcast::Sender<LogLine>,
}

impl Source {
    pub(super) fn say(&self, line: String) {
        let (function, environment) = (self.function.clone(), self.environment);
        // Often nobody listens.
        let _ = self.listeners.send(LogLine { function, environment, line });
    }
}

/// What a process writes.
#[derive(Debug)]
pub(super) struct Logs {
    pipe: Receiver,
    kept: Mutex<Kept>,
    source: Source,
}

#[derive(Debug, Default)]
struct Kept {
    /// What somebody may still ask for.
    text: Vec<u8>,
    /// How much was written before that.
    forgotten: usize,
    /// The beginning of a line whose end was not written yet.
    line: Vec<u8>,
}

impl Logs {
    pub(super) fn new(pipe: PipeReader, source: Source) -> io::Result<Self> {
        Ok(Self { pipe: Receiver::from_owned_fd(OwnedFd::from(pipe))?, kept: Mutex::default(), source })
    }

    /// Reads until the process has closed its end, so that it never waits for a reader.
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

    /// How much was written until now.
    pub(super) fn written(&self) -> usize {
        let kept = self.up_to_date();
        kept.forgotten + kept.text.len()
    }

    /// What was written after so much.
    pub(super) fn since(&self, written: usize) -> String {
        let kept = self.up_to_date();
        let from = written.saturating_sub(kept.forgotten);
        String::from_utf8_lossy(kept.text.get(from..).unwrap_or_default()).into_owned()
    }

    /// Nobody will ask for what was written before so much.
    pub(super) fn forget(&self, written: usize) {
        let mut kept = lock(&self.kept);
        let less = written.saturating_sub(kept.forgotten).min(kept.text.len());
        kept.text.drain(..less);
        kept.forgotten += less;
    }

    fn up_to_date(&self) -> MutexGuard<'_, Kept> {
        let mut kept = lock(&self.kept);
        let mut buffer = [0; BUFFER];
        // Past the runtime, which may not know yet that there is something to read.
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
