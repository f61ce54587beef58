//! What each command prints, compared with the files in `tests/golden`, one for each command. `SNAPSHOTS=overwrite`
//! writes them anew.

use crate::place::{Ended, LEASE, Place, TABLE, end};
use aws_sdk_dynamodb::types::AttributeValue;
use lambda_lock::once::Started;
use lambda_lock::{Budget, Error, Lock};
use lambda_lock_testkit::soon_so;
use regex::Regex;
use snapbox::{Assert, Data, Redactions};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use std::{env, fs};
use tokio::process::Command;
use tokio::task::JoinHandle;

/// What differs from run to run.
pub(crate) fn redactions() -> Redactions {
    let mut redactions = Redactions::new();
    for (name, pattern) in [
        ("[OFFSET]", r"-?[0-9]\.[0-9] s\b"),
        ("[RANDOM]", r"\b[0-9a-f]{16}\b"),
        ("[TIME]", r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}Z"),
        ("[VERSION]", r"ll1-[0-9A-Za-z-]+"),
        ("[MILLIS]", r"\b[0-9]{13}\b"),
        ("[AGO]", r"[0-9]+s ago *"),
        ("[LEFT]", r"(59m( [0-9]+s)?|1h( [0-9]s)?|9m [0-9]+s|10m( [0-9]s)?)\b *"),
    ] {
        redactions.insert(name, Regex::new(pattern).unwrap()).unwrap();
    }
    redactions
}

/// The commands of two words. The golden file of a test is named after the command with which its name begins.
const OF_TWO_WORDS: [&str; 2] = ["once-reset", "raise-tokens"];

/// Tests of one command may write its file at the same time.
static WRITING: Mutex<()> = Mutex::new(());

/// What a golden file has for each test, below a line with its name.
type Sections = BTreeMap<String, String>;

fn sections(path: &Path) -> Sections {
    let mut sections = Sections::new();
    let mut name = "";
    let text = fs::read_to_string(path).unwrap_or_default();
    for line in text.split_inclusive('\n') {
        match line.strip_prefix("=== ") {
            Some(heading) => name = heading.trim_end(),
            None => sections.entry(name.to_owned()).or_default().push_str(line),
        }
    }
    sections
}

/// Compares the exit code, standard output and standard error of a command with what its golden file has below this name.
pub(crate) fn assert_golden(name: &str, ended: &Ended) {
    let code = ended.status.code().unwrap();
    let said = format!("exit code {code}\n--- standard output\n{}--- standard error\n{}", ended.out, ended.err);
    // Escapes are part of what is compared, but no editor should show colours.
    let said = redactions().redact(&said.replace('\u{1b}', "␛"));
    let command = OF_TWO_WORDS.into_iter().find(|command| name.starts_with(command));
    let command = command.unwrap_or(name.split('-').next().unwrap_or(name));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(command).with_extension("txt");
    if env::var_os("SNAPSHOTS").is_some_and(|what| what == "overwrite") {
        let _writing = WRITING.lock().unwrap_or_else(PoisonError::into_inner);
        let mut sections = sections(&path);
        sections.insert(name.to_owned(), said);
        let text: String = sections.iter().map(|(name, text)| format!("=== {name}\n{text}")).collect();
        fs::write(path, text).unwrap();
        return;
    }
    let mut sections = sections(&path);
    let golden = sections
        .remove(name)
        .unwrap_or_else(|| panic!("{} has no part {name}: SNAPSHOTS=overwrite writes it", path.display()));
    Assert::new().eq(Data::text(said).raw(), Data::text(golden).raw());
}

pub(crate) async fn golden(place: &Place, name: &str, arguments: &[&str]) {
    assert_golden(name, &place.run(arguments).await);
}

/// A command that prints as it does to a terminal with colours.
pub(crate) fn coloured(place: &Place, arguments: &[&str]) -> Command {
    let mut command = place.command();
    command.env("CLICOLOR_FORCE", "1").args(arguments);
    command
}

pub(crate) async fn golden_coloured(place: &Place, name: &str, arguments: &[&str]) {
    assert_golden(&format!("{name}-colours"), &end(&mut coloured(place, arguments)).await);
}

