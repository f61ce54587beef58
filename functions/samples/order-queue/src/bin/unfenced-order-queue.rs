//! order-queue without fencing. It has the same lock, steps and checkpoints, but its writes have no
//! condition that the lock is still ours.
//!
//! Only for the tests, which must notice the difference. The template builds `order-queue` alone.

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::AttributeValue;
use charge_order::{Charged, Deps, Order, Receipt, Request, Step, key};
use lambda_lock::Budget;
use lambda_lock::once::{Attempt, Started};
use lambda_lock_functions::{Config, ConfigError, Environment, Event, Failure, run};
use lambda_runtime::LambdaEvent;
use serde_json::Value;
use std::process::ExitCode;

struct Unfenced {
    deps: Deps,
    dynamodb: Client,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    run(Unfenced::new, handler).await
}

async fn handler(event: LambdaEvent<Event>, unfenced: &Unfenced) -> Result<Value, Failure> {
    order_queue::run(event, |request, budget| async move { unfenced.charge(request, &budget).await }).await
}

impl Unfenced {
    fn new(config: &Config, environment: &Environment<'_>) -> Result<Self, ConfigError> {
        Ok(Self { deps: Deps::new(config, environment)?, dynamodb: config.dynamodb()? })
    }

    async fn charge(&self, request: Request, budget: &Budget) -> Result<Charged, Failure> {
        let key = key(&request.order, self.deps.sort_key);
        let once = self.deps.locks.once(key).payload(&request.order).within(budget).without_waiting();
        match once.start().await? {
            Started::Replayed(receipt) => Ok(Charged { receipt, replayed: true }),
            Started::Attempt(mut attempt) => match self.steps(&mut attempt, &request, budget).await {
                Ok(receipt) => {
                    attempt.complete(&receipt).await?;
                    Ok(Charged { receipt, replayed: false })
                }
                Err(failure) => {
                    attempt.give_back().await?;
                    Err(failure)
                }
            },
        }
    }

    async fn steps(&self, attempt: &mut Attempt, request: &Request, budget: &Budget) -> Result<Receipt, Failure> {
        let Request { order, simulate } = request;
        simulate.begin(Step::Reserve).await?;
        let amount = AttributeValue::N(order.amount.to_string());
        let currency = AttributeValue::S(order.currency.clone());
        self.write(order, [("amount", amount), ("currency", currency)]).await?;
        attempt.checkpoint().await?;

        simulate.begin(Step::Charge).await?;
        let charge_id = self.deps.gateway.charge(order, budget).await?;
        attempt.checkpoint().await?;

        simulate.begin(Step::Record).await?;
        let receipt = Receipt { order_id: order.order_id.clone(), charge_id, fencing_token: attempt.fencing_token() };
        let charge_id = AttributeValue::S(receipt.charge_id.clone());
        let token = AttributeValue::N(receipt.fencing_token.to_string());
        self.write(order, [("chargeId", charge_id), ("fencingToken", token)]).await?;
        Ok(receipt)
    }

    async fn write(&self, order: &Order, attributes: [(&str, AttributeValue); 2]) -> Result<(), Failure> {
        let [(first, one), (second, other)] = attributes;
        let update = self
            .dynamodb
            .update_item()
            .table_name(self.deps.orders.table())
            .key("orderId", AttributeValue::S(order.order_id.clone()))
            .update_expression("SET #first = :first, #second = :second")
            .expression_attribute_names("#first", first)
            .expression_attribute_names("#second", second)
            .expression_attribute_values(":first", one)
            .expression_attribute_values(":second", other);
        update.send().await.map_err(|error| Failure::work_failed(&error.into_service_error()))?;
        Ok(())
    }
}
