//! `run`: what the command started belongs to it, also outside of its process group.

use crate::hostile::behind;
use crate::place::Place;
use crate::run::{break_it, ended, file, is_running, millis, next_of, run, signal, spawned, stat, written};
use crate::run_rest::skipped;
use crate::run_signals::{beats, is, until};
use lambda_lock_local::authorize::Fate;
use lambda_lock_testkit::soon_so;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::path::{Path, PathBuf};
use tokio::time::sleep;

/// What leaves the process group of the command, each with a worker that ignores SIGTERM.
const LEAVES: [(&str, &str); 8] = [
    ("timeout", "timeout 1000 sh -c 'WORK' & wait"),
    ("setsid", "setsid sh -c 'WORK' & wait"),
    ("set-m", "set -m; sh -c 'WORK' & wait"),
    ("nested", "LAMBDA-LOCK run inner --lease 1h -- sh -c 'WORK' & wait"),
    // Its parents have ended.
    ("daemon", "(setsid sh -c 'WORK' &); sleep 1000"),
    // In the foreground it is still in the group of lambda-lock, and its environment says nothing, as one of another user.
    ("unknown", "(env -i sh -c 'WORK' &); sleep 1000"),
    // Its environment says that it is not the command's. It loses its parent when that is told to end.
    ("stripped", "setsid env -i PATH=\"$PATH\" sh -c 'WORK' & wait"),
    // Its name is no UTF-8: Linux cuts it after fifteen bytes, within a letter.
    (
        "named",
        "ln -s \"$(command -v sh)\" \"TMP/fourteen-bytesü\" 2> /dev/null; setsid \"TMP/fourteen-bytesü\" -c 'WORK' & wait",
    ),
];

struct Worker {
    ready: PathBuf,
    work: PathBuf,
    script: String,
}

impl Worker {
    fn new(name: &str, script: &str, at_sigterm: &str) -> Self {
        let (ready, work) = (file(&format!("{name}-ready")), file(&format!("{name}-work")));
        let loops = format!(
            "trap \"{at_sigterm}\" TERM; echo $$ > {}; while :; do echo x >> {}; sleep 0.02; done",
            ready.display(),
            work.display()
        );
        let script = script.replace("LAMBDA-LOCK", env!("CARGO_BIN_EXE_lambda-lock"));
        let script = script.replace("TMP", env!("CARGO_TARGET_TMPDIR"));
        let script = script.replace("WORK", &loops);
        Self { ready, work, script }
    }
}

fn kill(pid: &str) {
    let _ = kill_process(Pid::from_raw(pid.parse().unwrap()).unwrap(), Signal::KILL);
}

