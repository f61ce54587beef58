//! `history`: what happened to a lock, from the table's stream.

use crate::arguments::HistoryOptions;
use crate::changes::{Between, Image, between};
use crate::connection;
use crate::exit::{self, Failure, is_denied, of_request};
use crate::record;
use crate::screen;
use aws_sdk_dynamodb::types as dynamodb;
use aws_sdk_dynamodbstreams::Client;
use aws_sdk_dynamodbstreams::types::{AttributeValue, Record as Change, Shard, ShardIteratorType, StreamViewType};
use lambda_lock::{LockKey, operator::PeekedLock};
use lambda_lock_protocol::{Item, Record, Schema, Value, is_settled};
use lambda_lock_timeline::Event;
use std::collections::{BTreeMap, HashMap};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

/// An open shard has no end, and may answer with nothing many times before its records come. So long without a record is taken
/// as its end, where no change of the lock is known that has not come.
const SILENCE: Duration = Duration::from_secs(10);
/// As [`SILENCE`], where one is known.
const LONG_SILENCE: Duration = Duration::from_secs(30);
/// How far back a stream goes.
const STREAM: Duration = Duration::from_secs(24 * 3600);
/// By how much DynamoDB's clock may be ahead of this machine's. An open shard of a busy table always has more records: what was
/// written so much after the command began is no longer looked for.
const AHEAD: Duration = Duration::from_secs(5);
/// DynamoDB allows five reads of a shard per second.
const PAUSE: Duration = Duration::from_millis(200);

pub(crate) async fn history(connection: &connection::Options, options: &HistoryOptions) -> Result<ExitCode, Failure> {
    let (key, until) = (options.key.key(), SystemTime::now() + AHEAD);
    connection.check_sort_key(&key)?;
    let (streams, stream) = stream(connection).await?;
    let row = row(connection, &key).await?;
    let (shards, is_since) = shards(&streams, &stream).await?;
    let is_expected = row
        .as_ref()
        .and_then(|row| written(row, &connection.schema()))
        .is_some_and(|at| is_since.is_none_or(|since| at > since));
    let silence = if is_expected { LONG_SILENCE } else { SILENCE };
    let mut events = Vec::new();
    let (mut seen, mut has_come) = (0, false);
    // Those that are open have no order among each other: a row is in one of them.
    let (closed, open): (Vec<_>, Vec<_>) = shards.into_iter().partition(|shard| last_of(shard).is_some());
    for shards in closed.chunks(1).chain([&open[..]]) {
        let read = read(&streams, &stream, shards, (silence, until), |change| {
            seen += 1;
            screen::progress(format_args!("{seen} changes read"));
            events.extend(events_of(connection, &key, &change));
            // The lock as it is. What comes behind it has happened since the command began.
            let image = change.dynamodb.and_then(|change| change.new_image);
            has_come |= row.is_some() && row == image.as_ref().map(item);
            has_come
        });
        if read.await? {
            break;
        }
    }
    screen::progress_ends();
    let mut out = anstream::stdout().lock();
    for event in &events {
        record::write(&mut out, event, options.format.json)?;
    }
    if is_expected && !has_come {
        let message =
            "the last change of the lock is missing: the stream has not brought it yet. Try again later".to_owned();
        return Err(Failure::Sdk { message, code: exit::UNAVAILABLE });
    }
    if events.is_empty() {
        screen::tell("The stream has nothing about this lock. It goes back 24 hours.");
    }
    Ok(ExitCode::SUCCESS)
}

/// The row as it is now. Where it may not be read, the stream is read until nothing comes.
async fn row(connection: &connection::Options, key: &LockKey) -> Result<Option<Item>, Failure> {
    let schema = connection.schema();
    let get = connection.dynamodb(connection.config().await?).get_item().table_name(connection.table());
    let mut get = get.key(schema.key_attribute, dynamodb::AttributeValue::S(key.key().to_owned()));
    if let Some((name, sort_key)) = schema.sort_key_attribute.zip(key.sort_key()) {
        get = get.key(name, dynamodb::AttributeValue::S(sort_key.to_owned()));
    }
    let row = match get.consistent_read(true).send().await {
        Ok(read) => read.item,
        Err(error) if is_denied(&error) => None,
        Err(error) => return Err(of_request(&error, connection.table())),
    };
    Ok(row.map(|row| {
        sorted(row.into_iter().map(|(name, attribute)| {
            let value = match attribute {
                dynamodb::AttributeValue::S(text) => Value::S(text),
                dynamodb::AttributeValue::N(number) => Value::N(number),
                dynamodb::AttributeValue::B(bytes) => Value::B(bytes.into_inner()),
                dynamodb::AttributeValue::Ns(numbers) => Value::Ns(numbers),
                _ => Value::Other("of another type"),
            };
            (name, value)
        }))
    }))
}

