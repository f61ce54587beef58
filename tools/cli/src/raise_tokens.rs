//! `raise-tokens`: makes the fencing tokens of a restored table larger than all that were ever given.
//!
//! A restored table has the tokens of an earlier time, so it would give tokens again that were given since. A token is not larger
//! than the time in milliseconds since 1970 at which it was given, by the clock of the caller, or it is one more than an earlier
//! token: of its key, or of a key that was acquired together with it.

use crate::arguments::RaiseTokensOptions;
use crate::confirm::confirm;
use crate::connection;
use crate::exit::{Failure, of_request};
use crate::screen::{self, plain};
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::types::{AttributeValue, ReturnValuesOnConditionCheckFailure};
use lambda_lock_protocol::Schema;
use serde_json::json;
use std::collections::HashMap;
use std::process::ExitCode;

const TOKEN: &str = "fencingToken";

type Row = HashMap<String, AttributeValue>;

/// The table whose tokens are raised, and to what.
struct Raising<'a> {
    dynamodb: Client,
    table: &'a str,
    schema: Schema,
    floor: u64,
}

pub(crate) async fn raise_tokens(
    connection: &connection::Options,
    options: &RaiseTokensOptions,
) -> Result<ExitCode, Failure> {
    let raising = Raising {
        dynamodb: connection.dynamodb(connection.config().await?),
        table: connection.table(),
        schema: connection.schema(),
        floor: options.floor()?,
    };
    let Raising { table, floor, .. } = &raising;
    let mut older = Vec::new();
    raising
        .each_older(async |key, token| {
            older.push((key, token));
            Ok(())
        })
        .await?;
    screen::progress_ends();
    if !older.is_empty() && !options.yes {
        confirm(&format!(
            "{} rows of table {table} have a smaller token than {floor}. They get this one. No caller may use the table \
             meanwhile.",
            older.len()
        ))?;
    }
    let (mut raised, mut changed) = (0_u64, 0_u64);
    for (key, token) in older {
        match raising.raise(key, token).await? {
            true => raised += 1,
            false => changed += 1,
        }
        screen::progress(format_args!("{raised} rows written"));
    }
    screen::progress_ends();
    let said = match options.format.json {
        true => json!({ "raised": raised, "to": floor, "leftAlone": changed }).to_string(),
        false => format!("{raised} tokens were raised to {floor}"),
    };
    let printed = screen::print_done(&said, "the tokens were raised");
    // Whether or not anybody reads the line above.
    if changed > 0 {
        return Err(Failure::Lost(format!(
            "{changed} rows have another token than they had when they were read, and were left alone: somebody uses the table. Run \
             this again when nobody does"
        )));
    }
    printed.map(|()| ExitCode::SUCCESS)
}

impl Raising<'_> {
    /// Calls back with the key and the token of each row whose token is smaller. A row without a token is that of another client, and stays.
    async fn each_older(&self, mut each: impl AsyncFnMut(Row, String) -> Result<(), Failure>) -> Result<(), Failure> {
        let (mut start, mut seen) = (None, 0);
        loop {
            let scan = self.dynamodb.scan().table_name(self.table).consistent_read(true);
            let page =
                scan.set_exclusive_start_key(start).send().await.map_err(|error| of_request(&error, self.table))?;
            seen += page.scanned_count;
            screen::progress(format_args!("{seen} rows read"));
            for row in page.items.unwrap_or_default() {
                match row.get(TOKEN) {
                    None => {}
                    Some(AttributeValue::N(token)) if is_at_least(token, self.floor) => {}
                    Some(AttributeValue::N(token)) => each(self.key(&row), token.clone()).await?,
                    Some(_) => {
                        let key = row.get(&self.schema.key_attribute).and_then(|key| key.as_s().ok());
                        let key = plain(key.map_or("?", |key| key));
                        screen::tell(format_args!("{key} has a token that is no number, and is left"));
                    }
                }
            }
            start = page.last_evaluated_key;
            if start.is_none() {
                return Ok(());
            }
        }
    }

    fn key(&self, row: &Row) -> Row {
        let names = std::iter::once(&self.schema.key_attribute).chain(&self.schema.sort_key_attribute);
        names.filter_map(|name| Some((name.clone(), row.get(name)?.clone()))).collect()
    }

    /// Raises the token of this row, which had this one. Returns whether it is as large now.
    async fn raise(&self, key: Row, seen: String) -> Result<bool, Failure> {
        let update = self.dynamodb.update_item().table_name(self.table).set_key(Some(key));
        let update = update.update_expression("SET #token = :floor").condition_expression("#token = :seen");
        let update = update.expression_attribute_names("#token", TOKEN);
        let update = update.expression_attribute_values(":floor", AttributeValue::N(self.floor.to_string()));
        let update = update.expression_attribute_values(":seen", AttributeValue::N(seen));
        let update = update.return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        match update.send().await {
            Ok(_) => Ok(true),
            Err(error) => match error.as_service_error() {
                Some(UpdateItemError::ConditionalCheckFailedException(refused)) => Ok(self.is_raised(refused.item())),
                _ => Err(of_request(&error, self.table)),
            },
        }
    }

    /// After a refusal: whether nothing is left to raise. The SDK sends a request again whose response was lost, so an earlier copy
    /// may have done it.
    fn is_raised(&self, row: Option<&Row>) -> bool {
        match row.and_then(|row| row.get(TOKEN)) {
            Some(AttributeValue::N(token)) => is_at_least(token, self.floor),
            Some(_) => false,
            None => true,
        }
    }
}

/// A number of DynamoDB may be of another kind, which no token is. It is never lowered: rounding leaves numbers in their order.
fn is_at_least(token: &str, floor: u64) -> bool {
    token
        .parse::<u64>()
        .map_or_else(|_| token.parse::<f64>().is_ok_and(|number| number >= floor as f64), |token| token >= floor)
}
