//! Holding a lock: its remaining lease, renewals, and its payload.

use super::{Scene, is_by};
use crate::Ask;
use crate::plays::{lease, renew, waiting};
use crate::subject::Acquire;
use anyhow::{Context, ensure};
use std::time::Duration;
use tokio::time::sleep;

pub(super) async fn a_holder_relies_on_less_than_its_lease(scene: &Scene<'_>) -> anyhow::Result<()> {
    let Scene { subject, key, .. } = scene;
    let grant = subject.granted(lease(key, 21_000)).await?;
    ensure!(grant.remaining > 18_500 && grant.remaining <= 20_000, "{grant:?}");
    sleep(Duration::from_millis(300)).await;
    let later = subject.remaining(&grant).await?;
    ensure!(later + 300 <= grant.remaining, "{later} of {}", grant.remaining);
    subject.release(&grant).await?;
    Ok(())
}

pub(super) async fn a_renewal_takes_one_request_and_keeps_the_token(scene: &Scene<'_>) -> anyhow::Result<()> {
    let Scene { stage, subject, key, .. } = scene;
    let grant = subject.granted(lease(key, 10_000)).await?;
    let before = subject.peek(key).await?.context("there is no row")?;
    sleep(Duration::from_millis(300)).await;
    stage.take_sent();
    let worn = subject.remaining(&grant).await?;
    subject.renew(&grant).await?;
    ensure!(stage.take_sent() == ["UpdateItem"]);
    ensure!(subject.remaining(&grant).await? > worn);
    let after = subject.peek(key).await?.context("there is no row")?;
    ensure!(after.fencing_token == Some(grant.fencing_token) && after.version != before.version);
    ensure!(after.lease_ends_at > before.lease_ends_at && after.renewed_at > before.renewed_at);
    subject.told(Ask::Renew { lock: grant.lock, lease: Some(30_000), data: None }).await?;
    ensure!(subject.remaining(&grant).await? > 25_000, "the longer lease was not granted");
    subject.release(&grant).await?;
    Ok(())
}

pub(super) async fn a_renewal_after_a_takeover_says_lost_and_stays_lost(scene: &Scene<'_>) -> anyhow::Result<()> {
    let Scene { stage, subject, native, key, .. } = scene;
    let lost = subject.granted(lease(key, 500)).await?;
    let grant = native.acquire(waiting(key, 10_000, 20_000)).await?;
    subject.fails("lost", renew(&lost)).await?;
    ensure!(subject.remaining(&lost).await? == 0);
    stage.take_sent();
    subject.fails("lost", renew(&lost)).await?;
    ensure!(stage.take_sent().is_empty(), "a request was sent for a lock that is known to be lost");
    let holder = native.peek(key).await?.context("there is no row")?.holder;
    ensure!(is_by(&holder, "the native"), "{holder}");
    native.release(&grant).await?;
    Ok(())
}

pub(super) async fn an_expired_lease_is_renewed_while_no_other_caller_was_granted_the_lock(
    scene: &Scene<'_>,
) -> anyhow::Result<()> {
    let Scene { subject, key, .. } = scene;
    let grant = subject.granted(lease(key, 300)).await?;
    sleep(Duration::from_millis(400)).await;
    ensure!(subject.remaining(&grant).await? == 0);
    subject.told(Ask::Renew { lock: grant.lock, lease: Some(20_000), data: None }).await?;
    ensure!(subject.remaining(&grant).await? > 15_000);
    ensure!(subject.release(&grant).await? == "released");
    Ok(())
}

pub(super) async fn data_is_kept_and_replaced_by_renewals_and_the_next_holder(scene: &Scene<'_>) -> anyhow::Result<()> {
    let Scene { subject, native, key, .. } = scene;
    let first = subject.granted(Acquire { data: Some(vec![0, 255, 10]), ..lease(key, 20_000) }).await?;
    ensure!(first.data == Some(vec![0, 255, 10]), "{first:?}");
    subject.told(Ask::Renew { lock: first.lock, lease: None, data: Some(b"step 2".to_vec()) }).await?;
    subject.release(&first).await?;
    let second = native.granted(lease(key, 20_000)).await?;
    ensure!(second.data == Some(b"step 2".to_vec()), "{second:?}");
    native.release(&second).await?;
    let third = subject.granted(lease(key, 20_000)).await?;
    ensure!(third.data == Some(b"step 2".to_vec()), "{third:?}");
    subject.release(&third).await?;
    Ok(())
}

pub(super) async fn a_peek_tells_a_held_a_released_and_a_missing_row_apart(scene: &Scene<'_>) -> anyhow::Result<()> {
    let Scene { stage, subject, native, key, .. } = scene;
    ensure!(subject.peek(key).await?.is_none());
    let workflow = Some("arn:of:a:workflow".to_owned());
    let held = Acquire { data: Some(vec![7]), workflow, ..lease(key, 20_000) };
    let grant = native.granted(held).await?;
    stage.take_sent();
    let row = subject.peek(key).await?.context("there is no row")?;
    ensure!(stage.take_sent() == ["GetItem"]);
    ensure!(is_by(&row.holder, "the native") && !row.released && row.lease == 20_000, "{row:?}");
    ensure!(
        row.fencing_token == Some(grant.fencing_token) && row.lease_ends_at == Some(grant.lease_ends_at),
        "{row:?}"
    );
    ensure!(row.workflow.as_deref() == Some("arn:of:a:workflow") && row.data == Some(vec![7]), "{row:?}");
    native.release(&grant).await?;
    let row = subject.peek(key).await?.context("there is no row")?;
    ensure!(row.released && row.workflow.is_none(), "{row:?}");
    Ok(())
}

pub(super) async fn a_step_that_the_lease_does_not_cover_is_refused(scene: &Scene<'_>) -> anyhow::Result<()> {
    let Scene { subject, key, .. } = scene;
    let grant = subject.granted(lease(key, 5_000)).await?;
    subject.told(Ask::EnsureRemaining { lock: grant.lock, step: 1_000 }).await?;
    subject.fails("out-of-time", Ask::EnsureRemaining { lock: grant.lock, step: 5_000 }).await?;
    subject.release(&grant).await?;
    Ok(())
}

pub(super) async fn a_spent_budget_is_refused_without_a_request(scene: &Scene<'_>) -> anyhow::Result<()> {
    let Scene { stage, subject, key, .. } = scene;
    let spent = Acquire { key: (*key).to_owned(), remaining: Some(0), ..Acquire::default() };
    subject.fails("out-of-time", Ask::TryAcquire(spent)).await?;
    ensure!(stage.take_sent().is_empty());
    Ok(())
}