/// One lock in each state.
async fn with_all_states() -> Place {
    let place = Place::new().await;
    let locks = place.locks("test");
    let _ = place.held("customer-1", "host-a/17").await.save();
    let workflow = "arn:aws:states:eu-central-1:111122223333:execution:nightly:4711";
    let held = locks.acquire("job/nightly").owner("nightly/4711").workflow(workflow).lease(LEASE);
    let _ = held.attribute("shard", 5).try_once().await.unwrap().granted().unwrap().save();
    place.held("customer-2", "host-b/3").await.release().await.unwrap();
    let dead = locks.acquire("customer-3").owner("host-c/9").lease(Duration::from_secs(1)).try_once();
    let _ = dead.await.unwrap().granted().unwrap().save();
    let budget = Budget::lasting(Duration::from_secs(60));
    let once = locks.once("order-9").within(&budget).run(async |_| Ok::<_, Error>("paid".to_owned()));
    let _ = once.await.unwrap();
    let open = locks.once("order-10").owner("host-d/1").lease(LEASE).start::<()>().await.unwrap();
    std::mem::forget(open);
    // A hostile row: it would change the terminal.
    put(&place, [("key", "odd\u{1b}[2J"), ("ownerName", "host-e")]).await;
    // The Java client, which writes no end of its lease.
    let java = [("key", "java"), ("ownerName", "host-j"), ("leaseDuration", "20000"), ("recordVersionNumber", "5f0c")];
    put(&place, java).await;
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    place
}

async fn put<const N: usize>(place: &Place, attributes: [(&str, &str); N]) {
    let item = attributes.map(|(name, value)| (name.to_owned(), AttributeValue::S(value.to_owned())));
    place.local.client().put_item().table_name(TABLE).set_item(Some(item.into())).send().await.unwrap();
}

/// So that a lock is dead as soon as its lease has ended.
const NO_SKEW: [&str; 2] = ["--max-clock-skew-ms", "0"];

#[tokio::test(flavor = "multi_thread")]
async fn ls() {
    let place = with_all_states().await;
    for (name, more) in [
        ("ls", &[][..]),
        ("ls-json", &["--json"]),
        ("ls-state", &["--state", "dead", "--state", "invalid"]),
        ("ls-prefix", &["--prefix", "customer-"]),
        ("ls-owner", &["--owner", "host-a"]),
        ("ls-workflow", &["--workflow", "arn:aws:states:eu-central-1:111122223333:execution:nightly:4711"]),
        ("ls-limit", &["--limit", "1", "--prefix", "customer-"]),
        ("ls-nothing", &["--prefix", "none"]),
    ] {
        golden(&place, name, &[&["ls"], &NO_SKEW[..], more].concat()).await;
    }
    golden_coloured(&place, "ls", &[&["ls"], &NO_SKEW[..]].concat()).await;
    let mut without = coloured(&place, &["ls"]);
    without.env_remove("CLICOLOR_FORCE").env("NO_COLOR", "1");
    assert!(!end(&mut without).await.done().contains('\u{1b}'));
}

