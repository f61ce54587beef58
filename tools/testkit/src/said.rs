//! Processes that a test without a runtime waits for, with a limit: one that hangs must fail the test, and not hang it.

use crate::limit::PATIENCE;
use std::fmt::Display;
use std::io::{BufRead, BufReader, Read};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

/// As [`soon`](crate::soon), for what blocks its thread. It may take this long.
///
/// # Panics
/// Panics if it takes longer. Its thread is left behind.
pub fn ends_in<T: Send + 'static>(limit: Duration, what: impl Display, ends: impl FnOnce() -> T + Send + 'static) -> T {
    let (tell, told) = channel();
    // The test may have given up.
    thread::spawn(move || drop(tell.send(ends())));
    told.recv_timeout(limit).unwrap_or_else(|error| panic!("waited up to {limit:?} in vain for this: {what}: {error}"))
}

/// As [`soon_so`](crate::soon_so), for a test without a runtime.
///
/// # Panics
/// As [`soon`](crate::soon).
pub fn soon_is(what: impl Display, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "waited {PATIENCE:?} in vain for this: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// The lines that a process prints.
#[derive(Debug)]
pub struct Said(Receiver<String>);

impl Said {
    /// Reads this output on a thread of its own, as long as the process prints.
    pub fn by(output: impl Read + Send + 'static) -> Self {
        let (tell, told) = channel();
        thread::spawn(move || {
            // Reads on although nobody listens: a process must not wait for its test.
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let _ = tell.send(line);
            }
        });
        Self(told)
    }

    /// Waits for the next line that contains this text.
    ///
    /// # Panics
    /// Panics if there is none for two minutes, or if the process has ended.
    pub fn line(&self, this: &str) -> String {
        self.line_in(PATIENCE, this)
    }

    /// The same for a process that may take this long until it prints the line.
    ///
    /// # Panics
    /// Panics if there is none in this time, or if the process has ended.
    pub fn line_in(&self, limit: Duration, this: &str) -> String {
        let began = Instant::now();
        loop {
            let left = limit.saturating_sub(began.elapsed());
            match self.0.recv_timeout(left) {
                Ok(line) if line.contains(this) => return line,
                Ok(_) => {}
                Err(error) => panic!("waited up to {limit:?} in vain for a line with {this:?}: {error}"),
            }
        }
    }
}
