//! Several locks of one call, and one of several places.

use super::{Scene, fencing, is_by};
use crate::Ask;
use crate::plays::{Held, lease, once, read, waiting, waiting_for};
use crate::subject::{Blocked, Several};
use anyhow::{Context, ensure};
use std::time::{Duration, Instant};
use tokio::time::sleep;

/// The keys of a scenario.
fn keys<const N: usize>(scene: &Scene<'_>) -> [String; N] {
    std::array::from_fn(|index| format!("{} {index}", scene.key))
}

fn together(keys: &[String], several: Several) -> Ask {
    Ask::AcquireAll { keys: keys.to_vec(), in_order: false, several }
}

fn in_order(keys: &[String], several: Several) -> Ask {
    Ask::AcquireAll { keys: keys.to_vec(), in_order: true, several }
}

fn permit(name: &str, permits: u32, several: Several) -> Ask {
    Ask::AcquirePermit { name: name.to_owned(), permits, several }
}

/// The keys of the blocked locks or places, each of which must be held by this caller.
fn blocked_by(blocked: &[Blocked], caller: &str) -> anyhow::Result<Vec<String>> {
    for one in blocked {
        let held: Held = read(one.held.clone())?;
        ensure!(is_by(&held.holder, caller) && held.lease_ends_at.is_some(), "{one:?}");
        ensure!(held.retry_after > 15_000 && held.retry_after <= 22_100, "{one:?}");
    }
    Ok(blocked.iter().map(|one| one.key.clone()).collect())
}

pub(super) async fn several_locks_are_granted_with_one_token_larger_than_each_before(
    scene: &Scene<'_>,
) -> anyhow::Result<()> {
    let Scene { stage, subject, native, .. } = scene;
    let keys: [_; 3] = keys(scene);
    let mut before = 0;
    for key in &keys[1..] {
        let grant = native.granted(lease(key, 20_000)).await?;
        before = before.max(grant.fencing_token);
        native.release(&grant).await?;
    }
    let set = subject.acquire_all(together(&keys, once(21_000))).await?;
    ensure!(set.keys == keys && set.remaining > 18_500 && set.remaining <= 20_000, "{set:?}");
    ensure!(set.fencing_token > Some(before), "{set:?} after {before}");
    for key in &keys {
        let held = native.refused(lease(key, 20_000)).await?;
        ensure!(is_by(&held.holder, "the subject"), "{held:?}");
        ensure!(native.peek(key).await?.context("there is no row")?.fencing_token == set.fencing_token);
    }
    subject.told(Ask::EnsureRemainingOfAll { set: set.set, step: 1_000 }).await?;
    subject.fails("out-of-time", Ask::EnsureRemainingOfAll { set: set.set, step: 21_000 }).await?;
    sleep(Duration::from_millis(300)).await;
    let worn = subject.remaining_of_all(&set).await?;
    ensure!(worn + 300 <= set.remaining, "{worn} of {}", set.remaining);
    stage.take_sent();
    subject.renew_all(&set).await?;
    ensure!(stage.take_sent() == ["UpdateItem"; 3]);
    ensure!(subject.remaining_of_all(&set).await? > worn);
    ensure!(subject.release_all(&set).await?.is_empty());
    ensure!(stage.take_sent() == ["UpdateItem"; 3]);
    for key in &keys {
        let grant = native.granted(lease(key, 20_000)).await?;
        ensure!(Some(grant.fencing_token) > set.fencing_token, "{grant:?} after {set:?}");
        native.release(&grant).await?;
    }
    Ok(())
}

