//! Acquiring a lock that is free, held, contended for, or held by a dead holder.

use super::{Scene, is_by};
use crate::plays::{lease, waiting};
use crate::stage::TABLE;
use crate::subject::Acquire;
use anyhow::{Context, ensure};
use aws_sdk_dynamodb::types::AttributeValue;
use lambda_lock_local::authorize::Fate;
use std::time::{Duration, Instant, SystemTime};
use tokio::time::sleep;

pub(super) async fn a_free_lock_takes_one_request_to_acquire_and_one_to_release(
    scene: &Scene<'_>,
) -> anyhow::Result<()> {
    let Scene { stage, subject, key, .. } = scene;
    let grant = subject.granted(lease(key, 20_000)).await?;
    ensure!(stage.take_sent() == ["UpdateItem"]);
    ensure!(is_by(&grant.owner, "the subject"), "{grant:?}");
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_millis() as u64;
    ensure!(grant.lease_ends_at.abs_diff(now + 20_000) < 2_000, "{grant:?} at {now}");
    ensure!(subject.release(&grant).await? == "released");
    ensure!(stage.take_sent() == ["UpdateItem"]);
    Ok(())
}

pub(super) async fn a_lock_held_by_a_native_holder_is_refused_and_says_by_whom_and_until_when(
    scene: &Scene<'_>,
) -> anyhow::Result<()> {
    let Scene { stage, subject, native, key, .. } = scene;
    let grant = native.granted(lease(key, 20_000)).await?;
    let held = subject.refused(lease(key, 20_000)).await?;
    ensure!(stage.take_sent() == ["UpdateItem"], "a refused try is one request");
    ensure!(is_by(&held.holder, "the native") && held.lease_ends_at == Some(grant.lease_ends_at), "{held:?}");
    ensure!(held.retry_after > 15_000 && held.retry_after <= 22_100, "{held:?}");
    native.release(&grant).await?;
    Ok(())
}

pub(super) async fn a_native_contender_is_refused_while_the_subject_holds(scene: &Scene<'_>) -> anyhow::Result<()> {
    let Scene { subject, native, key, .. } = scene;
    let grant = subject.granted(lease(key, 20_000)).await?;
    let held = native.refused(lease(key, 20_000)).await?;
    ensure!(is_by(&held.holder, "the subject") && held.lease_ends_at == Some(grant.lease_ends_at), "{held:?}");
    subject.release(&grant).await?;
    let next = native.granted(lease(key, 20_000)).await?;
    ensure!(next.fencing_token > grant.fencing_token);
    native.release(&next).await?;
    Ok(())
}

pub(super) async fn a_waiter_gets_the_lock_soon_after_a_native_holder_released_it(
    scene: &Scene<'_>,
) -> anyhow::Result<()> {
    let Scene { subject, native, key, .. } = scene;
    let holder = native.granted(lease(key, 20_000)).await?;
    let started = Instant::now();
    let release = async {
        sleep(Duration::from_millis(500)).await;
        native.release(&holder).await
    };
    let (waited, released) = tokio::join!(subject.acquire(waiting(key, 10_000, 5_000)), release);
    let (grant, took) = (waited?, started.elapsed());
    ensure!(released? == "released");
    ensure!(took >= Duration::from_millis(500) && took < Duration::from_millis(2_000), "took {took:?}");
    ensure!(grant.fencing_token > holder.fencing_token);
    subject.release(&grant).await?;
    Ok(())
}

pub(super) async fn waiting_ends_within_the_budget_and_says_who_holds(scene: &Scene<'_>) -> anyhow::Result<()> {
    let Scene { subject, native, key, .. } = scene;
    let holder = native.granted(lease(key, 20_000)).await?;
    let started = Instant::now();
    let failure = subject.fails("held", crate::Ask::Acquire(waiting(key, 600, 5_000))).await?;
    let took = started.elapsed();
    ensure!(took >= Duration::from_millis(550) && took < Duration::from_millis(2_000), "took {took:?}");
    let holds = failure.held.context("the error does not name the holder")?;
    ensure!(holds["holder"].as_str().is_some_and(|holder| is_by(holder, "the native")), "{holds}");
    native.release(&holder).await?;
    Ok(())
}

