//! The accounts and the transfers: what is read under the locks, and what the commit writes.
//!
//! | table | attribute | type | |
//! |---|---|---|---|
//! | accounts | `accountId` | S | partition key |
//! | | `balance` | N | in minor units, such as cents |
//! | | `fencingToken` | N | the token of the locks under which the balance was written |
//! | transfers | `transferId` | S | partition key |
//! | | `from`, `to` | S | the accounts |
//! | | `amount` | N | |
//! | | `fromBalance`, `toBalance` | N | the balances after the transfer |
//! | | `fencingToken` | N | the token of the locks under which it was done |

use crate::request::Transfer;
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{AttributeValue, Put, TransactWriteItem, Update};
use lambda_lock_functions::{ConfigError, Environment, Failure, required, with_causes};
use std::collections::HashMap;
use std::fmt::Display;

/// The two tables.
#[derive(Clone, Debug)]
pub(crate) struct Accounts {
    dynamodb: Client,
    accounts: String,
    transfers: String,
}

/// A transfer that was done, as its row has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Done {
    pub(crate) transfer: Transfer,
    pub(crate) from_balance: u64,
    pub(crate) to_balance: u64,
    pub(crate) fencing_token: u64,
}

type Row = HashMap<String, AttributeValue>;

impl Accounts {
    pub(crate) fn read(dynamodb: Client, environment: &Environment<'_>) -> Result<Self, ConfigError> {
        Ok(Self {
            dynamodb,
            accounts: required(environment, "ACCOUNTS_TABLE", "the name of the accounts table")?,
            transfers: required(environment, "TRANSFERS_TABLE", "the name of the transfers table")?,
        })
    }

    /// Returns the transfer with this id if it was done.
    pub(crate) async fn done(&self, id: &str) -> Result<Option<Done>, Failure> {
        let Some(row) = self.row(&self.transfers, "transferId", id).await? else { return Ok(None) };
        let done = done(id, &row);
        done.map(Some).ok_or_else(|| unreadable(format_args!("the row of the transfer {id} in {}", self.transfers)))
    }

    /// Returns the balance of an account. `field` is the field of the request that names it.
    pub(crate) async fn balance(&self, field: &str, account: &str) -> Result<u64, Failure> {
        let row = self.row(&self.accounts, "accountId", account).await?;
        let no_account = || Failure::invalid_request(format!("{field} names an account that does not exist"));
        let row = row.ok_or_else(no_account)?;
        number(&row, "balance")
            .ok_or_else(|| unreadable(format_args!("the balance of the account {account} in {}", self.accounts)))
    }

    /// The writes of a transfer: both balances, and the row that shows that it was done. The balances are those that
    /// were read under the locks, so the writes are right only in a commit under the same locks.
    pub(crate) fn writes(&self, done: &Done) -> Result<[TransactWriteItem; 3], Failure> {
        let Done { transfer, from_balance, to_balance, fencing_token } = done;
        Ok([
            self.record(done)?,
            self.set_balance(&transfer.from, *from_balance, *fencing_token)?,
            self.set_balance(&transfer.to, *to_balance, *fencing_token)?,
        ])
    }

    fn set_balance(&self, account: &str, balance: u64, fencing_token: u64) -> Result<TransactWriteItem, Failure> {
        let update = Update::builder()
            .table_name(&self.accounts)
            .key("accountId", text(account))
            .update_expression("SET #balance = :balance, #fencingToken = :fencingToken")
            .expression_attribute_names("#balance", "balance")
            .expression_attribute_names("#fencingToken", "fencingToken")
            .expression_attribute_values(":balance", number_of(balance))
            .expression_attribute_values(":fencingToken", number_of(fencing_token))
            .build()
            .map_err(|error| Failure::work_failed(&error))?;
        Ok(TransactWriteItem::builder().update(update).build())
    }

    /// The same id with other accounts is another set of locks, so the condition decides between the two.
    fn record(&self, done: &Done) -> Result<TransactWriteItem, Failure> {
        let Done { transfer, from_balance, to_balance, fencing_token } = done;
        let put = Put::builder()
            .table_name(&self.transfers)
            .item("transferId", text(&transfer.id))
            .item("from", text(&transfer.from))
            .item("to", text(&transfer.to))
            .item("amount", number_of(transfer.amount))
            .item("fromBalance", number_of(*from_balance))
            .item("toBalance", number_of(*to_balance))
            .item("fencingToken", number_of(*fencing_token))
            .condition_expression("attribute_not_exists(#transferId)")
            .expression_attribute_names("#transferId", "transferId")
            .build()
            .map_err(|error| Failure::work_failed(&error))?;
        Ok(TransactWriteItem::builder().put(put).build())
    }

    async fn row(&self, table: &str, key: &str, value: &str) -> Result<Option<Row>, Failure> {
        let get = self.dynamodb.get_item().table_name(table).key(key, text(value)).consistent_read(true);
        let read = get.send().await;
        let failed = |error| Failure::work_failed(&format_args!("{table} was not read: {}", with_causes(&error)));
        Ok(read.map_err(failed)?.item)
    }
}

fn done(id: &str, row: &Row) -> Option<Done> {
    let text = |name: &str| row.get(name)?.as_s().ok().cloned();
    Some(Done {
        transfer: Transfer { id: id.to_owned(), from: text("from")?, to: text("to")?, amount: number(row, "amount")? },
        from_balance: number(row, "fromBalance")?,
        to_balance: number(row, "toBalance")?,
        fencing_token: number(row, "fencingToken")?,
    })
}

fn unreadable(what: impl Display) -> Failure {
    Failure::work_failed(&format_args!("{what} cannot be read"))
}

fn text(text: &str) -> AttributeValue {
    AttributeValue::S(text.to_owned())
}

fn number_of(number: u64) -> AttributeValue {
    AttributeValue::N(number.to_string())
}

fn number(row: &Row, name: &str) -> Option<u64> {
    row.get(name)?.as_n().ok()?.parse().ok()
}
