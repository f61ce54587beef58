//! The crate's requests as arguments of a state.
//!
//! [`Expression::of`] renders a request with sample values. Its texts stand in the arguments as they are. A value that
//! is the same in every request stands there too; each other one is replaced by the JSONata that computes it. All
//! values of a request are one expression, because within one expression `$millis()` is one reading of the clock.

use crate::json::{Json, Object};
use crate::jsonata::{literal, object, query};
use crate::options::{Error, Options};
use lambda_lock_protocol::schema::{ENDS, FREEZE_REASON, LEASE, OWNER, RELEASED, TOKEN, TTL_NAME, VERSION, WORKFLOW};
use lambda_lock_protocol::{
    Action, AttributesChange, DataChange, EarlierNames, Expression, Grant, Lease, LineRule, NewGrant, NextToken, OURS,
    Request, Returns, Schema, Scope, Settings, Stamp, Value, Version, millis_rounded_up,
};
use std::time::Duration;

/// How many characters of a version of ours come before its stamp: the prefix, 32 digits of the grant, and a hyphen.
const BEFORE_STAMP: usize = OURS.len() + 32 + 1;
/// How many digits of a stamp are the time.
const DIGITS_OF_TIME: usize = 12;

/// The requests of one lock.
pub(crate) struct Requests<'a> {
    options: &'a Options,
    schema: Schema,
    lease: Lease,
    lease_ms: u64,
    skew_ms: u64,
}

/// Which request a value is for. A placeholder means different things in different requests.
#[derive(Clone, Copy, PartialEq, Eq)]
enum For {
    Grant,
    Renewal,
    Release,
}

impl<'a> Requests<'a> {
    pub(crate) fn new(options: &'a Options, settings: &Settings) -> Self {
        Self {
            options,
            schema: settings.schema.clone(),
            lease: Lease::new(options.lease, options.dialect),
            lease_ms: millis_rounded_up(options.lease),
            skew_ms: millis_rounded_up(options.max_clock_skew),
        }
    }

    /// Acquires a lock that is free, or whose holder is dead by the wall clock.
    pub(crate) fn claim(&self) -> Result<Object, Error> {
        // States cannot wait in line, so they do not look at it.
        let (looks_at_line, token) = (false, NextToken::FromRow);
        let claim = self.rendered(Action::Claim { grant: self.grant(), trusted: Some(0), looks_at_line, token });
        let values = object(&self.values(&claim, For::Grant)?);
        self.update(Key::Wanted, &claim, claim.condition.as_str(), claim.update.as_str(), &self.granted(&values))
    }

    /// Acquires exactly the version that the state `Look` has seen.
    pub(crate) fn take(&self) -> Result<Object, Error> {
        let take = |held, reclaims, token| {
            let (seen, names) = (String::new(), EarlierNames::Seen(None));
            self.rendered(Action::Take {
                grant: self.grant(),
                seen,
                held,
                reclaims,
                line: LineRule::Ignored,
                token,
                names,
            })
        };
        let released = take(false, false, NextToken::FromRow);
        let (held, own) = (take(true, false, NextToken::FromRow), take(true, true, NextToken::FromRow));
        let of_peer = take(true, false, NextToken::Exactly(0));
        let (ours, peers) = (self.values(&held, For::Grant)?, self.values(&of_peer, For::Grant)?);
        let (common, only_ours): (Vec<_>, Vec<_>) = ours.into_iter().partition(|value| peers.contains(value));
        let of_peers: Vec<_> = peers.into_iter().filter(|value| !common.contains(value)).collect();
        let values =
            format!("$merge([{}, $look.ours ? {} : {}])", object(&common), object(&only_ours), object(&of_peers));
        let (released, held_by) = (literal(&released.condition), [&own, &held].map(|take| literal(&take.condition)));
        let condition = format!("$look.released ? {released} : $look.mine ? {} : {}", held_by[0], held_by[1]);
        let condition = query(&format!("({condition})"));
        let update = choice("$look.ours", &held.update, &of_peer.update);
        self.update(Key::Wanted, &held, &condition, &update, &self.granted(&values))
    }

