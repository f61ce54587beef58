//! Stops tests that hang, and prints their names.
//!
//! There are several limits, because none of them finds everything. A call that sends requests without end is stopped
//! by their number, in its own task. A test that waits for something that never happens is stopped by a timer that is
//! years away: paused time goes there when nothing else is left to do. A test that loops is stopped by a thread. The
//! thread reads the machine's own clock and ends the process, because nothing else stops a loop. A test with
//! [`ends_within`] or [`until`] fails when its call takes too long.

use std::fmt::{Debug, Display};
use std::io::Write;
use std::ops::Range;
use std::sync::{Arc, Mutex, Once, Weak};
use std::time::{Duration, Instant};

/// How long a test may run by the machine's own clock. It is many times the time of the slowest test.
const MAX_TEST: Duration = Duration::from_secs(600);

/// The variable that sets another limit in seconds, for a machine that is much slower.
const LIMIT_VARIABLE: &str = "LAMBDA_LOCK_LONGEST_TEST";

/// How long a test may wait in virtual time, when nothing else is left to do. It is many times the longest wait.
const MAX_WAIT: Duration = Duration::from_secs(2 * 365 * 24 * 3600);

/// How many requests a process may send in one test. It is many times the number of the busiest one.
const MAX_REQUESTS: usize = 20_000;

/// Awaits a call that must end within this much virtual time.
///
/// # Panics
/// Panics if it does not, so that the test fails instead of hanging.
pub async fn ends_within<T>(limit: Duration, call: impl IntoFuture<Output = T>) -> T {
    match tokio::time::timeout(limit, call).await {
        Ok(output) => output,
        Err(_) => panic!("the call had not ended after {limit:?}"),
    }
}

/// Waits until this is so, and looks every millisecond of virtual time.
///
/// # Panics
/// Panics if it is not so after ten minutes of virtual time, so that the test fails instead of hanging.
pub async fn until(what: impl Display, mut is_so: impl FnMut() -> bool) {
    let began = tokio::time::Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(600), "waited in vain for this: {what}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// How long processes and servers may take on a busy machine. It is many times what they take on one that is not.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// Awaits what must happen soon by the machine's own clock.
///
/// # Panics
/// Panics if it does not happen for two minutes, so that the test fails instead of hanging.
pub async fn soon<T>(what: impl Display, happens: impl IntoFuture<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, happens).await {
        Ok(output) => output,
        Err(_) => panic!("waited {PATIENCE:?} in vain for this: {what}"),
    }
}

/// Waits until this is so by the machine's own clock, and looks every few milliseconds.
///
/// # Panics
/// As [`soon`].
pub async fn soon_so(what: impl Display, mut is_so: impl AsyncFnMut() -> bool) {
    let becomes_so = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    soon(what, becomes_so).await;
}

/// Measures up to five times how long something takes, until it is within its bound. A busy machine delays some runs, and a
/// mistake delays each of them.
///
/// # Panics
/// Panics if no run is within the bound.
pub async fn takes(bound: Range<Duration>, mut measured: impl AsyncFnMut() -> Duration) {
    let mut took = Vec::new();
    for _ in 0..5 {
        let last = measured().await;
        if bound.contains(&last) {
            return;
        }
        took.push(last);
    }
    panic!("it took {took:?}, and not {bound:?}");
}

/// Stops a call that sends requests without end.
pub(crate) fn check_number_of_requests(sent: usize, last: &dyn Debug) {
    assert!(sent <= MAX_REQUESTS, "one process sent {sent} requests: does the call never end? The last one: {last:?}");
}

/// A running test. It has ended when this is dropped.
#[derive(Debug)]
pub(crate) struct Running {
    test: String,
    since: Instant,
}

thread_local! {
    /// When the test's first process was created on this thread.
    static BEGUN: Instant = Instant::now();
}

static RUNNING: Mutex<Vec<Weak<Running>>> = Mutex::new(Vec::new());

impl Running {
    /// Starts to watch the test on this thread.
    pub(crate) fn begin() -> Arc<Self> {
        static WATCHING: Once = Once::new();
        WATCHING.call_once(|| drop(std::thread::spawn(|| watch(longest_test()))));
        let test = std::thread::current().name().unwrap_or("a test without a name").to_owned();
        // A test may create several processes, so the time counts from the first one on this thread. Every test has
        // its own thread, unless all run on the main thread.
        let since = if test == "main" { Instant::now() } else { BEGUN.with(|begun| *begun) };
        let running = Arc::new(Self { test, since });
        let mut all = RUNNING.lock().unwrap();
        all.retain(|other| other.strong_count() > 0);
        all.push(Arc::downgrade(&running));
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let test = Arc::downgrade(&running);
            runtime.spawn(async move {
                tokio::time::sleep(MAX_WAIT).await;
                if let Some(test) = test.upgrade() {
                    stop(&test.test, "waits for something that never happens");
                }
            });
        }
        running
    }
}

fn longest_test() -> Duration {
    match std::env::var(LIMIT_VARIABLE) {
        Ok(seconds) => Duration::from_secs(seconds.parse().expect("a number of seconds")),
        Err(_) => MAX_TEST,
    }
}

fn watch(longest: Duration) {
    loop {
        std::thread::sleep(Duration::from_millis(200));
        let all = RUNNING.lock().unwrap();
        if let Some(late) = all.iter().filter_map(Weak::upgrade).find(|running| running.since.elapsed() > longest) {
            stop(&late.test, &format!("has run for {longest:?}: it hangs"));
        }
    }
}

fn stop(test: &str, why: &str) -> ! {
    // Not `eprintln!`, because a test captures it.
    let _ = writeln!(std::io::stderr(), "\nthe test {test} {why}");
    std::process::exit(101);
}
