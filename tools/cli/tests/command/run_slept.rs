//! `run`: the machine was suspended, or its clock was set. The command goes on if a renewal shows that the lock is still ours.

use crate::hostile::behind;
use crate::place::Place;
use crate::run::{break_it, ended, file, is_running, millis, next_of, run, signal, spawned, written};
use crate::run_rest::skipped;
use crate::run_signals::{beats, is, until};
use lambda_lock_local::authorize::{AuthorizingProxy, Fate};
use lambda_lock_testkit::soon_so;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::path::{Path, PathBuf};
use tokio::process::{Child, Command};
use tokio::time::sleep;

/// A command that works until it is told to end.
struct Work {
    ready: PathBuf,
    work: PathBuf,
    last: PathBuf,
}

impl Work {
    fn new(name: &str) -> Self {
        let [ready, work, last] = ["ready", "work", "last"].map(|what| file(&format!("slept-{name}-{what}")));
        Self { ready, work, last }
    }

    fn script(&self) -> String {
        let [ready, work, last] = [&self.ready, &self.work, &self.last].map(|path| path.display());
        format!("echo $$ > {ready}; while [ ! -e {last} ]; do echo x >> {work}; sleep 0.02; done")
    }

    fn run(&self, place: &Place, proxy: &AuthorizingProxy, options: &[&str]) -> Command {
        let mut command = run(place, options, &self.script());
        command.env("AWS_ENDPOINT_URL_DYNAMODB", proxy.endpoint());
        command
    }

    /// Whether it worked within half a second.
    async fn works(&self) -> bool {
        let done = beats(&self.work);
        sleep(millis(500)).await;
        beats(&self.work) > done
    }

    async fn rests(&self) {
        soon_so("it works no more", async || !self.works().await).await;
    }

    async fn continues_and_ends(&self, place: &Place, child: Child, what: &str) {
        let done = beats(&self.work);
        until(&format!("{what}: it works on"), || beats(&self.work) > done).await;
        std::fs::write(&self.last, "").unwrap();
        let ended = ended(child).await;
        assert_eq!((ended.code(), ended.err.as_str()), (0, ""), "{what}: {ended:?}");
        assert!(place.is_free("k").await, "{what}");
    }
}

const SHORT: [&str; 4] = ["--lease", "3s", "--kill-after", "1s"];
const LONG: [&str; 4] = ["--lease", "2m", "--kill-after", "30s"];

/// Sets the clock on the wall of one command forward, by the seconds that a file has. For the command this is as a machine that
/// was suspended: the other clock stands still then. `None` where the library cannot be made, and prints why.
fn clock(name: &str) -> Option<(PathBuf, PathBuf)> {
    let (source, library, ahead) =
        (file(&format!("{name}.c")), file(&format!("{name}.so")), file(&format!("{name}-ahead")));
    let code = r#"#define _GNU_SOURCE
        #include <stdlib.h>
        #include <fcntl.h>
        #include <sys/syscall.h>
        #include <time.h>
        #include <unistd.h>
        int clock_gettime(clockid_t clock, struct timespec *at) {
            int failed = syscall(SYS_clock_gettime, clock, at);
            int file = clock == CLOCK_REALTIME ? open(getenv("AHEAD"), O_RDONLY | O_CLOEXEC) : -1;
            if (file >= 0) {
                char seconds[20] = {0};
                if (read(file, seconds, 19) > 0) at->tv_sec += atol(seconds);
                close(file);
            }
            return failed;
        }"#;
    std::fs::write(&source, code).unwrap();
    let made = std::process::Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&library, &source]).output();
    if !made.is_ok_and(|made| made.status.success()) {
        skipped("cc, to set the clock of a command");
        return None;
    }
    Some((library, ahead))
}

fn with_clock(command: &mut Command, (library, ahead): &(PathBuf, PathBuf)) {
    command.env("LD_PRELOAD", library).env("AHEAD", ahead);
}

