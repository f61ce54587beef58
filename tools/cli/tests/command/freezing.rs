//! `freeze`, `thaw`, and what the other commands say of a frozen lock.

use crate::golden::{assert_golden, coloured, golden};
use crate::place::{LEASE, Place, end};
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn freeze_and_thaw() {
    let place = Place::new().await;
    let mut lock = place.held("customer-1", "host-a/17").await;
    let why = ["--reason", "a migration, ticket 4711"];
    golden(&place, "freeze-without-yes", &[&["freeze", "customer-1"], &why[..]].concat()).await;
    golden(&place, "freeze", &[&["freeze", "customer-1", "--yes"], &why[..]].concat()).await;
    let colours = &[&["freeze", "customer-1", "--yes"], &why[..]].concat();
    assert_golden("freeze-colours", &end(&mut coloured(&place, colours)).await);
    golden(&place, "freeze-json", &[&["freeze", "customer-2", "--yes", "--json"], &why[..]].concat()).await;

    golden(&place, "ls-frozen", &["ls", "--frozen"]).await;
    golden(&place, "ls-frozen-json", &["ls", "--frozen", "--json"]).await;
    golden(&place, "show-frozen-held", &["show", "customer-1"]).await;
    golden(&place, "show-frozen", &["show", "customer-2"]).await;
    golden(&place, "show-frozen-json", &["show", "customer-2", "--json"]).await;
    assert_golden("show-frozen-colours", &end(&mut coloured(&place, &["show", "customer-2"])).await);
    golden(&place, "acquire-frozen", &["acquire", "customer-2"]).await;
    golden(&place, "run-frozen", &["run", "customer-2", "--", "echo", "ran"]).await;
    lock.checkpoint().await.unwrap();
    lock.release().await.unwrap();

    golden(&place, "thaw-without-yes", &["thaw", "customer-1"]).await;
    golden(&place, "thaw", &["thaw", "customer-1", "--yes"]).await;
    golden(&place, "thaw-again", &["thaw", "customer-1", "--yes"]).await;
    golden(&place, "thaw-json", &["thaw", "customer-2", "--yes", "--json"]).await;
    golden(&place, "freeze-work", &[&["freeze", "once/order-9", "--yes"], &why[..]].concat()).await;
    for command in ["freeze", "thaw"] {
        golden(&place, &format!("help-{command}"), &[command, "--help"]).await;
    }
    assert_eq!(place.run(&["run", "customer-1", "--", "echo", "ran"]).await.done(), "ran\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_says_that_a_frozen_lock_is_free() {
    let place = Place::new().await;
    let seen = place.held("sem/1", "host-a/17").await.save().version().to_owned();
    for key in ["sem/0", "sem/1"] {
        place.run(&["freeze", key, "--yes", "--reason", "a migration"]).await.done();
    }
    golden(&place, "show-semaphore-frozen", &["show", "sem"]).await;
    let broken = ["break", "sem/1", "--seen", &seen, "--reason", "stuck"];
    golden(&place, "break-frozen-without-yes", &broken).await;
    golden(&place, "break-frozen", &[&broken[..], &["--yes"]].concat()).await;
    golden(&place, "break-frozen-json", &[&broken[..], &["--yes", "--json"]].concat()).await;
    assert_eq!(place.run(&["run", "sem/1", "--", "echo", "ran"]).await.code(), 75);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_freeze_makes_no_row_where_a_record_of_work_belongs() {
    let place = Place::new().await;
    let why = ["--reason", "r"];
    golden(&place, "freeze-no-row", &[&["freeze", "customer-1"], &why[..]].concat()).await;
    let work = |name: &'static str, yes: &[&'static str]| [&["freeze", name], yes, &why[..]].concat();
    golden(&place, "freeze-work-of-prefix", &work("blue/once/order-9", &["--yes"])).await;
    for (key, yes) in [("blue/once/order-9", &[][..]), ("a/b/once/order-9/c", &["--yes"])] {
        let refused = place.run(&work(key, yes)).await;
        assert!(refused.code() == 2 && refused.err.contains("idempotent work"), "{key}: {refused:?}");
        assert!(place.locks("test").operator().peek(key).await.unwrap().is_none(), "{key}");
    }
    // With its row, a key is what its row says.
    let blue = place.locks("test").prefixed("blue/").unwrap();
    let work_begun = blue.once("order-9").owner("host-d/1").lease(LEASE).start::<()>().await.unwrap();
    assert_eq!(place.run(&work("blue/once/order-9", &["--yes"])).await.code(), 78);
    drop(work_begun);
    place.held("job/once/a-month", "host-a/17").await.release().await.unwrap();
    place.run(&work("job/once/a-month", &["--yes"])).await.done();
    // The last part of a key is no namespace.
    place.run(&work("job/once", &["--yes"])).await.done();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_acquire_waits_until_the_lock_is_thawed() {
    let place = Place::new().await;
    place.run(&["freeze", "customer-1", "--reason", "r", "--yes"]).await.done();
    let waiting = async { place.run(&["run", "customer-1", "--wait", "30s", "--", "echo", "ran"]).await };
    let thawing = async {
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        place.run(&["thaw", "customer-1", "--yes"]).await.done();
    };
    let (waited, ()) = tokio::join!(waiting, thawing);
    assert_eq!(waited.done(), "ran\n");
}
