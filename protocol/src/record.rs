//! A row as a lock record. It is read strictly, because a row that cannot be understood must never be taken over.

use super::attributes::{Attribute, MAX_ATTRIBUTES, listed};
use super::key::LockKey;
use super::lease::Lease;
use super::line::Line;
use super::schema::{self, Schema};
use super::value::{Item, Value};
use super::version::{OURS, SETTLED, Version};
use std::fmt;
use std::time::Duration;

/// The lease of a row that has no holder: of work that was reset or is over, and of a lock that was frozen before anybody had it.
pub(super) const ENDED: Duration = Duration::from_millis(1);

/// The longest quote from a row, in bytes. An error must not carry a whole row to its caller.
const MAX_QUOTE_BYTES: usize = 64;

/// The contents of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Who holds the lock, or held it last.
    pub owner: String,
    /// The lease that counts for every contender.
    pub lease: Lease,
    /// The version as it stands on the row.
    pub version: String,
    /// The parsed version, when it is one of ours.
    pub own_version: Option<Version>,
    /// Whether the lock was released.
    pub released: bool,
    pub data: Option<Vec<u8>>,
    /// The fencing token. Under a peer's version it may be stale, and is only used as a lower bound.
    pub token: Option<u64>,
    /// The end of the lease in epoch milliseconds. Means nothing under a peer's version.
    pub ends_at_ms: Option<u64>,
    /// The workflow that holds the lock. Means nothing under a peer's version.
    pub workflow: Option<String>,
    /// Why the lock was last broken.
    pub break_reason: Option<String>,
    /// The version that was last broken.
    pub broken_version: Option<String>,
    /// Why the lock is frozen, if it is. Whoever wrote the row last.
    pub freeze_reason: Option<String>,
    /// When the lock was last frozen or thawed, in epoch milliseconds.
    pub freeze_changed_at: Option<u64>,
    /// The line of those who wait. Means nothing under a peer's version.
    pub line: Option<Line>,
    /// The names of the additional attributes that our grants wrote, as the row lists them.
    pub attribute_names: Option<String>,
    /// The additional attributes that are texts or numbers, in no particular order. Under a peer's version these are
    /// all attributes that do not belong to the record, as peers have it.
    pub attributes: Vec<(String, Attribute)>,
}

impl Record {
    /// Reads a row strictly.
    pub fn read(mut item: Item, schema: &Schema) -> Result<Self, InvalidRecord> {
        let mut fields = Fields { item: &mut item, schema };
        let version = fields.required_text(schema::VERSION)?;
        let owner = fields.required_text(schema::OWNER)?;
        let lease = fields.lease()?;
        let record = Self {
            owner,
            lease,
            own_version: Version::parse(&version),
            version,
            released: fields.text(schema::RELEASED)?.is_some(),
            data: fields.bytes(schema::DATA)?,
            token: fields.token()?,
            ends_at_ms: fields.number(schema::ENDS)?,
            workflow: fields.text(schema::WORKFLOW)?,
            break_reason: fields.text(schema::BREAK_REASON)?,
            broken_version: fields.text(schema::BROKEN_VERSION)?,
            freeze_reason: fields.text(schema::FREEZE_REASON)?,
            freeze_changed_at: fields.number(schema::FREEZE_CHANGED_AT)?,
            line: fields.line()?,
            attribute_names: fields.attribute_names()?,
            attributes: Vec::new(),
        };
        Ok(Self { attributes: record.additional(&item, schema), ..record })
    }

    /// Reads a row that is to be held or frozen by a client with this schema. Refuses the TTL attribute of clients with
    /// another one, because DynamoDB would delete the row by it.
    pub(super) fn read_to_hold(mut item: Item, schema: &Schema) -> Result<Self, InvalidRecord> {
        refuse_other_ttl(&mut item, schema)?;
        Self::read(item, schema)
    }

    /// The same, of the row of idempotent work whose outcome no longer counts: as that of a lock that nobody holds. It has no
    /// lease.
    pub(super) fn read_over_to_hold(mut item: Item, schema: &Schema) -> Result<Self, InvalidRecord> {
        item.set(schema::LEASE, Value::S(Lease::new(ENDED, schema.dialect).text().to_owned()));
        Ok(Self { released: true, ..Self::read_to_hold(item, schema)? })
    }

    /// Reads a row that was just granted. The write added one to the token, so a token of zero is an error.
    pub(super) fn read_granted(mut item: Item, schema: &Schema) -> Result<Self, InvalidRecord> {
        let record = Self::read(item.clone(), schema)?;
        match record.token {
            Some(0) => Err(Fields { item: &mut item, schema }
                .invalid(schema::TOKEN, "below zero, but must be 0 or more".to_owned())),
            _ => Ok(record),
        }
    }