pub(super) async fn several_locks_of_which_some_are_held_are_refused_with_each_of_these_and_leave_nothing_behind(
    scene: &Scene<'_>,
) -> anyhow::Result<()> {
    let Scene { subject, native, .. } = scene;
    let keys: [_; 3] = keys(scene);
    let free = native.granted(lease(&keys[0], 20_000)).await?;
    native.release(&free).await?;
    let row = native.peek(&keys[0]).await?.context("there is no row")?;
    let mut holders = vec![native.granted(lease(&keys[1], 20_000)).await?];
    holders.push(native.granted(lease(&keys[2], 20_000)).await?);
    let failure = subject.fails("held", together(&keys, once(20_000))).await?;
    ensure!(blocked_by(&failure.blocked, "the native")? == keys[1..], "{failure:?}");
    let held: Held = read(failure.held.context("the error does not name the holder")?)?;
    ensure!(is_by(&held.holder, "the native"), "{held:?}");
    ensure!(
        native.peek(&keys[0]).await?.context("there is no row")?.version == row.version,
        "the free row was written"
    );

    // In order, it had the free lock, and gave it back.
    let failure = subject.fails("held", in_order(&keys, once(20_000))).await?;
    ensure!(blocked_by(&failure.blocked, "the native")? == keys[1..2], "{failure:?}");
    let row = native.peek(&keys[0]).await?.context("there is no row")?;
    ensure!(row.released && is_by(&row.holder, "the subject"), "{row:?}");
    for holder in &holders {
        native.renew(holder).await?;
        native.release(holder).await?;
    }
    Ok(())
}

pub(super) async fn several_locks_are_waited_for_together_and_in_order(scene: &Scene<'_>) -> anyhow::Result<()> {
    let Scene { subject, native, .. } = scene;
    let keys: [_; 3] = keys(scene);
    // The order is that of the keys, whatever the call says.
    let given = [&keys[2], &keys[0], &keys[1]].map(Clone::clone);
    for are_in_order in [false, true] {
        let holder = native.granted(lease(&keys[1], 20_000)).await?;
        let started = Instant::now();
        let release = async {
            sleep(Duration::from_millis(400)).await;
            native.release(&holder).await
        };
        let several = waiting_for(8_000, 20_000);
        let ask = Ask::AcquireAll { keys: given.to_vec(), in_order: are_in_order, several };
        let (waited, released) = tokio::join!(subject.acquire_all(ask), release);
        let (set, took) = (waited?, started.elapsed());
        ensure!(released? == "released");
        ensure!(took >= Duration::from_millis(400) && took < Duration::from_millis(3_000), "took {took:?}");
        let saved = subject.to_saved_all(&set).await?;
        let tokens: Vec<_> = saved.iter().filter_map(|saved| saved["fencingToken"].as_u64()).collect();
        ensure!(tokens.len() == 3 && tokens.iter().max() > Some(&holder.fencing_token), "{saved:?}");
        if are_in_order {
            // The first key was free, and the second one was waited for.
            ensure!(set.keys == keys && set.fencing_token.is_none() && tokens[0] < tokens[1], "{set:?} {saved:?}");
        } else {
            ensure!(set.keys == given, "{set:?}");
            ensure!(tokens.iter().all(|token| Some(*token) == set.fencing_token), "{set:?} {saved:?}");
        }
        subject.renew_all(&set).await?;
        ensure!(subject.release_all(&set).await?.is_empty());
    }
    Ok(())
}

pub(super) async fn a_lost_lock_of_several_is_named_and_the_others_are_free(scene: &Scene<'_>) -> anyhow::Result<()> {
    let Scene { stage, subject, native, .. } = scene;
    for ask in [together, in_order] {
        let keys: [_; 3] = keys(scene);
        let set = subject.acquire_all(ask(&keys, once(500))).await?;
        let grant = native.acquire(waiting(&keys[1], 10_000, 20_000)).await?;
        let failure = subject.fails("lost", Ask::RenewAll { set: set.set }).await?;
        ensure!(failure.message.contains(&keys[1]) && !failure.message.contains(&keys[0]), "{failure}");
        ensure!(subject.remaining_of_all(&set).await? == 0);
        stage.take_sent();
        subject.fails("lost", Ask::RenewAll { set: set.set }).await?;
        subject.fails("lost", Ask::ConditionChecks { set: set.set }).await?;
        ensure!(stage.take_sent().is_empty(), "a request was sent for locks that are known to be lost");
        for key in [&keys[0], &keys[2]] {
            let row = native.peek(key).await?.context("there is no row")?;
            ensure!(row.released, "{key} is not free: {row:?}");
        }
        native.renew(&grant).await?;
        native.release(&grant).await?;
    }
    Ok(())
}