async fn all(cases: impl Iterator<Item = impl Future<Output = ()> + Send + 'static>) {
    for case in cases.map(tokio::spawn).collect::<Vec<_>>() {
        case.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_left_the_process_group_is_gone_before_the_next_holder_comes() {
    let cases = LEAVES.into_iter().flat_map(|leaves| [(leaves, false), (leaves, true)]);
    all(cases.map(|((name, script), foreground)| async move {
        let place = Place::new().await;
        let proxy = behind(&place).await;
        let worker = Worker::new(&format!("gone-{name}-{foreground}"), script, "");
        let options = ["--lease", "6s", "--kill-after", "1s", "--wait", "20s", "--foreground"];
        // So many begin at once that a response may take longer than a request waits for it.
        let mut command = run(&place, &options[..if foreground { 7 } else { 6 }], &worker.script);
        command.env("AWS_ENDPOINT_URL_DYNAMODB", proxy.endpoint());
        let child = spawned(command);
        let pid = written(&worker.ready).await;
        proxy.decide(|_| Fate::RequestLost);
        let next = next_of(&place).await;
        let works_on = is_running(&pid);
        kill(&pid);

        let ended = ended(child).await;
        assert!(!works_on, "{name} {foreground}: it worked beside the next holder: {ended:?}");
        assert_eq!(ended.code(), 76, "{name} {foreground}: {ended:?}");
        next.release().await.unwrap();
    }))
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_left_the_process_group_may_clean_up_and_the_lock_is_held_meanwhile() {
    // Neither timeout nor lambda-lock itself, which pass the signal on.
    let cases = [LEAVES[1], LEAVES[2], LEAVES[4]].into_iter().flat_map(|leaves| [(leaves, false), (leaves, true)]);
    all(cases.map(|((name, script), is_lost)| async move {
        let place = Place::new().await;
        let cleaned = file(&format!("cleans-{name}-{is_lost}-cleaned"));
        let at_sigterm = format!("sleep 3; echo done > {}; exit", cleaned.display());
        let worker = Worker::new(&format!("cleans-{name}-{is_lost}"), script, &at_sigterm);
        let child = spawned(run(&place, &["--lease", "30s"], &worker.script));
        let pid = written(&worker.ready).await;
        if is_lost {
            break_it(&place).await;
        } else {
            signal(&child, Signal::TERM);
        }
        let ended = ended(child).await;
        let is_left = is_running(&pid);
        kill(&pid);
        assert_eq!(ended.code(), if is_lost { 76 } else { 128 + 15 }, "{name}: {ended:?}");
        assert!(cleaned.exists() && !is_left, "{name}: {ended:?}");
    }))
    .await;
}

/// Each of them passes on what it is told. Who is told twice may leave out what it does before it ends.
#[tokio::test(flavor = "multi_thread")]
async fn a_command_beneath_two_runs_is_told_once_to_end() {
    all([&[][..], &["--foreground"]].into_iter().map(|foreground| async move {
        let place = Place::new().await;
        let [ready, told] = ["ready", "told"].map(|what| file(&format!("twice-{}-{what}", foreground.len())));
        let inner = format!(
            "exec {} run inner --lease 1h -- sh -c 'trap \"echo x >> {}\" TERM; echo $$ > {}; for i in 1 2 3 4 5; do sleep 0.2; done'",
            env!("CARGO_BIN_EXE_lambda-lock"),
            told.display(),
            ready.display()
        );
        let child = spawned(run(&place, &[&["--lease", "1h"], foreground].concat(), &inner));
        written(&ready).await;
        signal(&child, Signal::TERM);
        let ended = ended(child).await;
        assert_eq!(beats(&told), 1, "{foreground:?}: {ended:?}");
    }))
    .await;
}

/// A terminal sends Ctrl-C to the group of lambda-lock, and to nobody else. The shell becomes its `sleep`: dash loses a SIGINT that
/// comes while it starts a program.
#[tokio::test(flavor = "multi_thread")]
async fn what_left_the_group_is_told_to_end_also_by_ctrl_c_in_the_foreground() {
    let cases =
        [("detached", "setsid -f sh -c 'WORK'; exec sleep 1000"), ("by-timeout", "exec timeout 1000 sh -c 'WORK'")];
    all(cases.into_iter().map(|(name, script)| async move {
        let place = Place::new().await;
        let worker = Worker::new(&format!("ctrl-c-{name}"), script, "");
        let mut command = run(&place, &["--lease", "1h", "--foreground"], &worker.script);
        command.process_group(0);
        let child = spawned(command);
        let pid = written(&worker.ready).await;
        let group = Pid::from_raw(i32::try_from(child.id().unwrap()).unwrap()).unwrap();
        kill_process_group(group, Signal::INT).unwrap();
        let ended = ended(child).await;
        let is_left = is_running(&pid);
        kill(&pid);
        assert!(!is_left, "{name}: it works on without the lock: {ended:?}");
        assert!(ended.err.is_empty() && place.is_free("k").await, "{name}: {ended:?}");
    }))
    .await;
}

/// Otherwise a long session could start nothing more.
#[tokio::test(flavor = "multi_thread")]
async fn what_has_ended_without_its_parents_is_gone_soon_also_in_the_foreground() {
    let place = Place::new().await;
    let ready = file("orphans-ready");
    let script =
        format!("for i in 1 2 3; do (true & echo $! >> {0}.all); done; mv {0}.all {0}; sleep 1000", ready.display());
    let child = spawned(run(&place, &["--lease", "1h", "--foreground"], &script));
    for pid in written(&ready).await.split_whitespace() {
        soon_so(format!("{pid} is gone"), async || !std::fs::exists(format!("/proc/{pid}")).unwrap()).await;
    }
    signal(&child, Signal::TERM);
    ended(child).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_left_the_process_group_is_stopped_and_continues_with_the_command() {
    let cases = LEAVES.into_iter().flat_map(|leaves| [(leaves, false), (leaves, true)]);
    all(cases.map(|((name, script), foreground)| async move {
        let place = Place::new().await;
        let worker = Worker::new(&format!("paused-{name}-{foreground}"), script, "");
        let options: &[_] = if foreground { &["--lease", "1h", "--foreground"] } else { &["--lease", "1h"] };
        let child = spawned(run(&place, options, &worker.script));
        let (pid, wrapper) = (written(&worker.ready).await, child.id().unwrap().to_string());
        signal(&child, Signal::TSTP);
        until("lambda-lock is stopped", || is(&wrapper, 'T')).await;
        // What it had begun is done.
        sleep(millis(200)).await;
        let done = beats(&worker.work);
        sleep(millis(500)).await;
        let worked = beats(&worker.work) - done;
        signal(&child, Signal::CONT);
        until("it continues", || beats(&worker.work) > done + worked).await;
        signal(&child, Signal::TERM);
        kill(&pid);
        ended(child).await;
        assert_eq!(worked, 0, "{name} {foreground:?}: it was stopped");
    }))
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_lost_its_parent_is_no_zombie_when_it_has_ended() {
    let place = Place::new().await;
    let (ready, go) = (file("zombie-ready"), file("zombie-go"));
    let script = format!(
        "(setsid sh -c 'sleep 0.2; echo $$ > {}' &); while [ ! -e {} ]; do sleep 0.02; done",
        ready.display(),
        go.display()
    );
    let child = spawned(run(&place, &["--lease", "1h"], &script));
    let pid = written(&ready).await;
    until("it is reaped", || !Path::new(&format!("/proc/{pid}")).exists()).await;
    std::fs::write(&go, "").unwrap();
    assert_eq!(ended(child).await.code(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_runs_on_when_the_command_ends_by_itself() {
    let place = Place::new().await;
    let worker =
        Worker::new("by-itself", "(setsid sh -c 'WORK' > /dev/null 2>&1 &); while [ ! -e READY ]; do :; done", "");
    let script = worker.script.replace("READY", worker.ready.to_str().unwrap());
    let ended = ended(spawned(run(&place, &["--lease", "1h"], &script))).await;
    let pid = written(&worker.ready).await;
    let is_left = is_running(&pid);
    kill(&pid);
    assert_eq!((ended.code(), ended.err.as_str()), (0, ""), "{ended:?}");
    assert!(is_left && place.is_free("k").await);
}

/// As in the start script of a container.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_shell_started_before_it_became_lambda_lock_is_left_alone() {
    let place = Place::new().await;
    let (ready, stranger) = (file("stranger-ready"), file("stranger"));
    let inner =
        run(&place, &["--lease", "6s", "--kill-after", "1s"], &format!("echo $$ > {}; sleep 1000", ready.display()));
    let inner = inner.as_std();
    let waits = "while [ ! -s STRANGER ]; do sleep 0.02; done;";
    for beside in [
        "sleep 1000 &".to_owned(),
        format!("(sleep 1000 & echo $! > STRANGER; sleep 1) & {waits}"),
        // As a script that starts a daemon and ends a little later.
        format!("(setsid sleep 1000 & echo $! > STRANGER; sleep 1) & {waits}"),
    ] {
        let beside = beside.replace("STRANGER", stranger.to_str().unwrap());
        let mut shell = tokio::process::Command::new("sh");
        shell.arg("-c").arg(format!("{beside} [ -s {0} ] || echo $! > {0}; exec \"$0\" \"$@\"", stranger.display()));
        shell.arg(inner.get_program()).args(inner.get_args()).env_clear().kill_on_drop(true);
        shell.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let child = spawned(shell);
        let (pid, beside_it) = (written(&ready).await, written(&stranger).await);
        // The parent of the others ends.
        sleep(millis(1_500)).await;
        break_it(&place).await;
        while is_running(&pid) {
            sleep(millis(20)).await;
        }
        let is_left = is_running(&beside_it);
        kill(&beside_it);
        assert_eq!(ended(child).await.code(), 76);
        assert!(is_left, "{beside}");
        for path in [&ready, &stranger] {
            std::fs::remove_file(path).unwrap();
        }
    }
}

/// Who enters a container is nobody's child there, and what it leaves is adopted by the container's first process.
#[tokio::test(flavor = "multi_thread")]
async fn what_entered_a_container_is_left_alone() {
    let place = Place::new().await;
    let own = ["--map-root-user", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"];
    let entered = |pid: &str, script: &str| {
        let mut enter = tokio::process::Command::new("nsenter");
        enter.args(["--preserve-credentials", "--target", pid, "--user", "--mount", "--pid", "sh", "-c", script]);
        enter
    };
    let can_unshare = std::process::Command::new("unshare").args(own).arg("true").output();
    if !can_unshare.is_ok_and(|output| output.status.success()) {
        skipped("unshare and a user namespace, to be the first process of a container");
        return;
    }
    let (ready, entering, told) = (file("container-ready"), file("container-entering"), file("container-told"));
    let inner =
        run(&place, &["--lease", "6s", "--kill-after", "1s"], &format!("echo $$ > {}; sleep 1000", ready.display()));
    let inner = inner.as_std();
    let mut command = tokio::process::Command::new("unshare");
    command.args(own).arg(inner.get_program()).args(inner.get_args()).env_clear().kill_on_drop(true);
    command.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let child = spawned(command);
    written(&ready).await;
    let outer = child.id().unwrap();
    let first = std::fs::read_to_string(format!("/proc/{outer}/task/{outer}/children")).unwrap();
    let loops = format!(
        "trap \"echo told > {}\" TERM; echo $$ > {}; while :; do sleep 0.02; done",
        told.display(),
        entering.display()
    );
    let enters = entered(first.trim(), &format!("(setsid sh -c '{loops}' > /dev/null 2>&1 &)")).output().await.unwrap();
    assert!(enters.status.success(), "{enters:?}");
    written(&entering).await;
    break_it(&place).await;

    let ended = ended(child).await;
    assert_eq!(ended.code(), 76, "{ended:?}");
    assert!(!told.exists(), "{ended:?}");
}

/// As an agent of a password manager, which is asked again when the credentials have expired.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_program_for_the_credentials_leaves_is_left_alone() {
    let place = Place::new().await;
    let (ready, agents, program) = (file("agent-ready"), file("agents"), file("agent-program"));
    let credentials =
        r#"{"Version":1,"AccessKeyId":"local","SecretAccessKey":"local","Expiration":"2020-01-01T00:00:00Z"}"#;
    let script =
        format!("setsid sleep 1000 > /dev/null 2>&1 & echo $! >> {}; echo '{credentials}'\n", agents.display());
    std::fs::write(&program, script).unwrap();
    let configuration = file("agent-configuration");
    std::fs::write(&configuration, format!("[default]\ncredential_process = sh {}\n", program.display())).unwrap();
    let mut command =
        run(&place, &["--lease", "6s", "--kill-after", "1s"], &format!("echo $$ > {}; sleep 1000", ready.display()));
    command.env("AWS_CONFIG_FILE", &configuration).env_remove("AWS_ACCESS_KEY_ID").env_remove("AWS_SECRET_ACCESS_KEY");
    let child = spawned(command);
    written(&ready).await;
    let before = written(&agents).await.len();
    until("the program is asked again", || std::fs::read_to_string(&agents).unwrap().len() > before + 1).await;
    break_it(&place).await;

    let ended = ended(child).await;
    let agents = std::fs::read_to_string(&agents).unwrap();
    let are_left: Vec<_> = agents.lines().map(|pid| (is_running(pid), kill(pid)).0).collect();
    assert_eq!(ended.code(), 76, "{ended:?}");
    assert!(!are_left.contains(&false), "{are_left:?}");
}

/// As GNU `timeout`. The program for the credentials and what the command leaves end as children of the same process.
#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_program_for_the_credentials_that_leads_a_group_of_its_own_is_seen() {
    let place = Place::new().await;
    let [configuration, program, asked] = ["group-configuration", "group-program", "group-asked"].map(file);
    let credentials =
        r#"{"Version":1,"AccessKeyId":"local","SecretAccessKey":"local","Expiration":"2020-01-01T00:00:00Z"}"#;
    std::fs::write(&program, format!("echo asked >> {}; echo '{credentials}'\n", asked.display())).unwrap();
    let process = format!("exec setsid sh {}", program.display());
    std::fs::write(&configuration, format!("[default]\ncredential_process = {process}\n")).unwrap();
    let mut all = tokio::task::JoinSet::new();
    for number in 0..8 {
        let mut command = place.command();
        command.args(["run", &format!("k{number}"), "--lease", "9s", "--kill-after", "1s", "--", "sleep", "10"]);
        command.env("AWS_CONFIG_FILE", &configuration);
        command.env_remove("AWS_ACCESS_KEY_ID").env_remove("AWS_SECRET_ACCESS_KEY");
        all.spawn(ended(spawned(command)));
    }

    for ended in all.join_all().await {
        assert!(ended.code() == 0 && ended.err.is_empty(), "{ended:?}");
    }
    assert!(beats(&asked) > 3 * 8, "each of them was renewed, and released");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_run_beneath_this_one_leaves_belongs_to_this_one() {
    let place = Place::new().await;
    let worker = Worker::new("beneath", "(setsid sh -c 'WORK' > /dev/null 2>&1 &); sleep 0.5\n", "");
    let script = file("beneath-script");
    std::fs::write(&script, &worker.script).unwrap();
    let lambda_lock = env!("CARGO_BIN_EXE_lambda-lock");
    let script = format!("{lambda_lock} run inner --lease 1h -- sh {}; sleep 1000", script.display());
    let child = spawned(run(&place, &["--lease", "6s", "--kill-after", "1s"], &script));
    let pid = written(&worker.ready).await;
    let by_this_one = format!(" {} ", child.id().unwrap());
    until("it is adopted", || {
        let stat = stat(&pid);
        stat.rsplit(')').next().unwrap()[2..].starts_with(&by_this_one)
    })
    .await;
    break_it(&place).await;
    let ended = ended(child).await;
    let is_left = is_running(&pid);
    kill(&pid);
    assert_eq!(ended.code(), 76, "{ended:?}");
    assert!(!is_left, "{ended:?}");
}

/// Each of them starts the next one and ends: who looks at one of them may see none.
#[tokio::test(flavor = "multi_thread")]
async fn a_chain_of_short_processes_is_gone_before_the_next_holder_comes() {
    let place = Place::new().await;
    let [ready, work, program] = ["chain-ready", "chain-work", "chain-program"].map(file);
    let link =
        format!("echo x >> {}; sleep 0.005; setsid sh {} > /dev/null 2>&1 &\n", work.display(), program.display());
    let script = format!(
        "trap '' TERM; setsid sh {} > /dev/null 2>&1 & trap 'exit 0' TERM; echo $$ > {}; sleep 1000 & wait",
        program.display(),
        ready.display()
    );
    for round in 0..3 {
        for path in [&ready, &work] {
            let _ = std::fs::remove_file(path);
        }
        std::fs::write(&program, &link).unwrap();
        let child = spawned(run(&place, &["--lease", "3s", "--kill-after", "500ms"], &script));
        written(&ready).await;
        until("the chain works", || beats(&work) > 5).await;
        break_it(&place).await;
        let ended = ended(child).await;
        let done = beats(&work);
        sleep(millis(500)).await;
        let goes_on = beats(&work) > done;
        // It has no link that it could start.
        std::fs::write(&program, "").unwrap();
        assert!(!goes_on, "{round}: {ended:?}");
        assert_eq!(ended.code(), 76, "{round}: {ended:?}");
    }
}

/// A look at all processes takes as long as there are many, and each end of one calls for a look. The lock is renewed meanwhile,
/// and the command ends in time.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "it loads the machine, and `.ci/nightly` runs it"]
async fn a_command_that_starts_hundreds_of_processes_a_second_is_renewed_and_gone_before_the_next_holder_comes() {
    let idle = || tokio::process::Command::new("sleep").arg("1000").kill_on_drop(true).spawn().unwrap();
    let _idle: Vec<_> = (0..1_500).map(|_| idle()).collect();
    let place = Place::new().await;
    let proxy = behind(&place).await;
    let [ready, work, go_on] = ["storm-ready", "storm-work", "storm-go-on"].map(file);
    std::fs::write(&go_on, "").unwrap();
    let one = format!("trap \"\" TERM; echo x >> {}; sleep 0.1", work.display());
    let loops = format!("while [ -e {} ]; do (setsid sh -c '{one}' &); done", go_on.display());
    let script = format!("trap '' TERM; for i in 1 2 3; do {loops} & done; echo $$ > {}; wait", ready.display());
    let mut command = run(&place, &["--lease", "6s"], &script);
    command.env("AWS_ENDPOINT_URL_DYNAMODB", proxy.endpoint());
    let mut child = spawned(command);
    written(&ready).await;
    // More than two leases.
    sleep(millis(14_000)).await;
    let early = child.try_wait().unwrap();
    proxy.decide(|_| Fate::RequestLost);
    let next = next_of(&place).await;
    let done = beats(&work);
    sleep(millis(1_000)).await;
    let worked = beats(&work) - done;
    std::fs::remove_file(&go_on).unwrap();

    let ended = ended(child).await;
    assert!(early.is_none(), "it was not renewed: {ended:?}");
    assert!(done > 1_000, "{done} are no hundreds a second");
    assert_eq!(worked, 0, "it worked beside the next holder: {ended:?}");
    assert_eq!(ended.code(), 76, "{ended:?}");
    next.release().await.unwrap();
}