    /// Extends the lease of `$lock`.
    pub(crate) fn renew(&self) -> Result<Object, Error> {
        let renew = self.rendered(Action::Renew {
            version: sample_version(),
            token: 0,
            known_lease: self.lease.clone(),
            lease: self.lease.clone(),
            ends_at_ms: 0,
            data: DataChange::Keep,
            keep: None,
        });
        let values = object(&self.values(&renew, For::Renewal)?);
        let values = format!(
            "($now := $millis(); $stamp := $max([$now, {}]); $ends := $max([$now + {}, $lock.leaseEndsAt]); {values})",
            after_stamp(),
            self.lease_ms
        );
        self.update(Key::Held, &renew, renew.condition.as_str(), renew.update.as_str(), &values)
    }

    /// Releases `$lock`.
    pub(crate) fn release(&self) -> Result<Object, Error> {
        let scope = Scope::Mine { up_to: sample_version(), token: Some(0) };
        let release = self.rendered(Action::Release {
            scope,
            ends_at_ms: 0,
            data: DataChange::Keep,
            keep: None,
            returns_row: false,
        });
        let values = object(&self.values(&release, For::Release)?);
        let values = format!("($ends := $max([$millis(), {}]); {values})", after_stamp());
        self.update(Key::Held, &release, release.condition.as_str(), release.update.as_str(), &values)
    }

    /// Reads the row. Without the payload, which may be larger than a state's result may be.
    pub(crate) fn peek(&self) -> Object {
        let attributes = [OWNER, LEASE, VERSION, RELEASED, TOKEN, ENDS, WORKFLOW, FREEZE_REASON, TTL_NAME];
        Object::new()
            .with("TableName", self.options.table.as_str())
            .with("Key", self.key(Key::Wanted))
            .with("ConsistentRead", true)
            .with("ProjectionExpression", attributes.join(", "))
    }

    fn rendered(&self, action: Action) -> Expression {
        Expression::of(&Request::alone("".into(), action), &self.schema)
    }

    fn grant(&self) -> NewGrant {
        NewGrant {
            version: sample_version(),
            owner: String::new(),
            lease: self.lease.clone(),
            now: 0,
            ends_at_ms: 0,
            data: DataChange::Keep,
            // To remove those of an earlier grant, a state would have to read their names first.
            attributes: AttributesChange::Keep,
            workflow: Some(String::new()),
            once: None,
        }
    }

    /// The owner comes first: none of the names after it hides a variable of the state machine.
    fn granted(&self, values: &str) -> String {
        let owner = &self.options.owner;
        format!("($me := ({owner}); $now := $millis(); $stamp := $now; $ends := $now + {}; {values})", self.lease_ms)
    }

    /// Returns the placeholders of an expression, each with the JSONata of its value.
    fn values(&self, expression: &Expression, what: For) -> Result<Vec<(&'static str, String)>, Error> {
        expression.values.iter().map(|(name, sample)| Ok((*name, self.value(name, sample, what)?))).collect()
    }

    fn value(&self, name: &str, sample: &Value, what: For) -> Result<String, Error> {
        let random = "$substring($replace($uuid(), '-', ''), 16)";
        let stamp = format!("$pad($formatBase($stamp, 16), -{DIGITS_OF_TIME}, '0') & {random}");
        let computed = match (name, what) {
            (":owner", _) => "$me".to_owned(),
            (":workflow", _) => "$states.context.Execution.Id".to_owned(),
            (":now", _) => "$now".to_owned(),
            (":trusted", _) => format!("$now - {}", self.skew_ms),
            (":ends", _) => "$ends".to_owned(),
            (":seen", _) => "$look.version".to_owned(),
            (":first", _) => format!("$substring($lock.version, 0, {BEFORE_STAMP}) & '0'"),
            (":rvn", For::Grant) => format!("'{OURS}' & $replace($uuid(), '-', '') & '-' & {stamp}"),
            (":rvn", For::Renewal) => format!("$substring($lock.version, 0, {BEFORE_STAMP}) & {stamp}"),
            (":rvn", For::Release) => "$lock.version".to_owned(),
            (":token", For::Grant) => "$max([$look.token + 1, $now])".to_owned(),
            (":token", _) => "$lock.fencingToken".to_owned(),
            (":ttl", _) => {
                let retention = self.schema.ttl.as_ref().map_or(Duration::ZERO, |ttl| ttl.retention);
                format!("$ceil($ends / 1000) + {}", retention.as_secs())
            }
            (":ours" | ":one" | ":lease" | ":released" | ":name", _) => return constant(name, sample),
            _ => {
                return Err(Error::new(format!(
                    "the crate's request has the value {name}, which no state can compute yet: add it to tools/asl/src/requests.rs"
                )));
            }
        };
        Ok(match sample {
            Value::N(_) => format!("{{'N': $string({computed})}}"),
            _ => format!("{{'S': {computed}}}"),
        })
    }