pub(super) async fn several_locks_are_handed_over_as_the_same_grant(scene: &Scene<'_>) -> anyhow::Result<()> {
    let Scene { stage, subject, native, .. } = scene;
    let keys: [_; 2] = keys(scene);
    let set = subject.acquire_all(together(&keys, once(20_000))).await?;
    let saved: Vec<_> = read(subject.told(Ask::SavedAll { set: set.set, keep: false }).await?)?;
    let resumed = native.resume_all(saved).await?;
    ensure!(resumed.fencing_token == set.fencing_token && resumed.keys == keys, "{resumed:?}");
    let saved = native.to_saved_all(&resumed).await?;
    stage.take_sent();
    let again = subject.resume_all(saved.clone()).await?;
    ensure!(stage.take_sent() == ["UpdateItem"; 2]);
    ensure!(again.fencing_token == set.fencing_token && again.keys == keys && again.remaining > 15_000, "{again:?}");
    let saved = subject.to_saved_all(&again).await?;
    ensure!(subject.release_all_saved(saved.clone()).await?.is_empty());
    ensure!(subject.release_all_saved(saved.clone()).await?.is_empty(), "a release is harmless to repeat");
    let next = native.granted(lease(&keys[1], 20_000)).await?;
    ensure!(subject.release_all_saved(saved.clone()).await? == keys[1..], "the key that was gone is not named");
    subject.fails("lost", Ask::ResumeAll { saved, lease: None }).await?;
    native.renew(&next).await?;
    native.release(&next).await?;
    Ok(())
}

pub(super) async fn condition_checks_refuse_writes_when_one_of_several_locks_is_not_ours(
    scene: &Scene<'_>,
) -> anyhow::Result<()> {
    let Scene { subject, native, key, .. } = scene;
    let keys: [_; 2] = keys(scene);
    let set = subject.acquire_all(together(&keys, once(400))).await?;
    let conditions = subject.condition_checks(&set).await?;
    ensure!(conditions.len() == 2);
    ensure!(fencing::write(scene, &conditions, &format!("{key} order 1")).await?);
    let grant = native.acquire(waiting(&keys[1], 10_000, 20_000)).await?;
    ensure!(!fencing::write(scene, &conditions, &format!("{key} order 2")).await?, "a late write was applied");
    native.release(&grant).await?;
    Ok(())
}

pub(super) async fn what_an_earlier_refusal_of_several_saw_is_continued(scene: &Scene<'_>) -> anyhow::Result<()> {
    let Scene { subject, native, .. } = scene;
    let keys: [_; 2] = keys(scene);
    let holder = native.granted(lease(&keys[1], 20_000)).await?;
    let mut seen = subject.fails("held", together(&keys, once(20_000))).await?.blocked;
    seen = subject.fails("held", together(&keys, Several { seen, ..once(20_000) })).await?.blocked;
    // The test vouches for a time that has not passed. So the next call takes the lock of a living holder.
    seen[0].held["observation"]["unchangedFor"] = 60_000.into();
    let set = subject.acquire_all(together(&keys, Several { seen, ..once(20_000) })).await?;
    native.fails("lost", crate::plays::renew(&holder)).await?;
    ensure!(subject.release_all(&set).await?.is_empty());
    Ok(())
}

pub(super) async fn what_cannot_work_for_several_locks_is_refused_before_any_request(
    scene: &Scene<'_>,
) -> anyhow::Result<()> {
    let Scene { stage, subject, key, .. } = scene;
    let keys: [_; 26] = keys(scene);
    let twice = [keys[0].clone(), keys[1].clone(), keys[0].clone()];
    for ask in [
        together(&[], once(20_000)),
        together(&keys, once(20_000)),
        together(&twice, once(20_000)),
        in_order(&twice, once(20_000)),
        in_order(&keys[..2], Several { reclaim_own: true, ..once(20_000) }),
        permit(key, 0, once(20_000)),
        permit(key, 1_001, once(20_000)),
    ] {
        let failure = subject.fails("invalid-request", ask).await?;
        ensure!(failure.blocked.is_empty(), "{failure:?}");
    }
    ensure!(stage.take_sent().is_empty());
    Ok(())
}

