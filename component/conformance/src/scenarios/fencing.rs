//! Writes of the host that are applied only while it holds the lock.

use super::Scene;
use crate::Ask;
use crate::plays::{lease, waiting};
use crate::stage::TABLE;
use anyhow::{bail, ensure};
use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::types::{AttributeValue, Put, TransactWriteItem};

/// Writes an order under conditions. Returns whether it was applied.
pub(super) async fn write(scene: &Scene<'_>, conditions: &[TransactWriteItem], order: &str) -> anyhow::Result<bool> {
    let put = Put::builder().table_name(TABLE).item("key", AttributeValue::S(order.to_owned())).build()?;
    let put = TransactWriteItem::builder().put(put).build();
    let transaction = scene.stage.dynamodb().transact_write_items().set_transact_items(Some(conditions.to_vec()));
    match transaction.transact_items(put).send().await {
        Ok(_) => Ok(true),
        Err(SdkError::ServiceError(context)) => match context.into_err() {
            TransactWriteItemsError::TransactionCanceledException(cancelled) => {
                let reasons = cancelled.cancellation_reasons();
                let last = reasons.iter().take(conditions.len()).next_back().and_then(|reason| reason.code());
                ensure!(last == Some("ConditionalCheckFailed"), "{reasons:?}");
                Ok(false)
            }
            other => bail!("{other:?}"),
        },
        Err(other) => bail!("{other:?}"),
    }
}

pub(super) async fn a_condition_check_lets_writes_through_while_the_lock_is_ours(
    scene: &Scene<'_>,
) -> anyhow::Result<()> {
    let Scene { subject, native, key, .. } = scene;
    let grant = subject.granted(lease(key, 20_000)).await?;
    let condition = subject.condition_check(&grant).await?;
    ensure!(write(scene, std::slice::from_ref(&condition), &format!("{key} order 1")).await?);
    subject.renew(&grant).await?;
    ensure!(
        write(scene, std::slice::from_ref(&condition), &format!("{key} order 2")).await?,
        "a write under a renewed lock was refused"
    );
    subject.release(&grant).await?;
    ensure!(
        !write(scene, std::slice::from_ref(&condition), &format!("{key} order 3")).await?,
        "a write under a released lock was applied"
    );
    ensure!(native.peek(&format!("{key} order 3")).await?.is_none());
    Ok(())
}

pub(super) async fn a_condition_check_refuses_writes_after_a_takeover_by_a_native_client(
    scene: &Scene<'_>,
) -> anyhow::Result<()> {
    let Scene { subject, native, key, .. } = scene;
    let lost = subject.granted(lease(key, 400)).await?;
    let condition = subject.condition_check(&lost).await?;
    let grant = native.acquire(waiting(key, 10_000, 20_000)).await?;
    ensure!(!write(scene, std::slice::from_ref(&condition), &format!("{key} order")).await?);
    ensure!(native.peek(&format!("{key} order")).await?.is_none());
    subject.fails("lost", crate::plays::renew(&lost)).await?;
    subject.fails("lost", Ask::ConditionCheck { lock: lost.lock }).await?;
    native.release(&grant).await?;
    Ok(())
}