/// At once, so that no clock is read from half of a file.
fn set(ahead: &Path, seconds: &str) {
    let whole = PathBuf::from(format!("{}-whole", ahead.display()));
    std::fs::write(&whole, seconds).unwrap();
    std::fs::rename(whole, ahead).unwrap();
}

async fn version(place: &Place) -> String {
    place.locks("test").operator().peek("k").await.unwrap().unwrap().version
}

/// As a container that is paused: nobody is told.
#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_was_stopped_unseen_beyond_its_lease_continues_when_its_lock_was_renewed() {
    for foreground in [&[][..], &["--foreground"]] {
        let place = Place::new().await;
        let proxy = behind(&place).await;
        let work = Work::new(&format!("unseen-{}", foreground.len()));
        let child = spawned(work.run(&place, &proxy, &[&SHORT, foreground].concat()));
        let pid = written(&work.ready).await;
        let group = Pid::from_raw(pid.parse().unwrap()).unwrap();
        let to_command = |sent| match foreground.is_empty() {
            true => kill_process_group(group, sent),
            false => kill_process(group, sent),
        };
        signal(&child, Signal::STOP);
        to_command(Signal::STOP).unwrap();
        let wrapper = child.id().unwrap().to_string();
        until("lambda-lock is stopped", || is(&wrapper, 'T')).await;
        sleep(millis(3_500)).await;
        let seen = version(&place).await;
        to_command(Signal::CONT).unwrap();
        signal(&child, Signal::CONT);
        work.continues_and_ends(&place, child, &format!("{foreground:?}")).await;
        assert_ne!(version(&place).await, seen);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_whose_machine_slept_does_nothing_until_its_lock_was_renewed() {
    let Some(clock) = clock("slept-clock") else { return };
    let place = Place::new().await;
    let proxy = behind(&place).await;
    let work = Work::new("suspended");
    let mut command = work.run(&place, &proxy, &LONG);
    with_clock(&mut command, &clock);
    let child = spawned(command);
    let pid = written(&work.ready).await;
    // Beyond the lease, and into its end, and into the time before which it is renewed otherwise.
    for (ahead, is_held) in [("3600", true), ("3700", true), ("3770", false)] {
        let seen = version(&place).await;
        proxy.decide(|_| Fate::RequestLost);
        set(&clock.1, ahead);
        // Whoever sleeps for longer than a second looks when it wakes.
        if is_held {
            work.rests().await;
            assert!(is_running(&pid), "{ahead}");
        } else {
            sleep(millis(2_000)).await;
            assert!(work.works().await, "{ahead}");
        }
        proxy.decide(|_| Fate::Answered);
        let mut is_new = false;
        while !is_new && is_running(&pid) {
            sleep(millis(50)).await;
            is_new = version(&place).await != seen;
        }
        assert!(is_new, "{ahead}: it is renewed");
        soon_so(format!("{ahead}: it works on"), async || work.works().await).await;
    }
    work.continues_and_ends(&place, child, "in the end").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_whose_machine_slept_is_killed_when_its_lock_cannot_be_renewed() {
    let Some(clock) = clock("slept-for-good-clock") else { return };
    let place = Place::new().await;
    let proxy = behind(&place).await;
    let work = Work::new("for-good");
    let mut command = work.run(&place, &proxy, &LONG);
    with_clock(&mut command, &clock);
    let child = spawned(command);
    let pid = written(&work.ready).await;
    proxy.decide(|_| Fate::RequestLost);
    set(&clock.1, "3600");
    work.rests().await;
    let done = beats(&work.work);
    let ended = ended(child).await;
    assert_eq!(ended.code(), 76, "{ended:?}");
    assert!(ended.err.contains("the lease has ended: the command is killed"), "{ended:?}");
    assert!(!is_running(&pid) && beats(&work.work) == done, "{ended:?}");
}

/// A renewal was under way when it fell asleep. Its answer may be seen before the clocks are looked at.
#[tokio::test(flavor = "multi_thread")]
async fn a_command_whose_machine_slept_until_the_next_holder_came_is_killed_at_once() {
    let Some((library, ahead)) = clock("slept-through-clock") else { return };
    let rounds = (0..8).map(|round| {
        let (library, ahead) = (library.clone(), ahead.with_extension(round.to_string()));
        tokio::spawn(async move {
            let place = Place::new().await;
            let proxy = behind(&place).await;
            let work = Work::new(&format!("through-{round}"));
            let script = format!("trap '' TERM; {}", work.script());
            let mut command = run(&place, &["--lease", "6s", "--kill-after", "2s"], &script);
            command.env("AWS_ENDPOINT_URL_DYNAMODB", proxy.endpoint());
            set(&ahead, "0");
            with_clock(&mut command, &(library, ahead.clone()));
            let child = spawned(command);
            written(&work.ready).await;
            break_it(&place).await;
            let next = next_of(&place).await;
            let slept = ahead.clone();
            proxy.decide(move |_| {
                set(&slept, "3600");
                Fate::Answered
            });
            until("it wakes", || std::fs::read_to_string(&ahead).unwrap() == "3600").await;
            sleep(millis(500)).await;
            let done = beats(&work.work);
            let ended = ended(child).await;
            assert_eq!(beats(&work.work), done, "{round}: it worked beside the next holder: {ended:?}");
            assert_eq!(ended.code(), 76, "{round}: {ended:?}");
            next.release().await.unwrap();
        })
    });
    for round in rounds.collect::<Vec<_>>() {
        round.await.unwrap();
    }
}

/// What is stopped with the command is stopped unseen.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_beneath_one_that_was_stopped_renews_its_own_lock_and_goes_on() {
    let place = Place::new().await;
    let work = Work::new("beneath");
    let inner = format!(
        "{} run inner --lease 3s --kill-after 1s -- sh -c '{}'",
        env!("CARGO_BIN_EXE_lambda-lock"),
        work.script()
    );
    let child = spawned(run(&place, &["--lease", "1h"], &inner));
    written(&work.ready).await;
    signal(&child, Signal::TSTP);
    let wrapper = child.id().unwrap().to_string();
    until("lambda-lock is stopped", || is(&wrapper, 'T')).await;
    sleep(millis(3_500)).await;
    signal(&child, Signal::CONT);
    work.continues_and_ends(&place, child, "beneath").await;
    assert!(place.is_free("inner").await);
}

/// The inner one holds its command stopped until its own lock was renewed.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_ends_continues_nothing_that_a_run_beneath_it_holds_stopped() {
    let place = Place::new().await;
    let proxy = behind(&place).await;
    let (work, run_pid) = (Work::new("held-stopped"), file("slept-held-stopped-run"));
    // The worker leaves the group of the inner command.
    let inner = format!(
        "AWS_ENDPOINT_URL_DYNAMODB={} {} run inner --lease 3s --kill-after 1s -- sh -c 'setsid sh -c \"trap : TERM; {}\" & wait' & \
         echo $! > {}; wait",
        proxy.endpoint(),
        env!("CARGO_BIN_EXE_lambda-lock"),
        work.script().replace("$$", "\\$\\$"),
        run_pid.display()
    );
    let child = spawned(run(&place, &["--lease", "1h"], &inner));
    written(&work.ready).await;
    let inner = written(&run_pid).await;
    let to_inner = |sent| kill_process(Pid::from_raw(inner.parse().unwrap()).unwrap(), sent).unwrap();
    to_inner(Signal::TSTP);
    until("the inner one is stopped", || is(&inner, 'T')).await;
    sleep(millis(3_500)).await;
    // There is no answer, so it is not known whose the lock is.
    proxy.decide(|_| Fate::Swallowed);
    to_inner(Signal::CONT);
    sleep(millis(300)).await;
    let done = beats(&work.work);
    signal(&child, Signal::TERM);
    let ended = ended(child).await;
    assert_eq!(beats(&work.work), done, "it worked on without its lock: {ended:?}");
}
