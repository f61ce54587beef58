//! The output of a process, by invocation.
//!
//! stdout and stderr are one pipe, so their order is kept. At the end of an invocation the process is
//! stopped or dead, so all of its output is in the pipe. It is read to its end at that time.

use super::lock;
use rustix::io::{Errno, read};
use std::io::{self, PipeReader};
use std::os::fd::OwnedFd;
use std::sync::Mutex;
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
    /// The output of this invocation.
    text: Vec<u8>,
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

    /// Returns what was written since the last call.
    pub(super) fn take(&self) -> String {
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
        String::from_utf8_lossy(&std::mem::take(&mut kept.text)).into_owned()
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