pub(super) async fn at_most_as_many_permits_are_granted_as_there_are_places(scene: &Scene<'_>) -> anyhow::Result<()> {
    let Scene { stage, subject, native, key, .. } = scene;
    let first = subject.permit(permit(key, 3, once(20_000))).await?;
    ensure!(stage.take_sent() == ["UpdateItem"], "a place of three free ones is one request");
    let second = native.permit(permit(key, 3, once(20_000))).await?;
    let third = subject.permit(permit(key, 3, once(20_000))).await?;
    let mut places = [first.place, second.place, third.place];
    places.sort_unstable();
    ensure!(places == [0, 1, 2], "{first:?} {second:?} {third:?}");

    let failure = subject.fails("held", permit(key, 3, once(20_000))).await?;
    let mut holders: Vec<_> = failure.blocked.iter().map(|one| (one.key.clone(), one.held["holder"].clone())).collect();
    holders.sort_by(|one, other| one.0.cmp(&other.0));
    let mut expected = [&first, &second, &third]
        .map(|permit| (format!("{key}/{}", permit.place), serde_json::Value::from(permit.lock.owner.as_str())));
    expected.sort_by(|one, other| one.0.cmp(&other.0));
    ensure!(holders == expected, "{failure:?}");
    ensure!(failure.held.is_some(), "{failure:?}");

    let place = format!("{key}/{}", first.place);
    subject.renew(&first.lock).await?;
    ensure!(!native.peek(&place).await?.context("there is no row")?.released);
    ensure!(subject.release(&first.lock).await? == "released");
    let again = subject.permit(permit(key, 3, once(20_000))).await?;
    ensure!(again.place == first.place && again.lock.fencing_token > first.lock.fencing_token, "{again:?}");
    for (player, permit) in [(subject, &again), (native, &second), (subject, &third)] {
        ensure!(player.release(&permit.lock).await? == "released");
    }
    Ok(())
}

pub(super) async fn a_permit_is_waited_for(scene: &Scene<'_>) -> anyhow::Result<()> {
    let Scene { subject, native, key, .. } = scene;
    let holder = native.permit(permit(key, 1, once(20_000))).await?;
    let started = Instant::now();
    let release = async {
        sleep(Duration::from_millis(400)).await;
        native.release(&holder.lock).await
    };
    let (waited, released) = tokio::join!(subject.permit(permit(key, 1, waiting_for(8_000, 20_000))), release);
    let (granted, took) = (waited?, started.elapsed());
    ensure!(released? == "released");
    ensure!(took >= Duration::from_millis(400) && took < Duration::from_millis(3_000), "took {took:?}");
    ensure!(granted.lock.fencing_token > holder.lock.fencing_token, "{granted:?}");
    subject.release(&granted.lock).await?;
    Ok(())
}

pub(super) async fn a_retried_task_gets_its_own_several_locks_and_its_own_place_again(
    scene: &Scene<'_>,
) -> anyhow::Result<()> {
    let Scene { subject, native, key, .. } = scene;
    let task = |reclaim_own| Several {
        owner: Some("task 7".to_owned()),
        workflow: Some("a workflow".to_owned()),
        reclaim_own,
        ..once(20_000)
    };
    let keys: [_; 2] = keys(scene);
    let first = native.acquire_all(together(&keys, task(false))).await?;
    subject.fails("held", together(&keys, task(false))).await?;
    let second = subject.acquire_all(together(&keys, task(true))).await?;
    ensure!(second.fencing_token > first.fencing_token, "{second:?}");
    native.fails("lost", Ask::RenewAll { set: first.set }).await?;
    subject.renew_all(&second).await?;
    let row = native.peek(&keys[0]).await?.context("there is no row")?;
    ensure!(row.holder == "task 7" && row.workflow.as_deref() == Some("a workflow"), "{row:?}");
    ensure!(subject.release_all(&second).await?.is_empty());

    let first = native.permit(permit(key, 5, task(false))).await?;
    let second = subject.permit(permit(key, 5, task(true))).await?;
    ensure!(second.place == first.place && second.lock.fencing_token > first.lock.fencing_token, "{second:?}");
    native.fails("lost", crate::plays::renew(&first.lock)).await?;
    subject.release(&second.lock).await?;
    Ok(())
}