    /// The additional attributes among these.
    fn additional(&self, item: &Item, schema: &Schema) -> Vec<(String, Attribute)> {
        let is_listed = |name: &str| listed(self.attribute_names.as_deref().unwrap_or_default()).any(|one| one == name);
        item.iter()
            .filter(|(name, _)| (!self.is_ours() || is_listed(name)) && !schema.reserves(name))
            .filter_map(|(name, value)| Some((name.to_owned(), Attribute::read(value)?)))
            .collect()
    }

    /// Whether the lock is free because it was broken, and not because its holder released it.
    pub fn is_broken(&self) -> bool {
        self.released && self.broken_version.as_ref() == Some(&self.version)
    }

    /// Whether the last write was one of ours, so that it also wrote the token and the lease end.
    pub fn is_ours(&self) -> bool {
        self.version.starts_with(OURS)
    }

    /// Whether a Claim with this `:now` would be applied, if nobody waits in line: the row is ours, released, ended before
    /// that, and not frozen.
    pub(super) fn is_free_of_ours(&self, now: u64) -> bool {
        self.freeze_reason.is_none()
            && self.is_ours()
            && self.released
            && self.ends_at_ms.is_some_and(|ends_at_ms| ends_at_ms <= now)
    }

    /// The end of the lease by the writer's wall clock. `None` where the attribute means nothing.
    pub fn believable_end(&self) -> Option<u64> {
        self.ends_at_ms.filter(|_| self.is_ours())
    }

    /// The line of those who wait. `None` where there never was one, and where the attributes mean nothing.
    pub fn believable_line(&self) -> Option<&Line> {
        self.line.as_ref().filter(|_| self.is_ours())
    }

    /// The workflow that holds the lock. `None` where the attribute means nothing.
    pub fn believable_workflow(&self) -> Option<&str> {
        self.workflow.as_deref().filter(|_| self.is_ours() && !self.released)
    }
}

fn refuse_other_ttl(item: &mut Item, schema: &Schema) -> Result<(), InvalidRecord> {
    let found = match item.get(schema::TTL_NAME) {
        Some(Value::S(name)) if Some(name.as_str()) != schema.named_ttl() => quoted(name),
        Some(Value::S(_)) | None => return Ok(()),
        Some(other) => format!("of type {}", other.type_name()),
    };
    Err(Fields { item, schema }.invalid(schema::TTL_NAME, found))
}

/// A row that is not a lock record: its key, the wrong attribute, and what was found there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidRecord {
    key: String,
    attribute: String,
    found: String,
}

impl InvalidRecord {
    /// Of a row whose token is so large that no larger one can follow.
    pub(super) fn of_last_token(key: &LockKey, schema: &Schema, token: u64) -> Self {
        let found = format!("{token}, but must be smaller, so that a larger token can follow");
        Self::of(key, schema, schema::TOKEN, found)
    }

    /// Of a row whose attribute has a value that cannot be.
    pub(super) fn of(key: &LockKey, schema: &Schema, attribute: &str, found: String) -> Self {
        let part = |name: &str, value: &str| format!("{name}={}", quoted(value));
        let mut row = part(&schema.key_attribute, key.key());
        if let (Some(name), Some(sort_key)) = (&schema.sort_key_attribute, key.sort_key()) {
            row = format!("{row}, {}", part(name, sort_key));
        }
        Self { key: row, attribute: attribute.to_owned(), found }
    }

    /// The attribute that is wrong.
    pub fn attribute(&self) -> &str {
        &self.attribute
    }
}

impl fmt::Display for InvalidRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, attribute, found } = self;
        if attribute == schema::TTL_NAME {
            return write!(
                f,
                "the row {key} was written by a client whose TTL attribute is {found}, and this client has another one or none: \
                 give all clients of the table the same TTL attribute"
            );
        }
        write!(
            f,
            "the row {key} is not a lock record: its attribute {attribute:?} is {found}; look at the row, then repair or delete it"
        )
    }
}

impl std::error::Error for InvalidRecord {}

/// Whether a row is a settled record. It is not a lock, and cannot become one before its time is over.
pub fn is_settled(row: &Item) -> bool {
    row.text(schema::VERSION).is_some_and(|version| version.starts_with(SETTLED))
}

