//! Every test ends: one that hangs stops the run and says which one it was, instead of the machine that runs it.
//!
//! Three limits, because no one of them sees everything. A call that sends request after request is stopped by
//! their number, in the task that sends them. A test that waits for ever, or loops without ever waiting, is stopped
//! by a thread, which looks at the machine's own clock and ends the process: nothing less stops a loop. And a test
//! that says by when a call must end says so with [`ends_within`].

use std::fmt::Debug;
use std::future::IntoFuture;
use std::io::Write;
use std::sync::{Arc, Mutex, Once, Weak};
use std::time::{Duration, Instant};

/// How long a test may run by the machine's own clock: many times what the slowest one takes.
const LONGEST_TEST: Duration = Duration::from_secs(600);

/// Sets another limit, in seconds, for a machine that is much slower.
const LIMIT_VARIABLE: &str = "LAMBDA_LOCK_LONGEST_TEST";

/// How many requests one process may send in one test: many times what the busiest one sends.
const MOST_REQUESTS: usize = 20_000;

/// Awaits a call that must end within this much virtual time.
///
/// # Panics
/// When it does not: the test fails there, instead of going on for ever.
pub async fn ends_within<T>(limit: Duration, call: impl IntoFuture<Output = T>) -> T {
    match tokio::time::timeout(limit, call).await {
        Ok(output) => output,
        Err(_) => panic!("the call had not ended after {limit:?}"),
    }
}

/// Stops a call that goes on asking.
pub(crate) fn check_number_of_requests(sent: usize, last: &dyn Debug) {
    assert!(sent <= MOST_REQUESTS, "one process sent {sent} requests: does the call never end? The last one: {last:?}");
}

/// A test that is under way, for as long as this lives.
#[derive(Debug)]
pub(crate) struct Running {
    test: String,
    since: Instant,
}

thread_local! {
    /// When the first process of the test on this thread was made.
    static BEGUN: Instant = Instant::now();
}

static RUNNING: Mutex<Vec<Weak<Running>>> = Mutex::new(Vec::new());

impl Running {
    /// Begins to watch the test on this thread.
    pub(crate) fn begin() -> Arc<Self> {
        static WATCHING: Once = Once::new();
        WATCHING.call_once(|| drop(std::thread::spawn(|| watch(longest_test()))));
        let test = std::thread::current().name().unwrap_or("a test without a name").to_owned();
        // Also of a test that makes a new process each time round: every test has a thread of its own, unless all run
        // on the main one.
        let since = if test == "main" { Instant::now() } else { BEGUN.with(|begun| *begun) };
        let running = Arc::new(Self { test, since });
        let mut all = RUNNING.lock().unwrap();
        all.retain(|other| other.strong_count() > 0);
        all.push(Arc::downgrade(&running));
        running
    }
}

fn longest_test() -> Duration {
    match std::env::var(LIMIT_VARIABLE) {
        Ok(seconds) => Duration::from_secs(seconds.parse().expect("a number of seconds")),
        Err(_) => LONGEST_TEST,
    }
}

fn watch(longest: Duration) {
    loop {
        std::thread::sleep(Duration::from_millis(200));
        let all = RUNNING.lock().unwrap();
        if let Some(late) = all.iter().filter_map(Weak::upgrade).find(|running| running.since.elapsed() > longest) {
            // Not with `eprintln!`, which a test captures.
            let _ = writeln!(std::io::stderr(), "\nthe test {} has run for {longest:?}: it hangs", late.test);
            std::process::exit(101);
        }
    }
}
