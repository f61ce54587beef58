//! Handing a lock over between native clients and the subject, and releasing it.

use super::{Scene, is_by};
use crate::Ask;
use crate::plays::{lease, renew, waiting};
use crate::subject::Acquire;
use anyhow::{Context, ensure};

pub(super) async fn a_native_lock_is_resumed_by_the_subject_as_the_same_grant(scene: &Scene<'_>) -> anyhow::Result<()> {
    let Scene { stage, subject, native, key, .. } = scene;
    let grant = native.granted(lease(key, 20_000)).await?;
    let resumed = subject.resume(native.to_saved(&grant).await?).await?;
    ensure!(stage.take_sent() == ["UpdateItem"]);
    ensure!(resumed.fencing_token == grant.fencing_token && is_by(&resumed.owner, "the native"), "{resumed:?}");
    ensure!(resumed.remaining > 15_000, "{resumed:?}");
    ensure!(subject.release(&resumed).await? == "released");
    native.fails("lost", renew(&grant)).await?;
    Ok(())
}

pub(super) async fn the_subjects_lock_is_resumed_by_a_native_client_as_the_same_grant(
    scene: &Scene<'_>,
) -> anyhow::Result<()> {
    let Scene { subject, native, key, .. } = scene;
    let grant = subject.granted(lease(key, 20_000)).await?;
    let resumed = native.resume(subject.to_saved(&grant).await?).await?;
    ensure!(resumed.fencing_token == grant.fencing_token && is_by(&resumed.owner, "the subject"), "{resumed:?}");
    // Both copies hold the lock as one holder.
    subject.renew(&grant).await?;
    native.renew(&resumed).await?;
    ensure!(native.release(&resumed).await? == "released");
    subject.fails("lost", renew(&grant)).await?;
    Ok(())
}

pub(super) async fn a_reclaimed_lock_fences_off_the_native_copy(scene: &Scene<'_>) -> anyhow::Result<()> {
    let Scene { subject, native, key, .. } = scene;
    let grant = native.granted(lease(key, 20_000)).await?;
    let reclaimed = subject.reclaim(native.to_saved(&grant).await?, 20_000).await?;
    ensure!(reclaimed.fencing_token > grant.fencing_token && is_by(&reclaimed.owner, "the native"), "{reclaimed:?}");
    native.fails("lost", renew(&grant)).await?;
    ensure!(subject.release(&reclaimed).await? == "released");
    Ok(())
}

pub(super) async fn a_saved_lock_that_was_taken_over_cannot_be_resumed_or_reclaimed(
    scene: &Scene<'_>,
) -> anyhow::Result<()> {
    let Scene { subject, native, key, .. } = scene;
    let dead = subject.granted(lease(key, 400)).await?;
    let saved = subject.to_saved(&dead).await?;
    let grant = native.acquire(waiting(key, 10_000, 20_000)).await?;
    subject.fails("lost", Ask::Resume { saved: saved.clone() }).await?;
    subject.fails("lost", Ask::Reclaim { saved, lease: 5_000 }).await?;
    native.release(&grant).await?;
    Ok(())
}

pub(super) async fn releasing_a_stolen_lock_leaves_the_new_owner_alone_and_says_so(
    scene: &Scene<'_>,
) -> anyhow::Result<()> {
    let Scene { subject, native, key, .. } = scene;
    let dead = subject.granted(lease(key, 400)).await?;
    let grant = native.acquire(waiting(key, 10_000, 20_000)).await?;
    ensure!(subject.release(&dead).await? == "already-gone");
    native.renew(&grant).await?;
    native.release(&grant).await?;
    Ok(())
}

pub(super) async fn a_release_is_harmless_to_repeat(scene: &Scene<'_>) -> anyhow::Result<()> {
    let Scene { subject, native, key, .. } = scene;
    let grant = subject.granted(lease(key, 20_000)).await?;
    let saved = subject.to_saved(&grant).await?;
    ensure!(subject.release(&grant).await? == "released");
    ensure!(subject.release_saved(saved.clone()).await? == "released");
    let next = native.granted(lease(key, 20_000)).await?;
    ensure!(subject.release_saved(saved).await? == "already-gone");
    native.renew(&next).await?;
    native.release(&next).await?;
    Ok(())
}

pub(super) async fn a_later_grant_of_the_same_owner_is_released_only_if_asked_for(
    scene: &Scene<'_>,
) -> anyhow::Result<()> {
    let Scene { subject, native, key, .. } = scene;
    let task = || Acquire { owner: Some("task 8".to_owned()), reclaim_own: true, ..lease(key, 20_000) };
    let first = subject.granted(task()).await?;
    let saved = subject.to_saved(&first).await?;
    let second = native.granted(task()).await?;
    ensure!(subject.release_saved(saved.clone()).await? == "already-gone");
    native.renew(&second).await?;
    let release = Ask::ReleaseSaved { saved, or_later_grant_of_owner: true };
    ensure!(subject.told(release).await? == "released");
    native.fails("lost", renew(&second)).await?;
    Ok(())
}

pub(super) async fn cleaning_up_after_a_workflow_frees_its_lock_and_no_other(scene: &Scene<'_>) -> anyhow::Result<()> {
    let Scene { subject, native, key, .. } = scene;
    let clean_up = |workflow: &str| Ask::ReleaseWorkflow { key: (*key).to_owned(), workflow: workflow.to_owned() };
    let held = Acquire { workflow: Some("arn:ended".to_owned()), ..lease(key, 20_000) };
    let grant = native.granted(held).await?;
    ensure!(subject.told(clean_up("arn:another")).await? == "already-gone");
    native.renew(&grant).await?;
    ensure!(subject.told(clean_up("arn:ended")).await? == "released");
    native.fails("lost", renew(&grant)).await?;
    Ok(())
}

pub(super) async fn a_deleted_row_is_gone_and_the_next_token_still_grows(scene: &Scene<'_>) -> anyhow::Result<()> {
    let Scene { stage, subject, native, key, .. } = scene;
    let grant = subject.granted(lease(key, 20_000)).await?;
    ensure!(subject.release(&grant).await? == "released");
    stage.delete(key).await?;
    ensure!(native.peek(key).await?.is_none());
    let next = native.granted(lease(key, 20_000)).await?;
    ensure!(
        next.fencing_token > grant.fencing_token,
        "the next token is not larger: {} after {}",
        next.fencing_token,
        grant.fencing_token
    );
    native.release(&next).await.context("the end")?;
    Ok(())
}