/// Increments a counter in another row with a read and a write, so that two holders at a time lose an increment.
async fn increment(scene: &Scene<'_>) -> anyhow::Result<()> {
    let (dynamodb, counter) = (scene.stage.dynamodb(), AttributeValue::S(format!("{} counter", scene.key)));
    let row = dynamodb.get_item().table_name(TABLE).key("key", counter.clone()).consistent_read(true).send().await?;
    let count = count_in(row.item)?;
    // Without a lock, this pause makes sure that an increment is lost.
    sleep(Duration::from_millis(3)).await;
    let put = dynamodb.put_item().table_name(TABLE).item("key", counter);
    put.item("n", AttributeValue::N((count + 1).to_string())).send().await?;
    Ok(())
}

fn count_in(row: Option<std::collections::HashMap<String, AttributeValue>>) -> anyhow::Result<u64> {
    let Some(row) = row else { return Ok(0) };
    let number = row.get("n").and_then(|n| n.as_n().ok()).context("the counter has no number")?;
    Ok(number.parse()?)
}

/// Both acquire, increment and release `rounds` times, and no increment is lost.
async fn take_turns(scene: &Scene<'_>, rounds: usize, lease: u64) -> anyhow::Result<()> {
    let turns = async |player: &crate::plays::Player<'_>| -> anyhow::Result<Vec<u64>> {
        let mut tokens = Vec::new();
        for _ in 0..rounds {
            let grant = player.acquire(waiting(scene.key, 30_000, lease)).await?;
            increment(scene).await?;
            tokens.push(grant.fencing_token);
            player.release(&grant).await?;
        }
        Ok(tokens)
    };
    let (ours, theirs) = tokio::join!(turns(&scene.subject), turns(&scene.native));
    let mut tokens = [ours?, theirs?].concat();
    ensure!(tokens.len() == 2 * rounds);
    tokens.sort_unstable();
    tokens.dedup();
    ensure!(tokens.len() == 2 * rounds, "two grants had the same token");
    let counter = AttributeValue::S(format!("{} counter", scene.key));
    let row = scene.stage.dynamodb().get_item().table_name(TABLE).key("key", counter).send().await?;
    let count = count_in(row.item)?;
    ensure!(count == 2 * rounds as u64, "{count} of {} increments are in the counter", 2 * rounds);
    Ok(())
}

pub(super) async fn native_and_subject_take_turns_and_no_increment_is_lost(scene: &Scene<'_>) -> anyhow::Result<()> {
    take_turns(scene, 15, 5_000).await
}

pub(super) async fn no_increment_is_lost_while_answers_are_lost_under_contention(
    scene: &Scene<'_>,
) -> anyhow::Result<()> {
    let fates = [
        Fate::AnswerLost,
        Fate::Answered,
        Fate::AnswerLost,
        Fate::Answered,
        Fate::Swallowed,
        Fate::Answered,
        Fate::Answered,
        Fate::AnswerLost,
    ];
    scene.stage.next(fates);
    let started = Instant::now();
    take_turns(scene, 5, 20_000).await?;
    let took = started.elapsed();
    ensure!(took < Duration::from_secs(15), "a grant was not recognised and its lease had to end: took {took:?}");
    ensure!(scene.stage.take_sent().len() >= fates.len(), "not all of the planned faults happened");
    Ok(())
}

pub(super) async fn tokens_grow_across_all_clients(scene: &Scene<'_>) -> anyhow::Result<()> {
    let Scene { subject, native, key, .. } = scene;
    let mut last = 0;
    for player in [subject, native, subject, subject, native] {
        let grant = player.granted(lease(key, 5_000)).await?;
        ensure!(grant.fencing_token > last, "{} after {last}", grant.fencing_token);
        last = grant.fencing_token;
        player.release(&grant).await?;
    }
    Ok(())
}

pub(super) async fn a_dead_native_holder_is_replaced_after_its_lease(scene: &Scene<'_>) -> anyhow::Result<()> {
    let Scene { subject, native, key, .. } = scene;
    let dead = native.granted(lease(key, 600)).await?;
    let started = Instant::now();
    let grant = subject.acquire(waiting(key, 10_000, 5_000)).await?;
    let took = started.elapsed();
    ensure!(took >= Duration::from_millis(600), "taken over while the holder could be alive, after {took:?}");
    ensure!(took < Duration::from_millis(3_500), "took {took:?}");
    ensure!(grant.fencing_token > dead.fencing_token);
    native.fails("lost", crate::plays::renew(&dead)).await?;
    subject.release(&grant).await?;
    Ok(())
}

