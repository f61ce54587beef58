//! Waiting in line, in turn and out of turn.

use super::Scene;
use crate::native::Native;
use crate::plays::{Player, in_turn, lease};
use crate::subject::{Acquire, Ask, Queueing};
use anyhow::{Context, ensure};
use aws_sdk_dynamodb::types::AttributeValue;
use std::time::{Duration, Instant, SystemTime};
use tokio::time::sleep;

/// Tries until the refusal tells that so many wait in line.
async fn see_in_line(player: &Player<'_>, key: &str, waiting: u64) -> anyhow::Result<()> {
    let started = Instant::now();
    loop {
        let held = player.refused(lease(key, 20_000)).await?;
        if held.waiting == waiting {
            return Ok(());
        }
        ensure!(held.waiting < waiting && started.elapsed() < Duration::from_secs(5), "{held:?}, instead of {waiting}");
        sleep(Duration::from_millis(10)).await;
    }
}

pub(super) async fn those_in_line_are_granted_the_lock_in_the_order_of_their_tickets(
    scene: &Scene<'_>,
) -> anyhow::Result<()> {
    let Scene { stage, subject, native, key, .. } = scene;
    let third = Native::default();
    let holder = Player::native(stage, &third).await?;
    for [first, second] in [[subject, native], [native, subject]] {
        let held = holder.granted(lease(key, 20_000)).await?;
        let turn = async |player: &Player<'_>, ahead| {
            see_in_line(player, key, ahead).await?;
            let grant = player.acquire(in_turn(key, 10_000, 5_000)).await?;
            // A turn takes longer than a look of a busy host.
            sleep(Duration::from_millis(100)).await;
            ensure!(player.release(&grant).await? == "released");
            anyhow::Ok(grant.fencing_token)
        };
        let release = async {
            see_in_line(&holder, key, 2).await?;
            holder.release(&held).await
        };
        let (first, second, released) = tokio::join!(turn(first, 0), turn(second, 1), release);
        ensure!(released? == "released");
        let (first, second) = (first?, second?);
        ensure!(
            held.fencing_token < first && first < second,
            "the second in line was granted {second}, before {first}"
        );
    }
    Ok(())
}

pub(super) async fn in_turn_a_caller_takes_its_ticket_at_its_first_look(scene: &Scene<'_>) -> anyhow::Result<()> {
    let Scene { stage, subject, key, .. } = scene;
    let (text, number) = (|text: &str| AttributeValue::S(text.to_owned()), |n: u64| AttributeValue::N(n.to_string()));
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_millis() as u64;
    let row = [
        ("ownerName", text("a-holder")),
        ("leaseDuration", text("20000")),
        ("leaseEndsAt", number(now + 30_000)),
        ("fencingToken", number(now)),
        ("recordVersionNumber", text("ll1-00000000000040008000000000000000-0000000013880000000000000009")),
    ];
    stage.put(key, row).await?;
    let failure = subject.fails("held", Ask::Acquire(in_turn(key, 1_500, 5_000))).await?;
    let sent = stage.take_sent();
    ensure!(
        sent.starts_with(&["UpdateItem", "UpdateItem"].map(str::to_owned)),
        "the first look, and the ticket: {sent:?}"
    );
    let held = failure.held.context("the error does not name the holder")?;
    ensure!(held["waiting"] == 0, "it has given its ticket up: {held}");
    ensure!(sent.last().is_some_and(|last| last == "UpdateItem"), "it says so: {sent:?}");
    Ok(())
}

pub(super) async fn a_free_lock_is_left_to_those_in_line_but_not_out_of_turn(scene: &Scene<'_>) -> anyhow::Result<()> {
    let Scene { stage, subject, key, .. } = scene;
    let (text, number) = (|text: &str| AttributeValue::S(text.to_owned()), |n: u64| AttributeValue::N(n.to_string()));
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_millis() as u64;
    let row = [
        ("ownerName", text("a-holder")),
        ("leaseDuration", text("20000")),
        ("leaseEndsAt", number(now)),
        ("fencingToken", number(now)),
        ("recordVersionNumber", text("ll1-00000000000040008000000000000000-0000000013880000000000000009")),
        ("isReleased", text("1")),
        ("lastTicket", number(1)),
        ("servedTicket", number(0)),
    ];
    stage.put(key, row).await?;
    // Nobody comes for the ticket, but who does not wait in line cannot know.
    let held = subject.refused(lease(key, 20_000)).await?;
    ensure!(held.waiting == 1 && held.retry_after > 0 && held.retry_after <= 5_600, "{held:?}");
    let out_of_turn = Acquire { queueing: Some(Queueing::OutOfTurn), ..lease(key, 20_000) };
    let grant = subject.granted(out_of_turn).await?;
    ensure!(subject.release(&grant).await? == "released");
    Ok(())
}