/// When the holder says that it wrote the row. Of rows of others it is not known.
fn written(row: &Item, schema: &Schema) -> Option<SystemTime> {
    let lock = PeekedLock::from(Record::read(row.clone(), schema).ok()?);
    let at = if lock.released { lock.lease_ends_at } else { lock.renewed_at };
    at.max(lock.freeze_changed_at)
}

/// The table's stream, with both images of each row.
async fn stream(connection: &connection::Options) -> Result<(Client, String), Failure> {
    let config = connection.config().await?;
    let described = connection.dynamodb(config).describe_table().table_name(connection.table()).send().await;
    let table = described.map_err(|error| of_request(&error, connection.table()))?.table;
    let stream = table.and_then(|table| Some((table.latest_stream_arn?, table.stream_specification?)));
    match stream {
        Some((arn, specification))
            if specification.stream_view_type.as_ref().map(|view| view.as_str())
                == Some(StreamViewType::NewAndOldImages.as_str()) =>
        {
            Ok((connection.streams(config), arn))
        }
        Some((_, specification)) if specification.stream_enabled => Err(Failure::Usage(format!(
            "the table's stream has {} alone, and the history needs NEW_AND_OLD_IMAGES. DynamoDB does not change that while the \
             stream is on. If nothing reads the stream, turn it off: aws dynamodb update-table --table-name {} \
             --stream-specification StreamEnabled=false; then turn one on with \
             StreamEnabled=true,StreamViewType=NEW_AND_OLD_IMAGES. It has another ARN, which its readers need",
            specification.stream_view_type.as_ref().map_or("no images", |view| view.as_str()),
            connection.table()
        ))),
        _ => Err(Failure::Usage(format!(
            "the table has no stream with old and new images, so nobody knows its history. To switch it on: aws dynamodb \
             update-table --table-name {} --stream-specification StreamEnabled=true,StreamViewType=NEW_AND_OLD_IMAGES",
            connection.table()
        ))),
    }
}

/// The shards of the stream, and since when it has all changes.
async fn shards(streams: &Client, stream: &str) -> Result<(Vec<Shard>, Option<SystemTime>), Failure> {
    let (mut shards, mut last) = (Vec::new(), None);
    let mut since = SystemTime::now().checked_sub(STREAM);
    loop {
        let request = streams.describe_stream().stream_arn(stream).set_exclusive_start_shard_id(last);
        let Some(described) = request.send().await.map_err(|error| of_request(&error, stream))?.stream_description
        else {
            return Ok((shards, since));
        };
        let begun = described.creation_request_date_time.and_then(|begun| SystemTime::try_from(begun).ok());
        since = since.max(begun);
        shards.extend(described.shards.unwrap_or_default());
        last = described.last_evaluated_shard_id;
        if last.is_none() {
            return Ok((parents_first(shards), since));
        }
    }
}

/// The changes of a row are in the order of its shards: a shard goes on where its parent ended. Clocks of writers have another.
fn parents_first(mut shards: Vec<Shard>) -> Vec<Shard> {
    let parents: HashMap<_, _> =
        shards.iter().map(|shard| (shard.shard_id.clone(), shard.parent_shard_id.clone())).collect();
    // A parent that is not listed is older than the stream goes back.
    let ancestors = |shard: &Shard| {
        let parent = |id: &Option<String>| parents.get(id).filter(|parent| parent.is_some()).cloned();
        std::iter::successors(parent(&shard.shard_id), parent).take(parents.len()).count()
    };
    shards.sort_by_cached_key(ancestors);
    shards
}

/// Where a shard is read.
struct Cursor {
    /// The last record of a closed shard.
    last: Option<String>,
    /// `None` when it was read to its end.
    next: Option<String>,
}

impl Cursor {
    async fn at_the_beginning(streams: &Client, stream: &str, shard: &Shard) -> Result<Self, Failure> {
        let from = streams.get_shard_iterator().stream_arn(stream).set_shard_id(shard.shard_id.clone());
        let begun = from
            .shard_iterator_type(ShardIteratorType::TrimHorizon)
            .send()
            .await
            .map_err(|error| of_request(&error, stream))?;
        Ok(Self { last: last_of(shard).map(str::to_owned), next: begun.shard_iterator })
    }

    /// Returns the next records. None come after those that were written after this time.
    async fn read(&mut self, streams: &Client, stream: &str, until: SystemTime) -> Result<Vec<Change>, Failure> {
        let Some(iterator) = self.next.take() else { return Ok(Vec::new()) };
        let page =
            streams.get_records().shard_iterator(iterator).send().await.map_err(|error| of_request(&error, stream))?;
        let records = page.records.unwrap_or_default();
        let newest = records.last().and_then(|record| record.dynamodb.as_ref()?.sequence_number.as_deref());
        let is_over = match &self.last {
            Some(last) => newest.is_some_and(|newest| in_order(newest) >= in_order(last)),
            None => records.last().and_then(written_at).is_some_and(|at| at > until),
        };
        self.next = page.next_shard_iterator.filter(|_| !is_over);
        Ok(records)
    }
}