    fn update(
        &self,
        key: Key,
        expression: &Expression,
        condition: &str,
        update: &str,
        values: &str,
    ) -> Result<Object, Error> {
        let names = expression
            .names
            .iter()
            .fold(Object::new(), |names, (name, attribute)| names.with(*name, attribute.as_str()));
        let request = Object::new()
            .with("TableName", self.options.table.as_str())
            .with("Key", self.key(key))
            .with("ConditionExpression", condition)
            .with("UpdateExpression", update);
        let request =
            if expression.names.is_empty() { request } else { request.with("ExpressionAttributeNames", names) };
        // What was written, and not the whole row: its payload may be larger than a state's result may be.
        let returns = if expression.returns == Returns::Nothing { "NONE" } else { "UPDATED_NEW" };
        Ok(request.with("ExpressionAttributeValues", query(values)).with("ReturnValues", returns))
    }

    fn key(&self, key: Key) -> Object {
        let text = |expression: &str| Object::new().with("S", query(expression));
        let (partition, sort) = match key {
            Key::Wanted => (self.options.key.as_str(), self.options.sort_key.as_deref().unwrap_or_default()),
            Key::Held => ("$lock.key", "$lock.sortKey"),
        };
        let object = Object::new().with(self.options.key_attribute.as_str(), text(partition));
        match &self.options.sort_key_attribute {
            Some(name) => object.with(name.as_str(), text(sort)),
            None => object,
        }
    }
}

/// Whose key a request has.
#[derive(Clone, Copy)]
enum Key {
    /// The lock that the execution wants.
    Wanted,
    /// `$lock`.
    Held,
}

/// The value is the same in every request.
fn constant(name: &str, sample: &Value) -> Result<String, Error> {
    match sample {
        Value::S(text) => Ok(format!("{{'S': {}}}", literal(text))),
        Value::N(number) => Ok(format!("{{'N': {}}}", literal(number))),
        _ => Err(Error::new(format!("the crate's value {name} is neither a text nor a number"))),
    }
}

/// A text that depends on what was seen.
fn choice(condition: &str, if_true: &str, if_false: &str) -> String {
    if if_true == if_false {
        return if_true.to_owned();
    }
    query(&format!("{condition} ? {} : {}", literal(if_true), literal(if_false)))
}

/// One millisecond after the stamp of `$lock`.
fn after_stamp() -> String {
    format!("$number('0x' & $substring($lock.version, {BEFORE_STAMP}, {DIGITS_OF_TIME})) + 1")
}

/// Stands for every version. None of its digits gets into a definition.
fn sample_version() -> Version {
    Version { grant: Grant::from_random([0; 16]), stamp: Stamp::after(None, 0, 0) }
}

/// The fields of `$lock` after a grant, as `lock-task` names them.
pub(crate) fn lock(options: &Options) -> Object {
    let row = "$states.result.Attributes";
    let lock = Object::new().with("key", query(&options.key));
    let lock = match &options.sort_key {
        Some(sort_key) => lock.with("sortKey", query(sort_key)),
        None => lock,
    };
    lock.with("owner", query(&format!("{row}.{OWNER}.S")))
        .with("version", query(&format!("{row}.{VERSION}.S")))
        .with("fencingToken", query(&exact(&format!("{row}.{TOKEN}.N"))))
        .with("leaseSeconds", Json::from(Duration::from_millis(millis_rounded_up(options.lease)).as_secs_f64()))
        .with("leaseEndsAt", query(&format!("$number({row}.{ENDS}.N)")))
}

/// A number that JSONata keeps digit by digit. With a rounded token the lock could be neither renewed nor released, and
/// the work would be fenced by a token that nobody was granted.
fn exact(number: &str) -> String {
    format!(
        "$length({number}) < 16 ? $number({number}) : \
         $error('the fencing token ' & {number} & ' has more than 15 digits, which a state machine cannot keep: use lock-task for this lock')"
    )
}