#[tokio::test(flavor = "multi_thread")]
async fn show() {
    let place = with_all_states().await;
    for (name, key) in [
        ("held", "customer-1"),
        ("released", "customer-2"),
        ("dead", "customer-3"),
        ("workflow", "job/nightly"),
        ("done", "once/order-9"),
        ("open", "once/order-10"),
        ("java", "java"),
        ("odd", "odd\u{1b}[2J"),
        ("none", "nobody"),
    ] {
        golden(&place, &format!("show-{name}"), &[&["show", key], &NO_SKEW[..]].concat()).await;
        golden(&place, &format!("show-{name}-json"), &[&["show", key, "--json"], &NO_SKEW[..]].concat()).await;
    }
    golden_coloured(&place, "show", &["show", "customer-1"]).await;
    golden_coloured(&place, "show-dead", &[&["show", "customer-3"], &NO_SKEW[..]].concat()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn show_tells_the_line() {
    let place = Place::new().await;
    let lock = place.held("customer-1", "host-a/17").await;
    let first = waiter(&place, "customer-1", 1).await;
    golden(&place, "show-line-of-one", &["show", "customer-1"]).await;
    let second = waiter(&place, "customer-1", 2).await;
    golden(&place, "show-line", &["show", "customer-1"]).await;
    golden(&place, "show-line-json", &["show", "customer-1", "--json"]).await;
    // An execution that sleeps in line has a row that is no lock.
    put(&place, [("key", "wake/customer-1/1"), ("taskToken", "t")]).await;
    golden(&place, "ls-line-json", &["ls", "--json"]).await;
    // Their tickets stay.
    first.abort();
    second.abort();
    lock.release().await.unwrap();
    golden(&place, "show-line-released", &["show", "customer-1"]).await;

    let locks = place.locks("test");
    let dead = locks.acquire("customer-2").owner("host-c/9").lease(Duration::from_secs(1)).try_once();
    let _ = dead.await.unwrap().granted().unwrap().save();
    waiter(&place, "customer-2", 1).await.abort();
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    golden(&place, "show-line-dead", &[&["show", "customer-2"], &NO_SKEW[..]].concat()).await;
}

/// A caller that waits in line, as soon as so many do.
async fn waiter(place: &Place, key: &'static str, waiting: u64) -> JoinHandle<Result<Lock, Error>> {
    let locks = place.locks("waiter");
    let budget = Budget::lasting(Duration::from_secs(60)).reserve(Duration::ZERO);
    let waiter = tokio::spawn(async move { locks.acquire(key).within(&budget).in_turn().await });
    let locks = place.locks("test");
    let in_line = async || locks.operator().peek(key).await.unwrap().unwrap().waiting >= waiting;
    soon_so(format!("{waiting} wait for {key}"), in_line).await;
    waiter
}

#[tokio::test(flavor = "multi_thread")]
async fn break_lock() {
    let place = Place::new().await;
    let mut lock = place.held("customer-1", "host-a/17").await;
    let seen = place.locks("test").operator().peek("customer-1").await.unwrap().unwrap().version;
    let because = ["--seen", &seen, "--reason", "host-a is gone"];
    golden(&place, "break-without-yes", &[&["break", "customer-1"], &because[..]].concat()).await;
    assert!(!place.is_free("customer-1").await);
    lock.checkpoint().await.unwrap();
    let yes = [&["break", "customer-1", "--yes"], &because[..]].concat();
    golden(&place, "break-renewed", &yes).await;
    lock.checkpoint().await.unwrap();
    let seen = place.locks("test").operator().peek("customer-1").await.unwrap().unwrap().version;
    let because = ["--seen", &seen, "--reason", "host-a is gone"];
    golden(&place, "break", &[&["break", "customer-1", "--yes"], &because[..]].concat()).await;
    assert!(lock.checkpoint().await.unwrap_err().is_lost());
    golden(&place, "show-broken", &["show", "customer-1"]).await;
    golden_coloured(&place, "break", &[&["break", "customer-1", "--yes"], &because[..]].concat()).await;
    golden(&place, "break-again-json", &[&["break", "customer-1", "--yes", "--json"], &because[..]].concat()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn acquire_renew_release() {
    let place = Place::new().await;
    let acquired = place.run(&["acquire", "customer-1", "--owner", "me", "--lease", "1h"]).await;
    assert_golden("acquire", &acquired);
    golden(&place, "acquire-held", &["acquire", "customer-1"]).await;
    golden_coloured(&place, "acquire-held", &["acquire", "customer-1"]).await;
    // JSON is for programs: it has no colours.
    golden_coloured(&place, "acquire", &["acquire", "customer-3", "--owner", "me", "--lease", "1h"]).await;
    let renewed = place.run_with(&["renew"], &acquired.out).await;
    assert_golden("renew", &renewed);
    assert_golden("release", &place.run_with(&["release"], &renewed.out).await);
    assert!(place.is_free("customer-1").await);
    let _next = place.held("customer-1", "next").await.save();
    assert_golden("release-lost", &place.run_with(&["release"], &renewed.out).await);
    assert_golden("renew-lost", &place.run_with(&["renew"], &renewed.out).await);
    assert_golden("renew-nonsense", &place.run_with(&["renew"], "{}").await);
    let acquired = place.run(&["acquire", "customer-2"]).await.done();
    assert_golden("release-json", &place.run_with(&["release", "--json"], &acquired).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_acquire_waits_for_a_release_and_for_the_end_of_a_lease() {
    let place = Place::new().await;
    let lock = place.held("customer-1", "holder").await;
    let waiting = async { place.run(&["acquire", "customer-1", "--wait", "30s"]).await };
    let releasing = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        lock.release().await.unwrap();
    };
    let (waited, ()) = tokio::join!(waiting, releasing);
    waited.done();
    // A Java client that died: what the tries see between them proves it.
    let java = [("key", "java"), ("ownerName", "host-j"), ("leaseDuration", "1500"), ("recordVersionNumber", "5f0c")];
    put(&place, java).await;
    place.run(&["acquire", "java", "--wait", "30s"]).await.done();
}

#[tokio::test(flavor = "multi_thread")]
async fn once_reset() {
    let place = Place::new().await;
    let locks = place.locks("test");
    let work = || async { locks.once("order-9").owner("host-a").lease(LEASE).start::<()>().await.unwrap() };
    let Started::Attempt(attempt) = work().await else { panic!("it has an outcome") };
    golden(&place, "once-reset-open", &["once-reset", "order-9", "--reason", "r", "--yes"]).await;
    attempt.fail(&"no").await.unwrap();
    golden(&place, "show-failed", &["show", "once/order-9"]).await;
    golden(&place, "once-reset-without-yes", &["once-reset", "order-9", "--reason", "r"]).await;
    golden(&place, "once-reset", &["once-reset", "order-9", "--reason", "the customer is there now", "--yes"]).await;
    golden(&place, "show-reset", &["show", "once/order-9"]).await;
    golden_coloured(&place, "once-reset", &["once-reset", "order-9", "--reason", "r", "--yes"]).await;
    let Started::Attempt(attempt) = work().await else { panic!("it has an outcome") };
    attempt.fail(&"no").await.unwrap();
    golden(&place, "once-reset-json", &["once-reset", "once/order-9", "--reason", "r", "--yes", "--json"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn run() {
    let place = Place::new().await;
    golden(&place, "run", &["run", "free", "--", "echo", "ran"]).await;
    golden(&place, "run-not-there", &["run", "free", "--", "/no-such-program"]).await;
    golden_coloured(&place, "run-not-there", &["run", "free", "--", "/no-such-program"]).await;
    let _ = place.held("customer-1", "host-a/17").await.save();
    golden(&place, "run-held", &["run", "customer-1", "--", "echo", "ran"]).await;
    golden_coloured(&place, "run-held", &["run", "customer-1", "--", "echo", "ran"]).await;
    let gone = "lambda-lock break free --seen $(lambda-lock show free --json | grep -o 'll1-[^\"]*') --reason r --yes; sleep 20";
    let mut lost = crate::session::shell(&place, "sh");
    let lost = lost.args(["-c", "exec lambda-lock run free --lease 9s --kill-after 3s -- sh -c \"$0\"", gone]);
    assert_golden("run-lost", &end(lost).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn timeline() {
    let place = Place::new().await;
    let docs = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    let record = docs("demo.jsonl");
    golden(&place, "timeline", &["timeline", record.to_str().unwrap()]).await;
    golden_coloured(&place, "timeline", &["timeline", record.to_str().unwrap()]).await;
    let picture = place.run(&["timeline", "--svg", record.to_str().unwrap()]).await.done();
    assert_eq!(picture, std::fs::read_to_string(docs("demo.svg")).unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn asl() {
    let place = Place::new().await;
    golden(&place, "asl-policy", &["asl", "--policy", "customer-*"]).await;
    golden(&place, "asl-wrong", &["asl", "--lease", "-1"]).await;
    let states = place.run(&["asl"]).await.done();
    assert_eq!(end(&mut coloured(&place, &["asl"])).await.done(), states);
    let states: serde_json::Value = serde_json::from_str(&states).unwrap();
    let states = &states["States"];
    assert!(states["Lock"]["Type"] == "Task" && states["Unlock"]["Type"] == "Task", "{states}");
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_arguments_and_tables() {
    let place = Place::new().await;
    golden(&place, "error-table", &["ls", "--table", "nowhere"]).await;
    golden(&place, "error-lease", &["acquire", "k", "--lease", "5"]).await;
    golden(&place, "error-key", &["show", ""]).await;
    golden(&place, "error-read-units", &["ls", "--read-units", "NaN"]).await;
    for units in ["nan", "-nan", "inf", "-inf", "1e999", "-1", "0", "-0.0", "many"] {
        let refused = place.run(&["ls", &format!("--read-units={units}")]).await;
        assert_eq!(refused.code(), 2, "{units}: {refused:?}");
        assert!(refused.err.contains("give a finite number above zero, such as 5000"), "{units}: {refused:?}");
    }
    let negative = place.run(&["ls", "--read-units", "-1"]).await;
    assert!(negative.err.contains("give a finite number above zero"), "{negative:?}");
    place.run(&["ls", "--read-units", "0.5"]).await.done();
    let mut nowhere = place.command();
    nowhere.env_remove("AWS_REGION").arg("ls");
    assert_golden("error-region", &end(&mut nowhere).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn help_completions_and_the_man_page() {
    let place = Place::new().await;
    for command in [
        "ls",
        "show",
        "break",
        "acquire",
        "renew",
        "release",
        "run",
        "watch",
        "history",
        "timeline",
        "doctor",
        "once-reset",
        "raise-tokens",
        "asl",
    ] {
        golden(&place, &format!("help-{command}"), &[command, "--help"]).await;
    }
    golden(&place, "help", &["--help"]).await;
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        assert!(place.run(&["completions", shell]).await.done().contains("max-clock-skew-ms"), "{shell}");
    }
    golden(&place, "man", &["man"]).await;
    golden_coloured(&place, "help", &["--help"]).await;
    // As a user of bash gets it.
    let complete = "source <(lambda-lock completions bash); COMP_WORDS=(lambda-lock sh); COMP_CWORD=1
        complete=$(complete -p lambda-lock | sed 's/.*-F \\([^ ]*\\).*/\\1/'); $complete lambda-lock sh lambda-lock
        echo ${COMPREPLY[@]}";
    let completed = end(crate::session::shell(&place, "bash").args(["-c", complete])).await;
    assert_eq!(completed.done(), "show\n");
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("man");
    std::fs::create_dir_all(&directory).unwrap();
    place.run(&["man", directory.to_str().unwrap()]).await.done();
    assert!(directory.join("lambda-lock-break.1").exists());
}
