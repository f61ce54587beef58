//! List: reads all locks of a table, page by page, for operators.

use super::peek::PeekedLock;
use crate::engine::attributes::{self, Attributes};
use crate::engine::error::{Error, ErrorKind};
use crate::engine::{Engine, table};
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{AttributeValue, ReturnConsumedCapacity};
use lambda_lock_protocol::{LockKey, Operation, Record, WAKE, is_settled};
use std::num::NonZeroU32;
use std::sync::Arc;

/// The pages of a [list](crate::operator::Operator::list). Each [`next`](List::next) reads one.
///
/// ```no_run
/// # async fn example(locks: &lambda_lock::LockClient) -> Result<(), lambda_lock::Error> {
/// use lambda_lock::operator::ListedRow;
///
/// let mut pages = locks.operator().list();
/// while let Some(page) = pages.next().await? {
///     for listed in page.rows {
///         if let ListedRow::Lock(lock) = listed.row {
///             println!("{}: {}", listed.key, lock.holder);
///         }
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[must_use = "a list reads nothing until its first page is asked for"]
#[derive(Debug)]
pub struct List {
    engine: Arc<Engine>,
    dynamodb: Client,
    page_size: Option<NonZeroU32>,
    position: Position,
}

/// Where the next page begins.
#[derive(Clone, Debug)]
enum Position {
    Start,
    After(Attributes),
    /// There is no further page.
    End,
}

/// One page of a [`List`].
#[derive(Debug)]
#[non_exhaustive]
pub struct ListedPage {
    /// The rows of the page. A page may be empty although others follow.
    pub rows: Vec<Listed>,
    /// How many rows DynamoDB read for the page. With a [prefix](crate::LockClient::prefixed) it reads all rows and returns
    /// those whose key begins with it.
    pub rows_read: u64,
    /// How many read units the page cost.
    pub read_units: f64,
}

/// A row of the lock table.
#[derive(Debug)]
#[non_exhaustive]
pub struct Listed {
    /// The whole key, with its prefix.
    pub key: LockKey,
    /// What the row is.
    pub row: ListedRow,
}

/// What a row of the lock table is.
#[derive(Debug)]
#[non_exhaustive]
pub enum ListedRow {
    /// A lock, or idempotent work that has no outcome yet.
    Lock(PeekedLock),
    /// The record of idempotent work that has an outcome.
    Outcome,
    /// How to wake a caller that sleeps until it is its turn.
    WakeItem,
    /// No lock record. The error says what is wrong with it.
    Invalid(Error),
}

impl List {
    pub(crate) fn new(engine: &Arc<Engine>) -> Self {
        Self { engine: engine.clone(), dynamodb: table::client(engine), page_size: None, position: Position::Start }
    }

    /// Sets how many rows DynamoDB reads for a page at most. Default: as many as are in 1 MB.
    pub fn page_size(mut self, rows: NonZeroU32) -> Self {
        self.page_size = Some(rows);
        self
    }

    /// Reads the next page. Returns `None` after the last one.
    ///
    /// # Errors
    /// Returns `Table` or `Denied`, or `Unavailable` or `Unknown` when DynamoDB throttles the request or does not respond.
    /// After an error the same page can be asked for again.
    ///
    /// # Requests and IAM actions
    /// It sends one `Scan` (`dynamodb:Scan`), eventually consistent, with the SDK's own retries. It costs half a read unit
    /// for each 4 KB that it reads.
    ///
    /// # Cancel safety
    /// It is cancel safe: the next call reads the same page.
    pub async fn next(&mut self) -> Result<Option<ListedPage>, Error> {
        let start = match &self.position {
            Position::Start => None,
            Position::After(key) => Some(key.clone()),
            Position::End => return Ok(None),
        };
        let schema = &self.engine.settings.schema;
        let mut scan = self
            .dynamodb
            .scan()
            .table_name(&self.engine.table)
            .return_consumed_capacity(ReturnConsumedCapacity::Total)
            .set_exclusive_start_key(start);
        if let Some(rows) = self.page_size {
            scan = scan.limit(rows.get().try_into().unwrap_or(i32::MAX));
        }
        let prefix = self.engine.key_prefix.as_str();
        if !prefix.is_empty() {
            scan = scan
                .filter_expression("begins_with(#key, :prefix)")
                .expression_attribute_names("#key", &schema.key_attribute)
                .expression_attribute_values(":prefix", AttributeValue::S(prefix.to_owned()));
        }
        let page = table::asked(&self.engine, "read", scan.send()).await?;
        self.position = page.last_evaluated_key.map_or(Position::End, Position::After);
        let rows = page.items.unwrap_or_default().into_iter().map(|item| self.listed(item)).collect::<Result<_, _>>();
        // No page of such a table can be read.
        let rows = rows.inspect_err(|_| self.position = Position::Start)?;
        Ok(Some(ListedPage {
            rows,
            rows_read: u64::try_from(page.scanned_count).unwrap_or_default(),
            read_units: page.consumed_capacity.and_then(|consumed| consumed.capacity_units).unwrap_or_default(),
        }))
    }

    /// Every row has the table's key attributes. They are texts, or the table is none of these locks.
    fn listed(&self, item: Attributes) -> Result<Listed, Error> {
        let schema = &self.engine.settings.schema;
        let text = |name: &String| {
            let text = item.get(name).and_then(|key| key.as_s().ok()).cloned();
            text.ok_or_else(|| {
                Error::new(ErrorKind::Table, format!(
                    "the key of the table {:?} is not as this client expects: a row has no text {name:?}; check its key schema",
                    self.engine.table
                ))
            })
        };
        let sort_key = schema.sort_key_attribute.as_ref().map(text).transpose()?;
        let key = LockKey::new(text(&schema.key_attribute)?, sort_key);
        let item = attributes::item(item);
        let row = if key.key().starts_with(WAKE) {
            ListedRow::WakeItem
        } else if is_settled(&item) {
            ListedRow::Outcome
        } else {
            match Record::read(item, schema) {
                Ok(record) => ListedRow::Lock(record.into()),
                Err(invalid) => ListedRow::Invalid(Error::of_failure(invalid.into(), Operation::Read, &[&key], None)),
            }
        };
        Ok(Listed { key, row })
    }
}