/// A closed shard has a last record.
fn last_of(shard: &Shard) -> Option<&str> {
    shard.sequence_number_range.as_ref().and_then(|range| range.ending_sequence_number.as_deref())
}

/// Reads shards by turns, until a change is the last that is wanted, all were read to their ends, or nothing comes from open ones for
/// so long. Returns whether the last one came.
async fn read(
    streams: &Client,
    stream: &str,
    shards: &[Shard],
    (silence, until): (Duration, SystemTime),
    mut each: impl FnMut(Change) -> bool,
) -> Result<bool, Failure> {
    let mut cursors = Vec::new();
    for shard in shards {
        cursors.push(Cursor::at_the_beginning(streams, stream, shard).await?);
    }
    let mut heard = Instant::now();
    loop {
        cursors.retain(|cursor| cursor.next.is_some());
        let mut is_silent = true;
        for cursor in &mut cursors {
            let records = cursor.read(streams, stream, until).await?;
            is_silent &= records.is_empty();
            // Also those behind the last one that is wanted.
            if records.into_iter().map(&mut each).filter(|is_last| *is_last).count() > 0 {
                return Ok(true);
            }
        }
        let are_open = cursors.iter().all(|cursor| cursor.last.is_none());
        if cursors.is_empty() || is_silent && are_open && heard.elapsed() >= silence {
            return Ok(false);
        }
        if is_silent {
            tokio::time::sleep(PAUSE).await;
        } else {
            heard = Instant::now();
        }
    }
}

fn written_at(change: &Change) -> Option<SystemTime> {
    SystemTime::try_from(change.dynamodb.as_ref()?.approximate_creation_date_time?).ok()
}

/// Sequence numbers have up to 40 digits.
fn in_order(sequence_number: &str) -> (usize, &str) {
    let digits = sequence_number.trim_start_matches('0');
    (digits.len(), digits)
}

/// What a change of a row was, if the row is that of the lock.
fn events_of(connection: &connection::Options, key: &LockKey, change: &Change) -> Vec<Event> {
    let seen = written_at(change);
    let Some(change) = change.dynamodb.as_ref() else { return Vec::new() };
    let schema = connection.schema();
    let text = |name: &String| change.keys.as_ref()?.get(name)?.as_s().ok().cloned();
    let sort_key = schema.sort_key_attribute.as_ref().and_then(text);
    if text(&schema.key_attribute).is_none_or(|name| LockKey::new(name, sort_key) != *key) {
        return Vec::new();
    }
    let image = |image: &Option<HashMap<String, AttributeValue>>| {
        let Some(image) = image.as_ref().filter(|image| !image.is_empty()) else { return Image::Missing };
        let item = item(image);
        if is_settled(&item) {
            return Image::Settled;
        }
        Record::read(item, &schema).map_or(Image::Other, |record| Image::Lock(Box::new(PeekedLock::from(record))))
    };
    let (before, after) = (image(&change.old_image), image(&change.new_image));
    between(key, &before, &after, Between::OneWrite, seen.unwrap_or_else(SystemTime::now))
}

fn item(image: &HashMap<String, AttributeValue>) -> Item {
    sorted(image.iter().map(|(name, attribute)| (name.clone(), value(attribute))))
}

/// In one order, so that two of them can be compared.
fn sorted(attributes: impl Iterator<Item = (String, Value)>) -> Item {
    attributes.collect::<BTreeMap<_, _>>().into_iter().collect()
}

fn value(attribute: &AttributeValue) -> Value {
    match attribute {
        AttributeValue::S(text) => Value::S(text.clone()),
        AttributeValue::N(number) => Value::N(number.clone()),
        AttributeValue::B(bytes) => Value::B(bytes.as_ref().to_vec()),
        AttributeValue::Ns(numbers) => Value::Ns(numbers.clone()),
        _ => Value::Other("of another type"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_is_read_behind_its_parent_however_they_are_listed() {
        let shard = |(id, parent): (&str, Option<&str>)| {
            Shard::builder().shard_id(id).set_parent_shard_id(parent.map(str::to_owned)).build()
        };
        let mut family =
            [("grandchild", Some("child")), ("child", Some("parent")), ("parent", Some("too old")), ("other", None)];
        for _ in 0..2 {
            let sorted = parents_first(family.map(shard).into());
            let place = |id: &str| sorted.iter().position(|shard| shard.shard_id() == Some(id)).unwrap();
            assert!(place("parent") < place("child") && place("child") < place("grandchild"), "{sorted:?}");
            assert_eq!(sorted.len(), family.len());
            family.reverse();
        }
    }
}
