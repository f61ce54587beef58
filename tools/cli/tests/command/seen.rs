//! What a command shows before it asks is what it acts on, and what it tells is what is known.

use crate::events::{Watcher, events, with_stream};
use crate::hostile::{behind, through, until_come};
use crate::place::{Ended, LEASE, Place, TABLE, end, end_of};
use crate::saying::{failed, terminal};
use aws_sdk_dynamodb::types::AttributeValue;
use lambda_lock::ReleaseOutcome;
use lambda_lock::once::{OnceState, Started};
use lambda_lock_local::authorize::Fate;
use lambda_lock_testkit::{peeked, soon};
use lambda_lock_timeline::Change;
use std::io::Write;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::process::Command;
use tokio::time::sleep;

/// Runs a command at a terminal, and says yes after this has happened meanwhile. Its errors begin with what it has shown.
async fn yes_after(place: &Place, arguments: &[&str], meanwhile: impl Future<Output = ()>) -> Ended {
    let mut command = place.command();
    command.args(arguments);
    yes_to(command, meanwhile).await
}

async fn yes_to(mut command: Command, meanwhile: impl Future<Output = ()>) -> Ended {
    let (mut terminal, input) = terminal();
    command.stdin(Stdio::from(input)).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stderr = child.stderr.take().unwrap();
    let mut shown = Vec::new();
    while !String::from_utf8_lossy(&shown).contains("Continue?") {
        let read = soon("the command asks", stderr.read_buf(&mut shown)).await.unwrap();
        assert!(read > 0, "{}", String::from_utf8_lossy(&shown));
    }
    meanwhile.await;
    terminal.write_all(b"y\n").unwrap();
    soon("the command ends", stderr.read_to_end(&mut shown)).await.unwrap();
    Ended { err: String::from_utf8(shown).unwrap(), ..end_of(child).await }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thaw_and_a_freeze_leave_a_freeze_alone_that_was_not_shown() {
    let place = Place::new().await;
    let locks = place.locks("test");
    locks.operator().freeze("k", "first").await.unwrap();
    let another = async {
        locks.operator().thaw("k").await.unwrap();
        locks.operator().freeze("k", "another").await.unwrap();
    };
    let thawed = yes_after(&place, &["thaw", "k"], another).await;
    assert!(thawed.code() == 76 && thawed.err.contains("\"first\""), "{thawed:?}");
    let frozen = async || locks.operator().peek("k").await.unwrap().unwrap().freeze_reason;
    assert_eq!(frozen().await.as_deref(), Some("another"));
    // The same reason is another freeze too.
    let same = async {
        locks.operator().freeze("k", "another").await.unwrap();
    };
    assert_eq!(yes_after(&place, &["thaw", "k"], same).await.code(), 76);

    place.held("free", "a").await.release().await.unwrap();
    for (key, meanwhile) in [("free", false), ("new", true)] {
        let frozen_meanwhile = async {
            if meanwhile {
                place.held(key, "a").await.release().await.unwrap();
            } else {
                locks.operator().freeze(key, "theirs").await.unwrap();
            }
        };
        let refused = yes_after(&place, &["freeze", key, "--reason", "mine"], frozen_meanwhile).await;
        assert_eq!(refused.code(), 76, "{key}: {refused:?}");
        let reason = locks.operator().peek(key).await.unwrap().unwrap().freeze_reason;
        assert_eq!(reason.as_deref(), (!meanwhile).then_some("theirs"), "{key}");
    }
    let renamed = place.run(&["freeze", "free", "--reason", "mine", "--yes"]).await;
    assert!(renamed.status.success() && renamed.err.contains("frozen already") && renamed.err.contains("theirs"));
    let shown = yes_after(&place, &["thaw", "free"], async {}).await;
    assert!(shown.status.success() && shown.err.contains("\"mine\""), "{shown:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_break_leaves_a_lock_alone_that_changed_since_it_was_shown() {
    let place = Place::new().await;
    let locks = place.locks("test");
    for another in ["freezes", "breaks", "breaks for the same reason", "releases", "renews"] {
        let mut lock = place.held(another, "a").await;
        let seen = peeked(&locks, another).await;
        let reason = if another.ends_with("same reason") { "mine" } else { "theirs" };
        let meanwhile = async {
            match another {
                "freezes" => locks.operator().freeze(another, "let it finish").await.unwrap(),
                "releases" => assert_eq!(lock.release().await.unwrap(), ReleaseOutcome::Released),
                "renews" => lock.checkpoint().await.unwrap(),
                _ => assert_eq!(
                    locks.operator().break_lock(another, &seen, reason).await.unwrap(),
                    ReleaseOutcome::Released
                ),
            }
        };
        let refused =
            yes_after(&place, &["break", another, "--seen", &seen.version, "--reason", "mine"], meanwhile).await;
        assert!(refused.code() == 76 && refused.err.contains("was left alone"), "{another}: {refused:?}");
        let row = locks.operator().peek(another).await.unwrap().unwrap();
        assert_eq!(row.released, !["freezes", "renews"].contains(&another), "{another}");
        assert_eq!(row.break_reason.as_deref(), another.starts_with("breaks").then_some(reason), "{another}");
        if row.released {
            // Nobody is asked, because nothing is left to break.
            let free = place.run(&["break", another, "--seen", &seen.version, "--reason", "mine"]).await;
            assert!(free.out.contains("is free"), "{free:?}");
        }
    }
    let seen = place.held("k", "a").await.save().version().to_owned();
    assert!(yes_after(&place, &["break", "k", "--seen", &seen, "--reason", "mine"], async {}).await.status.success());
    assert_eq!(locks.operator().peek("k").await.unwrap().unwrap().break_reason.as_deref(), Some("mine"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_break_of_an_earlier_grant_is_refused_also_where_the_later_one_was_broken_for_the_same_reason() {
    let place = Place::new().await;
    let earlier = place.held("k", "a").await.save();
    place.run(&["break", "k", "--seen", earlier.version(), "--reason", "stuck", "--yes"]).await.done();
    let later = place.held("k", "b").await.save();
    for _ in 0..2 {
        place.run(&["break", "k", "--seen", later.version(), "--reason", "stuck", "--yes"]).await.done();
    }
    for asked in [&["--yes"][..], &[]] {
        let stale = [&["break", "k", "--seen", earlier.version(), "--reason", "stuck"], asked].concat();
        let refused = place.run(&stale).await;
        assert!(refused.code() == 76 && refused.err.contains("was left alone"), "{asked:?}: {refused:?}");
    }
}

/// Between the last look and the break, which changes nothing then.
#[tokio::test(flavor = "multi_thread")]
async fn a_break_that_another_was_faster_with_is_not_said_to_be_done() {
    let place = Place::new().await;
    let proxy = behind(&place).await;
    let lock = place.held("k", "a").await;
    let seen = place.locks("test").operator().peek("k").await.unwrap().unwrap().version;
    let come = Arc::new(AtomicU32::new(0));
    let command = through(&place, &proxy, &["break", "k", "--seen", &seen, "--reason", "mine"]);
    let asked = async {
        let counted = Arc::clone(&come);
        proxy.decide(move |_| match counted.fetch_add(1, Ordering::Relaxed) {
            0 => Fate::AnsweredAfter(Duration::from_millis(700)),
            _ => Fate::Answered,
        });
    };
    let another = async {
        until_come(&come, 1).await;
        sleep(Duration::from_millis(200)).await;
        assert_eq!(lock.release().await.unwrap(), ReleaseOutcome::Released);
    };
    let (refused, ()) = tokio::join!(yes_to(command, asked), another);
    assert!(refused.code() == 76 && refused.err.contains("was left alone"), "{refused:?}");
    assert_eq!(place.locks("test").operator().peek("k").await.unwrap().unwrap().break_reason, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_that_changed_since_they_were_read_are_left_alone_and_said_to_be() {
    let place = Place::new().await;
    for key in ["a", "b"] {
        let _ = place.held(key, "test").await.save();
    }
    let meanwhile = async {
        let _ = place.locks("test").acquire("a").owner("test").reclaim_own().lease(LEASE).try_once().await.unwrap();
    };
    let raise = ["raise-tokens", "--above", "9000000000000", "--json"];
    let raised = yes_after(&place, &raise, meanwhile).await;
    assert_eq!(raised.out, "{\"leftAlone\":1,\"raised\":1,\"to\":9000000000000}\n", "{raised:?}");
    assert!(raised.code() == 76 && raised.err.contains("1 rows have another token"), "{raised:?}");
    let again = yes_after(&place, &raise, async {}).await;
    assert_eq!(again.done(), "{\"leftAlone\":0,\"raised\":1,\"to\":9000000000000}\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reset_leaves_a_failure_alone_that_was_not_shown() {
    let place = Place::new().await;
    let locks = place.locks("test");
    for (prefix, name) in [("", "order-9"), ("blue/", "order-10")] {
        let of = if prefix.is_empty() { locks.clone() } else { locks.prefixed(prefix).unwrap() };
        failed(&of, name).await;
        let typed = format!("{prefix}once/{name}");
        let reset = ["once-reset", &typed, "--reason", "r"];
        let meanwhile = async {
            of.operator().reset(name, "by another").await.unwrap();
            failed(&of, name).await;
        };
        let refused = yes_after(&place, &reset, meanwhile).await;
        assert!(refused.code() == 76 && refused.err.contains("the card was refused"), "{refused:?}");
        assert_eq!(of.once(name).status().await.unwrap().unwrap().state, OnceState::Failed);
        assert!(yes_after(&place, &reset, async {}).await.status.success());
        // Nothing is asked where there is nothing to do.
        assert_eq!(place.run(&["once-reset", &typed, "--reason", "another"]).await.code(), 76);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_release_of_a_lock_that_was_broken_says_that_it_was_lost() {
    let place = Place::new().await;
    for reason_before in [false, true] {
        if reason_before {
            let _ = place.held("k", "before").await.save();
            let locks = place.locks("test");
            locks.operator().break_lock("k", &peeked(&locks, "k").await, "stuck").await.unwrap();
        }
        let saved = place.run(&["acquire", "k", "--owner", "me"]).await.done();
        let locks = place.locks("test");
        locks.operator().break_lock("k", &peeked(&locks, "k").await, "stuck").await.unwrap();
        for _ in 0..2 {
            let released = place.run_with(&["release"], &saved).await;
            assert!(released.code() == 76 && released.err.contains("broken"), "{released:?}");
        }
    }
    // A release may be repeated, also of a lock that was broken before.
    let saved = place.run(&["acquire", "k"]).await.done();
    for _ in 0..2 {
        place.run_with(&["release"], &saved).await.done();
    }
}

fn told<const N: usize>(events: [(Change, &str); N]) -> Vec<(Change, String)> {
    events.map(|(change, holder)| (change, holder.to_owned())).into()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_break_for_the_same_reason_is_a_break_too() {
    let place = with_stream("NEW_AND_OLD_IMAGES").await;
    let mut watch = Watcher::start(&place, &["k"], &["--json"], false).await;
    for holder in ["a", "b"] {
        let _ = place.held("k", holder).await.save();
        watch.tells().await;
        let locks = place.locks("test");
        locks.operator().break_lock("k", &peeked(&locks, "k").await, "stuck").await.unwrap();
        watch.tells().await;
    }
    place.held("k", "c").await.release().await.unwrap();
    watch.tells().await;
    let mut all = vec![(Change::Granted, "a"), (Change::Broken, "a"), (Change::Granted, "b"), (Change::Broken, "b")];
    let printed = watch.ended().await.out;
    assert_eq!(events(&printed)[..4], told::<4>(all.clone().try_into().unwrap()));
    assert_eq!(events(&printed).last().unwrap(), &(Change::Released, "c".to_owned()));
    all.extend([(Change::Granted, "c"), (Change::Released, "c")]);
    assert_eq!(events(&place.run(&["history", "k", "--json"]).await.done()), told::<6>(all.try_into().unwrap()));
}

#[tokio::test(flavor = "multi_thread")]
async fn history_has_the_order_of_the_stream_and_not_that_of_clocks() {
    let place = with_stream("NEW_AND_OLD_IMAGES").await;
    place.held("k", "a").await.release().await.unwrap();
    let lock = place.held("k", "b").await.save();
    // As a holder writes whose clock is an hour behind.
    let (begin, stamp) = lock.version().rsplit_once('-').unwrap();
    let millis = u64::from_str_radix(&stamp[..12], 16).unwrap() - 3_600_000;
    let version = AttributeValue::S(format!("{begin}-{millis:012x}{}", &stamp[12..]));
    let item = place.local.client().get_item().table_name(TABLE).key("key", AttributeValue::S("k".to_owned()));
    let mut item = item.send().await.unwrap().item.unwrap();
    item.insert("recordVersionNumber".to_owned(), version);
    place.local.client().put_item().table_name(TABLE).set_item(Some(item)).send().await.unwrap();
    let story = [(Change::Granted, "a"), (Change::Released, "a"), (Change::Granted, "b"), (Change::Renewed, "b")];
    assert_eq!(events(&place.run(&["history", "k", "--json"]).await.done()), told(story));
}

/// A watch of `k` that looks once more, at its end, after all of this has happened.
async fn watched(place: &Place, happens: impl Future<Output = ()>) -> Vec<(Change, String)> {
    let arguments = ["--json", "--interval", "1h", "--for", "3s"];
    let mut command = place.command();
    let child = command.args(["watch", "k"]).args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    tokio::time::sleep(Duration::from_millis(1_000)).await;
    happens.await;
    events(&end_of(child.unwrap()).await.done())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_looks_at_its_end_and_tells_only_what_it_knows() {
    let place = Place::new().await;
    let locks = place.locks("test");
    let lock = place.held("k", "a").await;
    let seen = watched(&place, async {
        lock.release().await.unwrap();
        let _ = place.held("k", "b").await.save();
        locks.operator().freeze("k", "r").await.unwrap();
    });
    let story = [(Change::Held, "a"), (Change::Granted, "b"), (Change::Frozen, "b")];
    assert_eq!(seen.await, told(story), "nobody took anything over");
    // Broken, thawed, acquired and released: the last holder was not broken.
    let seen = watched(&place, async {
        locks.operator().break_lock("k", &peeked(&locks, "k").await, "stuck").await.unwrap();
        locks.operator().thaw("k").await.unwrap();
        place.held("k", "c").await.release().await.unwrap();
    });
    let story = [(Change::Held, "b"), (Change::Frozen, "b"), (Change::Released, "c"), (Change::Thawed, "c")];
    assert_eq!(seen.await, told(story));
}

#[tokio::test(flavor = "multi_thread")]
async fn history_and_watch_tell_the_work_of_a_client_with_a_prefix() {
    let place = with_stream("NEW_AND_OLD_IMAGES").await;
    let blue = place.locks("test").prefixed("blue/").unwrap();
    let mut watches = Vec::new();
    for keys in [&["blue/once/order-9"][..], &[]] {
        watches.push(Watcher::start(&place, keys, &["--json"], false).await);
    }
    let work = blue.once("order-9").owner("a").lease(LEASE);
    let Started::Attempt(attempt) = work.start::<()>().await.unwrap() else { panic!("it has an outcome") };
    for watch in &mut watches {
        watch.tells().await;
    }
    attempt.fail(&"no").await.unwrap();
    for watch in &mut watches {
        watch.tells().await;
    }
    blue.operator().reset("order-9", "r").await.unwrap();
    for watch in &mut watches {
        watch.tells().await;
    }
    let story = told([(Change::Granted, "a"), (Change::Settled, "a"), (Change::Reset, "a")]);
    assert_eq!(events(&place.run(&["history", "blue/once/order-9", "--json"]).await.done()), story);
    for watch in watches {
        assert_eq!(events(&watch.ended().await.out), story);
    }
    // A lock with such a key that is deleted is no work.
    place.held("job/once/a-month", "b").await.release().await.unwrap();
    let key = AttributeValue::S("job/once/a-month".to_owned());
    place.local.client().delete_item().table_name(TABLE).key("key", key).send().await.unwrap();
    let deleted = place.run(&["history", "job/once/a-month", "--json"]).await.done();
    assert_eq!(events(&deleted).last().unwrap(), &(Change::Deleted, "b".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn no_name_of_a_holder_or_key_is_read_as_a_part_of_a_sentence() {
    let place = Place::new().await;
    let forged = "nobody. The next acquire gets it";
    let _ = place.held("sem/0", forged).await.save();
    let _ = place.held("k is free. j", "a").await.save();
    let version = place.locks("test").operator().peek("sem/0").await.unwrap().unwrap().version;
    let quoted = format!("held by \"{forged}\"");
    for arguments in [&["show", "sem/0"][..], &["show", "sem"], &["run", "sem/0", "--", "true"]] {
        let told = place.run(arguments).await;
        assert!(format!("{}{}", told.out, told.err).contains(&quoted), "{arguments:?}: {told:?}");
    }
    for arguments in
        [&["break", "sem/0", "--seen", &version, "--reason", "r"][..], &["freeze", "sem/0", "--reason", "r"]]
    {
        let told = end(place.command().args(arguments)).await;
        assert!(told.err.contains(&format!("holder \"{forged}\"")), "{arguments:?}: {told:?}");
    }
    let shown = place.run(&["show", "k is free. j"]).await.done();
    assert!(shown.starts_with("\"k is free. j\" is held by a.\n"), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_cannot_be_printed_is_not_held() {
    let place = Place::new().await;
    let shell = async |line: &str| end(crate::session::shell(&place, "sh").args(["-c", line])).await;
    for out in [">&-", ">/dev/full"] {
        let refused = shell(&format!("lambda-lock acquire k {out}")).await;
        assert!(refused.code() == 1 && refused.err.contains("cannot be printed"), "{out}: {refused:?}");
        assert!(place.is_free("k").await, "{out}");
    }
    shell("lambda-lock acquire k > held.json").await.done();
    let emptied = shell("lambda-lock renew held.json > held.json").await;
    assert!(emptied.code() == 2 && emptied.err.contains("held.json is empty"), "{emptied:?}");
    // Whoever wants the lock for its lease alone says so.
    shell("lambda-lock acquire other > /dev/null").await.done();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_done_and_cannot_be_printed_is_said_to_be_done() {
    let place = Place::new().await;
    failed(&place.locks("test"), "order-9").await;
    let saved = place.run(&["acquire", "k"]).await.done();
    let seen = place.held("broken", "a").await.save().version().to_owned();
    let shell = async |line: &str| end(crate::session::shell(&place, "sh").args(["-c", line])).await;
    for (line, done) in [
        ("freeze k --reason r --yes".to_owned(), "the lock was frozen"),
        ("thaw k --yes --json".to_owned(), "the lock was thawed"),
        (format!("break broken --seen {seen} --reason r --yes"), "the lock was broken"),
        ("once-reset order-9 --reason r --yes".to_owned(), "the work was allowed again"),
        ("raise-tokens --yes".to_owned(), "the tokens were raised"),
    ] {
        let ended = shell(&format!("lambda-lock {line} > /dev/full")).await;
        assert!(ended.code() == 1 && ended.err.contains(done), "{line}: {ended:?}");
    }
    let mut release = crate::session::shell(&place, "sh");
    let release = release.args(["-c", "echo \"$0\" | lambda-lock release --json > /dev/full", &saved]);
    let ended = end(release).await;
    assert!(ended.code() != 0, "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_break_of_idempotent_work_says_what_follows() {
    let place = Place::new().await;
    let locks = place.locks("test");
    failed(&locks, "order-9").await;
    for yes in [&[][..], &["--yes"]] {
        let arguments = [&["break", "once/order-9", "--seen", "ll1-x", "--reason", "r"], yes].concat();
        let refused = place.run(&arguments).await;
        assert!(refused.code() == 76 && refused.err.contains("has an outcome"), "{refused:?}");
    }
    let Started::Attempt(attempt) = locks.once("order-10").owner("a").lease(LEASE).start::<()>().await.unwrap() else {
        panic!("it has an outcome")
    };
    let seen = locks.operator().peek("once/order-10").await.unwrap().unwrap().version;
    let broken = place.run(&["break", "once/order-10", "--seen", &seen, "--reason", "r", "--yes"]).await.done();
    assert!(broken.contains("The next call does the work again."), "{broken}");
    drop(attempt);
}
