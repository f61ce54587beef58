//! Errors are reported by kind and with a sentence.

use super::Scene;
use crate::Ask;
use crate::plays::lease;
use crate::stage::{MISSING_TABLE, READER, SUBJECT, TABLE};
use crate::subject::Acquire;
use anyhow::ensure;
use aws_sdk_dynamodb::types::AttributeValue;

pub(super) async fn what_cannot_work_is_refused_before_any_request(scene: &Scene<'_>) -> anyhow::Result<()> {
    let Scene { stage, subject, key, .. } = scene;
    let long = "k".repeat(2049);
    for acquire in [
        lease("", 5_000),
        lease(&long, 5_000),
        lease(key, 0),
        lease(key, 400 * 24 * 3_600_000),
        Acquire { owner: Some(String::new()), ..lease(key, 5_000) },
        Acquire { data: Some(vec![0; 400 * 1024]), ..lease(key, 5_000) },
    ] {
        subject.fails("invalid-request", Ask::TryAcquire(acquire)).await?;
    }
    subject.fails("invalid-request", Ask::Peek { key: String::new() }).await?;
    ensure!(stage.take_sent().is_empty());
    Ok(())
}

pub(super) async fn a_row_that_is_no_lock_record_is_reported_and_left_alone(scene: &Scene<'_>) -> anyhow::Result<()> {
    let Scene { stage, subject, key, .. } = scene;
    stage.put(key, [("total", AttributeValue::N("7".to_owned())), ("paid", AttributeValue::Bool(true))]).await?;
    let failure = subject.fails("invalid-record", Ask::TryAcquire(lease(key, 5_000))).await?;
    ensure!(failure.message.contains(key), "{failure}");
    subject.fails("invalid-record", Ask::Peek { key: (*key).to_owned() }).await?;
    let row = stage.dynamodb().get_item().table_name(TABLE).key("key", AttributeValue::S((*key).to_owned()));
    let row = row.send().await?.item.unwrap_or_default();
    ensure!(row.len() == 3, "{row:?}");
    Ok(())
}

pub(super) async fn a_missing_table_says_so(scene: &Scene<'_>) -> anyhow::Result<()> {
    let elsewhere = scene.reopened(SUBJECT, MISSING_TABLE).await?;
    elsewhere.fails("table", Ask::TryAcquire(lease(scene.key, 5_000))).await?;
    elsewhere.fails("table", Ask::Peek { key: scene.key.to_owned() }).await?;
    Ok(())
}

pub(super) async fn missing_permissions_say_so(scene: &Scene<'_>) -> anyhow::Result<()> {
    let reader = scene.reopened(READER, TABLE).await?;
    let failure = reader.fails("denied", Ask::TryAcquire(lease(scene.key, 5_000))).await?;
    ensure!(failure.message.contains("dynamodb:UpdateItem"), "{failure}");
    ensure!(reader.peek(scene.key).await?.is_none());
    let stranger = scene.reopened("a-stranger", TABLE).await?;
    stranger.fails("denied", Ask::Peek { key: scene.key.to_owned() }).await?;
    Ok(())
}

pub(super) async fn a_saved_lock_that_was_tampered_with_is_refused(scene: &Scene<'_>) -> anyhow::Result<()> {
    let Scene { stage, subject, key, .. } = scene;
    let grant = subject.granted(lease(key, 20_000)).await?;
    let saved = subject.to_saved(&grant).await?;
    stage.take_sent();
    for (field, wrong) in
        [("version", "not-ours".into()), ("owner", "".into()), ("key", "".into()), ("lease", 0.into())]
    {
        let mut tampered = saved.clone();
        tampered[field] = wrong;
        subject.fails("invalid-request", Ask::Resume { saved: tampered }).await?;
    }
    ensure!(stage.take_sent().is_empty());
    subject.release(&grant).await?;
    Ok(())
}