/// Puts a text in quotation marks, and cuts it where it is long.
pub fn quoted(text: &str) -> String {
    let quote = &text[..text.floor_char_boundary(MAX_QUOTE_BYTES)];
    if quote.len() < text.len() { format!("{quote:?}… ({} bytes)", text.len()) } else { format!("{text:?}") }
}

/// Reads a row attribute by attribute.
pub(super) struct Fields<'a> {
    pub(super) item: &'a mut Item,
    pub(super) schema: &'a Schema,
}

impl Fields<'_> {
    pub(super) fn required_text(&mut self, name: &str) -> Result<String, InvalidRecord> {
        self.text(name)?.ok_or_else(|| self.invalid(name, "missing".to_owned()))
    }

    pub(super) fn required_number(&mut self, name: &str) -> Result<u64, InvalidRecord> {
        self.number(name)?.ok_or_else(|| self.invalid(name, "missing".to_owned()))
    }

    pub(super) fn text(&mut self, name: &str) -> Result<Option<String>, InvalidRecord> {
        match self.item.remove(name) {
            None => Ok(None),
            Some(Value::S(text)) => Ok(Some(text)),
            Some(other) => Err(self.wrong_type(name, "S", &other)),
        }
    }

    fn lease(&mut self) -> Result<Lease, InvalidRecord> {
        let lease = self.required_text(schema::LEASE)?;
        Lease::parse(&lease).ok_or_else(|| {
            self.invalid(schema::LEASE, format!("{}, but must be milliseconds or a Go duration", quoted(&lease)))
        })
    }

    fn bytes(&mut self, name: &str) -> Result<Option<Vec<u8>>, InvalidRecord> {
        match self.item.remove(name) {
            None => Ok(None),
            Some(Value::B(bytes)) => Ok(Some(bytes)),
            Some(other) => Err(self.wrong_type(name, "B", &other)),
        }
    }

    pub(super) fn number(&mut self, name: &str) -> Result<Option<u64>, InvalidRecord> {
        match self.item.remove(name) {
            None => Ok(None),
            Some(Value::N(number)) => match number.parse() {
                Ok(number) => Ok(Some(number)),
                Err(_) => {
                    Err(self.invalid(name, format!("{number}, but must be a whole number from 0 to {}", u64::MAX - 1)))
                }
            },
            Some(other) => Err(self.wrong_type(name, "N", &other)),
        }
    }

    /// Reads the fencing token. Refuses the largest number, because no larger token could follow it.
    fn token(&mut self) -> Result<Option<u64>, InvalidRecord> {
        match self.number(schema::TOKEN)? {
            Some(u64::MAX) => Err(self.invalid(
                schema::TOKEN,
                format!("{}, but must be smaller, so that a larger token can follow", u64::MAX),
            )),
            token => Ok(token),
        }
    }

    fn line(&mut self) -> Result<Option<Line>, InvalidRecord> {
        // Who sleeps and who has left decide nothing but whom a release wakes, and who is waited for. So whatever else stands
        // there is ignored.
        let line = Line::of_row(self.item);
        let (last, served) = (self.number(schema::LAST_TICKET)?, self.number(schema::SERVED_TICKET)?);
        Ok(last.and(line.map(|line| Line { served, ..line })))
    }

    /// Reads the names of additional attributes. Refuses more than a grant can write, because a request could not
    /// remove them.
    fn attribute_names(&mut self) -> Result<Option<String>, InvalidRecord> {
        match self.text(schema::ATTRIBUTE_NAMES)? {
            Some(names) if listed(&names).count() > MAX_ATTRIBUTES => Err(self.invalid(
                schema::ATTRIBUTE_NAMES,
                format!("a list of {} names, but must have at most {MAX_ATTRIBUTES}", listed(&names).count()),
            )),
            names => Ok(names),
        }
    }

    fn wrong_type(&self, name: &str, wanted: &str, found: &Value) -> InvalidRecord {
        self.invalid(name, format!("of type {}, but must be of type {wanted}", found.type_name()))
    }

    pub(super) fn invalid(&self, attribute: &str, found: String) -> InvalidRecord {
        let part = |name: &str| format!("{name}={}", self.item.text(name).map_or_else(|| "?".to_owned(), quoted));
        let mut key = part(&self.schema.key_attribute);
        if let Some(name) = &self.schema.sort_key_attribute {
            key = format!("{key}, {}", part(name));
        }
        InvalidRecord { key, attribute: attribute.to_owned(), found }
    }
}

#[cfg(test)]
mod tests {
    use super::super::schema::Ttl;
    use super::*;
    use std::time::Duration;

