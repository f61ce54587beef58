//! What a call returns, and which requests it sends, after responses were lost, late or refused.

use super::Scene;
use crate::Ask;
use crate::plays::{REQUEST_TIMEOUT, lease, renew};
use anyhow::{Context, ensure};
use lambda_lock_local::authorize::Fate;
use std::time::{Duration, Instant};

pub(super) async fn a_lost_answer_is_recognised_as_our_own_grant(scene: &Scene<'_>) -> anyhow::Result<()> {
    let Scene { stage, subject, native, key, .. } = scene;
    stage.next([Fate::AnswerLost]);
    let grant = subject.granted(lease(key, 20_000)).await?;
    ensure!(stage.take_sent() == ["UpdateItem", "GetItem"]);
    let row = native.peek(key).await?.context("there is no row")?;
    ensure!(row.fencing_token == Some(grant.fencing_token), "{row:?}");
    subject.release(&grant).await?;
    Ok(())
}

pub(super) async fn a_lost_request_is_asked_again(scene: &Scene<'_>) -> anyhow::Result<()> {
    let Scene { stage, subject, key, .. } = scene;
    stage.next([Fate::Swallowed]);
    let grant = subject.granted(lease(key, 20_000)).await?;
    ensure!(stage.take_sent() == ["UpdateItem", "GetItem", "UpdateItem"]);
    subject.release(&grant).await?;
    Ok(())
}

pub(super) async fn a_grant_recognised_late_is_renewed_before_it_is_reported(scene: &Scene<'_>) -> anyhow::Result<()> {
    let Scene { stage, subject, key, .. } = scene;
    stage.next([Fate::AnsweredAfter(Duration::from_millis(2 * REQUEST_TIMEOUT))]);
    let grant = subject.granted(lease(key, REQUEST_TIMEOUT + 100)).await?;
    ensure!(stage.take_sent() == ["UpdateItem", "GetItem", "UpdateItem"]);
    ensure!(grant.remaining > REQUEST_TIMEOUT - 150, "{grant:?}");
    subject.release(&grant).await?;
    Ok(())
}

pub(super) async fn a_renewal_whose_answer_was_lost_is_not_lost(scene: &Scene<'_>) -> anyhow::Result<()> {
    let Scene { stage, subject, key, .. } = scene;
    let grant = subject.granted(lease(key, 20_000)).await?;
    for fate in [Fate::AnswerLost, Fate::Swallowed] {
        stage.take_sent();
        stage.next([fate]);
        subject.renew(&grant).await?;
        ensure!(stage.take_sent() == ["UpdateItem", "UpdateItem"], "{fate:?}");
    }
    ensure!(subject.release(&grant).await? == "released");
    Ok(())
}

pub(super) async fn a_release_whose_answer_was_lost_is_released(scene: &Scene<'_>) -> anyhow::Result<()> {
    let Scene { stage, subject, native, key, .. } = scene;
    let grant = subject.granted(lease(key, 20_000)).await?;
    stage.take_sent();
    stage.next([Fate::AnswerLost]);
    ensure!(subject.release(&grant).await? == "released");
    ensure!(stage.take_sent() == ["UpdateItem", "UpdateItem"]);
    ensure!(native.peek(key).await?.context("there is no row")?.released);
    Ok(())
}

pub(super) async fn an_answer_lost_before_a_native_holder_came_is_unknown_and_not_held(
    scene: &Scene<'_>,
) -> anyhow::Result<()> {
    let Scene { stage, subject, native, key, .. } = scene;
    let holder = native.granted(lease(key, 20_000)).await?;
    stage.next([Fate::AnswerLost]);
    // The first attempt may still be applied, so "held by somebody else" would not be the whole outcome.
    subject.fails("unknown", Ask::TryAcquire(lease(key, 5_000))).await?;
    native.renew(&holder).await?;
    native.release(&holder).await?;
    Ok(())
}

pub(super) async fn nothing_gets_through_at_all(scene: &Scene<'_>) -> anyhow::Result<()> {
    let Scene { stage, subject, native, key, .. } = scene;
    let grant = subject.granted(lease(key, 20_000)).await?;
    stage.always(Fate::Swallowed);
    let started = Instant::now();
    subject.fails("unknown", renew(&grant)).await?;
    let took = started.elapsed();
    ensure!(
        took < Duration::from_millis(5 * REQUEST_TIMEOUT),
        "the call took {took:?}, longer than three request timeouts"
    );
    ensure!(subject.remaining(&grant).await? > 10_000, "the remaining lease became shorter");
    subject.fails("unknown", Ask::Peek { key: (*key).to_owned() }).await?;
    subject.fails("unknown", Ask::Release { lock: grant.lock }).await?;
    ensure!(!native.peek(key).await?.context("there is no row")?.released);
    Ok(())
}

pub(super) async fn throttling_is_waited_out(scene: &Scene<'_>) -> anyhow::Result<()> {
    let Scene { stage, subject, key, .. } = scene;
    stage.next([Fate::Throttled, Fate::Throttled]);
    let grant = subject.granted(lease(key, 20_000)).await?;
    ensure!(stage.take_sent() == ["UpdateItem", "UpdateItem", "UpdateItem"]);
    subject.release(&grant).await?;
    Ok(())
}

pub(super) async fn throttling_that_outlasts_the_time_is_unavailable_and_nothing_was_applied(
    scene: &Scene<'_>,
) -> anyhow::Result<()> {
    let Scene { stage, subject, native, key, .. } = scene;
    stage.always(Fate::Throttled);
    subject.fails("unavailable", Ask::TryAcquire(lease(key, 20_000))).await?;
    ensure!(native.peek(key).await?.is_none());
    Ok(())
}
