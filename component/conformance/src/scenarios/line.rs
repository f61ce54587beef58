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

/// The row of a holder of this crate, whose lease ends so.
fn row_of_a_holder(ends_at: SystemTime) -> anyhow::Result<Vec<(&'static str, AttributeValue)>> {
    let text = |text: &str| AttributeValue::S(text.to_owned());
    let ends_at_ms = ends_at.duration_since(SystemTime::UNIX_EPOCH)?.as_millis() as u64;
    Ok(vec![
        ("ownerName", text("a-holder")),
        ("leaseDuration", text("20000")),
        ("leaseEndsAt", number(ends_at_ms)),
        ("fencingToken", number(ends_at_ms)),
        ("recordVersionNumber", text("ll1-00000000000040008000000000000000-0000000013880000000000000009")),
    ])
}

fn number(number: u64) -> AttributeValue {
    AttributeValue::N(number.to_string())
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
    let row = row_of_a_holder(SystemTime::now() + Duration::from_secs(30))?;
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
    let mut row = row_of_a_holder(SystemTime::now())?;
    row.push(("isReleased", AttributeValue::S("1".to_owned())));
    row.extend([("lastTicket", 1), ("servedTicket", 0)].map(|(name, ticket)| (name, number(ticket))));
    stage.put(key, row).await?;
    // Nobody comes for the ticket, but who does not wait in line cannot know.
    let held = subject.refused(lease(key, 20_000)).await?;
    ensure!(held.waiting == 1 && held.retry_after > 0 && held.retry_after <= 5_600, "{held:?}");
    let out_of_turn = Acquire { queueing: Some(Queueing::OutOfTurn), ..lease(key, 20_000) };
    let grant = subject.granted(out_of_turn).await?;
    ensure!(subject.release(&grant).await? == "released");
    Ok(())
}