    fn java_row() -> Item {
        [
            ("key", Value::S("customer-7".to_owned())),
            ("ownerName", Value::S("host-1".to_owned())),
            ("leaseDuration", Value::S("20000".to_owned())),
            ("recordVersionNumber", Value::S("b2c6a6e2-37cb-4bd9-9cdd-1b0f0d1f9c3e".to_owned())),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into_iter()
        .collect()
    }

    fn with(name: &str, value: Value) -> Item {
        let mut item = java_row();
        item.set(name, value);
        item
    }

    fn without(name: &str) -> Item {
        let mut item = java_row();
        item.remove(name);
        item
    }

    fn read(item: Item) -> Result<Record, InvalidRecord> {
        Record::read(item, &Schema::default())
    }

    #[test]
    fn a_peers_row_is_read_and_our_own_attributes_in_it_are_ignored() {
        let mut item = with("leaseEndsAt", Value::N("5".to_owned()));
        item.set("workflow", Value::S("arn".to_owned()));
        let record = read(item).unwrap();
        assert!(!record.is_ours());
        assert_eq!(record.lease.duration(), Duration::from_secs(20));
        assert_eq!(record.believable_end(), None);
        assert_eq!(record.believable_workflow(), None);
    }

    #[test]
    fn a_row_without_version_owner_or_lease_is_not_a_lock_record() {
        for name in ["recordVersionNumber", "ownerName", "leaseDuration"] {
            let error = read(without(name)).unwrap_err();
            assert_eq!(error.attribute(), name);
            assert!(error.to_string().contains("customer-7"), "{error}");
        }
    }

    #[test]
    fn attributes_of_wrong_types_are_reported_by_name() {
        let wrong = [
            ("ownerName", Value::N("1".to_owned())),
            ("leaseDuration", Value::N("20000".to_owned())),
            ("leaseDuration", Value::S("soon".to_owned())),
            ("recordVersionNumber", Value::B(vec![1])),
            ("isReleased", Value::Other("BOOL")),
            ("data", Value::S("text".to_owned())),
            ("fencingToken", Value::S("7".to_owned())),
            ("fencingToken", Value::N("-7".to_owned())),
            ("fencingToken", Value::N("7.5".to_owned())),
            ("leaseEndsAt", Value::Other("M")),
            ("workflow", Value::Other("NULL")),
            ("freezeReason", Value::N("1".to_owned())),
            ("freezeChangedAt", Value::S("1".to_owned())),
            ("lastTicket", Value::S("1".to_owned())),
            ("servedTicket", Value::N("-1".to_owned())),
            ("attributeNames", Value::Other("SS")),
            ("attributeNames", Value::S("a,".repeat(21))),
        ];
        for (name, value) in wrong {
            assert_eq!(read(with(name, value.clone())).unwrap_err().attribute(), name, "{value:?}");
        }
    }

    #[test]
    fn additional_attributes_are_those_that_we_listed_and_all_unknown_ones_of_a_peer() {
        let text = |text: &str| Value::S(text.to_owned());
        let schema =
            Schema { ttl: Some(Ttl { attribute: "ttl".to_owned(), retention: Duration::ZERO }), ..Schema::default() };
        let mut item = with("job", text("nightly"));
        for (name, value) in [
            ("shard", Value::N("5".to_owned())),
            ("tags", Value::Other("SS")),
            ("ttl", Value::N("1".to_owned())),
            ("outcome", text("[]")),
            // A hostile list: it has names of the record, of the key and of the TTL attribute.
            ("attributeNames", text("job,,tags,key,ttl,outcome,ownerName")),
        ] {
            item.set(name, value);
        }
        let read = |item: Item| {
            let mut attributes = Record::read(item, &schema).unwrap().attributes;
            attributes.sort_by(|(one, _), (other, _)| one.cmp(other));
            attributes
        };
        let (job, shard) = (("job".to_owned(), "nightly".into()), ("shard".to_owned(), 5.into()));

        assert_eq!(read(item.clone()), [job.clone(), shard]);
        item.set("recordVersionNumber", text("ll1-00000000000040008000000000000000-0000000013880000000000000009"));
        assert_eq!(read(item), [job]);
    }

    #[test]
    fn the_report_names_both_keys_of_a_composite_row() {
        let schema = Schema { sort_key_attribute: Some("sk".to_owned()), ..Schema::default() };
        let mut item = without("ownerName");
        item.set("sk", Value::S("part".to_owned()));
        let report = Record::read(item, &schema).unwrap_err().to_string();
        assert!(report.contains(r#"key="customer-7", sk="part""#), "{report}");
    }
}