pub(super) async fn a_dead_subject_is_replaced_by_a_native_contender(scene: &Scene<'_>) -> anyhow::Result<()> {
    let Scene { subject, native, key, .. } = scene;
    let dead = subject.granted(lease(key, 600)).await?;
    let grant = native.acquire(waiting(key, 10_000, 5_000)).await?;
    ensure!(grant.fencing_token > dead.fencing_token);
    ensure!(subject.remaining(&dead).await? == 0);
    native.release(&grant).await?;
    Ok(())
}

pub(super) async fn observations_of_two_calls_together_prove_a_holder_dead(scene: &Scene<'_>) -> anyhow::Result<()> {
    let Scene { stage, subject, key, .. } = scene;
    // A row of the Java client has no end of its lease, so it must be observed.
    let text = |text: &str| AttributeValue::S(text.to_owned());
    let row =
        [("ownerName", text("a-java-host")), ("leaseDuration", text("800")), ("recordVersionNumber", text("a-uuid"))];
    stage.put(key, row).await?;
    let held = subject.refused(lease(key, 5_000)).await?;
    ensure!(held.holder == "a-java-host" && held.lease_ends_at.is_none(), "{held:?}");
    sleep(Duration::from_millis(900)).await;
    // The time between two calls counts only if the caller adds it to the observation.
    let again = Acquire { observation: Some(held.observation.clone()), ..lease(key, 5_000) };
    subject.refused(again).await?;
    let mut vouched = held.observation;
    vouched["unchangedFor"] = 900.into();
    let grant = subject.granted(Acquire { observation: Some(vouched), ..lease(key, 5_000) }).await?;
    subject.release(&grant).await?;
    Ok(())
}

pub(super) async fn a_frozen_lock_is_refused_with_the_reason_until_it_is_thawed(
    scene: &Scene<'_>,
) -> anyhow::Result<()> {
    let Scene { stage, subject, key, .. } = scene;
    let text = |text: &str| AttributeValue::S(text.to_owned());
    let [owner, lasting, version, released] = [
        ("ownerName", "a-java-host"),
        ("leaseDuration", "800"),
        ("recordVersionNumber", "ll1-00000000000040008000000000000000-0000000013880000000000000009"),
        ("isReleased", "1"),
    ]
    .map(|(name, value)| (name, text(value)));
    let free = [owner, lasting, version, released];
    let [owner, lasting, version, released] = free.clone();
    let [last, served] =
        [("lastTicket", "5"), ("servedTicket", "3")].map(|(name, ticket)| (name, AttributeValue::N(ticket.to_owned())));
    stage.put(key, [owner, lasting, version, released, last, served, ("freezeReason", text("a migration"))]).await?;
    let held = subject.refused(lease(key, 5_000)).await?;
    ensure!(held.freeze_reason.as_deref() == Some("a migration") && held.retry_after >= 10_000, "{held:?}");
    ensure!(held.waiting == 2, "{held:?}");
    let row = subject.peek(key).await?.context("there is no row")?;
    ensure!(row.released && row.freeze_reason.as_deref() == Some("a migration"), "{row:?}");
    stage.put(key, free).await?;
    let grant = subject.granted(lease(key, 5_000)).await?;
    ensure!(subject.release(&grant).await? == "released");
    Ok(())
}

pub(super) async fn a_retried_task_gets_its_own_lock_again_with_a_larger_token(
    scene: &Scene<'_>,
) -> anyhow::Result<()> {
    let Scene { subject, native, key, .. } = scene;
    let task = |reclaim_own| Acquire { owner: Some("task 7".to_owned()), reclaim_own, ..lease(key, 20_000) };
    let first = native.granted(task(false)).await?;
    subject.refused(task(false)).await?;
    let second = subject.granted(task(true)).await?;
    ensure!(second.owner == "task 7" && second.fencing_token > first.fencing_token, "{second:?}");
    native.fails("lost", crate::plays::renew(&first)).await?;
    subject.release(&second).await?;
    Ok(())
}

pub(super) async fn the_lease_covers_the_budget_its_grace_and_the_drift(scene: &Scene<'_>) -> anyhow::Result<()> {
    let Scene { subject, key, .. } = scene;
    let budget = Acquire { key: (*key).to_owned(), remaining: Some(9_000), ..Acquire::default() };
    let grant = subject.acquire(budget).await?;
    let row = subject.peek(key).await?.context("there is no row")?;
    // (9000 + 1000) × 1.05, less the time until the request.
    ensure!(row.lease > 10_000 && row.lease <= 10_500, "{row:?}");
    subject.release(&grant).await?;
    Ok(())
}
