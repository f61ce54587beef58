//! Compares DynamoDB's conditions with our reading of the same row. For each operation, on an embedded DynamoDB,
//! the outcome must follow from the reference's reading.

use crate::rows::{self, Attribute, Row, Sketch, version};
use crate::versions::GRANTS;
use crate::{Checked, fuzz};
use aws_sdk_dynamodb::types::{AttributeValue, Put, TransactWriteItem};
use lambda_lock::{Error, ErrorKind, Lock, LockKey, ReleaseOutcome, SavedLock, Tried};
use lambda_lock_protocol::Version;
use lambda_lock_protocol::schema::{
    DATA, ENDS, FREEZE_CHANGED_AT, FREEZE_REASON, LEASE, OWNER, RELEASED, TOKEN, VERSION, WORKFLOW,
};
use lambda_lock_testkit::{Process, Table};
use proptest::prelude::*;
use serde_json::Value as Json;
use std::time::{Duration, UNIX_EPOCH};

pub(crate) const LEASE_OF_OURS: Duration = Duration::from_secs(20);
/// The default clock skew.
const SKEW: u64 = 2_000;
/// The fencing token of the saved lock.
pub(crate) const OUR_TOKEN: u64 = 1_760_000_000_001;

/// A table, and virtual time.
pub(crate) struct Stage {
    runtime: tokio::runtime::Runtime,
    table: Table,
}

impl Stage {
    pub(crate) fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let table = runtime.block_on(async { Table::new() });
        Self { runtime, table }
    }

    /// Puts the row, and creates a new process.
    pub(crate) fn begin(&self, sketch: &Sketch) -> Scene<'_> {
        self.runtime.block_on(async {
            let process = self.table.process();
            // With latency, a loop without end uses up virtual time.
            process.set_latency(Duration::from_millis(10));
            let now = process.clock.wall_millis();
            let row = sketch.at(now);
            self.table.put(row.json("k"));
            let before = self.table.row("k").unwrap();
            Scene { stage: self, process, now, spelled: row.as_spelled(&before), row, before }
        })
    }
}

pub(crate) struct Scene<'a> {
    stage: &'a Stage,
    pub(crate) process: Process,
    now: u64,
    row: Row,
    spelled: Row,
    before: Json,
}

impl Scene<'_> {
    /// Runs an operation. If it takes more than ten minutes of virtual time, it never ends.
    pub(crate) fn run<T>(&self, operation: impl Future<Output = T>) -> T {
        let bounded = async { tokio::time::timeout(Duration::from_secs(600), operation).await };
        let result = self.stage.runtime.block_on(bounded).unwrap_or_else(|_| panic!("it did not end"));
        assert!(self.process.take_sent().len() < 1000, "so many requests");
        result
    }

    fn after(&self) -> Json {
        self.stage.table.row("k").unwrap()
    }

    /// Checks that the row was not changed.
    fn is_untouched(&self) -> Checked {
        prop_assert_eq!(self.after(), self.before.clone(), "the row was changed");
        Ok(())
    }

    /// Checks that the row was not changed, or that it is free.
    fn is_left_alone_or_given_back(&self) -> Checked {
        let after = self.after();
        prop_assert!(after == self.before || after.get(RELEASED).is_some(), "the row stays taken: {}", after);
        Ok(())
    }

    /// Returns whether a Claim takes the row as a free row of ours, or as one whose holder is dead by the wall
    /// clock.
    fn is_free_by_condition(&self) -> bool {
        let ends = |limit: u64| self.row.number(ENDS).map(|ends| ends.compare(limit));
        self.row.is_ours()
            && !self.row.has(FREEZE_REASON)
            && (self.row.has(RELEASED) && ends(self.now).is_some_and(|order| order.is_le())
                || ends(self.now - SKEW).is_some_and(|order| order.is_lt()))
    }

    /// Returns the token that the next grant gets. `None` if there is no such token.
    fn next_token(&self) -> Option<NextToken> {
        let there = self.row.number(TOKEN).map(|token| token.as_u64());
        match (there, self.row.is_ours()) {
            (None, _) if self.row.has(TOKEN) => None,
            (None, _) => Some(NextToken::FromTheClock),
            // The largest number is not a valid token either, because no larger one can follow.
            (Some(None | Some(u64::MAX)), _) => None,
            (Some(Some(token)), _) if token == u64::MAX - 1 => None,
            (Some(Some(token)), true) => Some(NextToken::Exactly(token + 1)),
            (Some(Some(token)), false) => Some(NextToken::AtLeast((token + 1).max(self.now))),
        }
    }
}

#[derive(Debug)]
enum NextToken {
    Exactly(u64),
    AtLeast(u64),
    FromTheClock,
}

/// Checks that the error reports an invalid row and names one of these attributes.
pub(crate) fn is_invalid(error: &Error, attributes: &[&str]) -> Checked {
    let text = error.to_string();
    prop_assert_eq!(error.kind(), ErrorKind::InvalidRecord, "{}", text);
    prop_assert!(attributes.iter().any(|name| text.contains(name)), "{text}, although {attributes:?} is wrong");
    prop_assert!(text.len() < 1000, "an error of {} bytes", text.len());
    Ok(())
}

fn peek(scene: &Scene<'_>) -> Checked {
    let locks = scene.process.locks("watcher");
    let wrong = scene.row.wrong();
    match scene.run(locks.operator().peek("k")) {
        Err(error) => is_invalid(&error, &wrong)?,
        Ok(None) => prop_assert!(is_settled(scene), "no lock, although it has no outcome"),
        Ok(Some(seen)) => {
            prop_assert!(wrong.is_empty(), "{wrong:?} is wrong, and it was read");
            let row = &scene.row;
            let whole = |name| row.number(name).and_then(|number| number.as_u64());
            let time = |millis| UNIX_EPOCH.checked_add(Duration::from_millis(millis));
            prop_assert_eq!(Some(seen.holder.as_str()), row.text(OWNER));
            prop_assert_eq!(Some(seen.version.as_str()), row.text(VERSION));
            prop_assert_eq!((seen.released, seen.fencing_token), (row.has(RELEASED), whole(TOKEN)));
            prop_assert_eq!(seen.lease_ends_at, whole(ENDS).filter(|_| row.is_ours()).and_then(time));
            let workflow = row.text(WORKFLOW).filter(|_| row.is_ours() && !row.has(RELEASED));
            prop_assert_eq!(seen.workflow.as_deref(), workflow);
            prop_assert_eq!(seen.freeze_reason.as_deref(), row.text(FREEZE_REASON));
        }
    }
    scene.is_untouched()
}

fn try_acquire(scene: &Scene<'_>) -> Checked {
    let locks = scene.process.locks("asker");
    let (wrong, free) = (scene.row.wrong(), scene.is_free_by_condition());
    // A lease of zero has ended as soon as it is seen.
    let lease = scene.row.text(LEASE).and_then(lambda_lock_protocol::Lease::parse);
    let dead = lease.is_some_and(|lease| lease.duration().is_zero());
    let frozen = scene.row.has(FREEZE_REASON);
    let granted = free || wrong.is_empty() && !frozen && (scene.row.has(RELEASED) || dead);
    match scene.run(async { locks.acquire("k").lease(LEASE_OF_OURS).try_once().await }) {
        Ok(Tried::Granted(lock)) => {
            prop_assert!(granted, "granted, although {wrong:?} is wrong and nobody released it");
            let token = lock.fencing_token();
            match scene.next_token() {
                Some(NextToken::Exactly(expected)) => prop_assert_eq!(token, expected),
                Some(NextToken::AtLeast(least)) => prop_assert!(token >= least, "{} < {}", token, least),
                Some(NextToken::FromTheClock) => prop_assert!(token >= scene.now, "{} < {}", token, scene.now),
                None => prop_assert!(false, "granted with the token {}, which is not larger than the row's", token),
            }
            let payload = match scene.row.0.get(DATA) {
                Some(lambda_lock_protocol::Value::B(bytes)) => Some(bytes.as_slice()),
                _ => None,
            };
            prop_assert_eq!(lock.data(), payload);
            written_is_held(scene, lock)
        }
        Ok(Tried::Refused(held)) => {
            prop_assert!(!granted && wrong.is_empty(), "held, although {wrong:?} is wrong, or it is free");
            prop_assert_eq!(held.freeze_reason.as_deref(), scene.row.text(FREEZE_REASON));
            prop_assert_eq!(Some(held.holder.as_str()), scene.row.text(OWNER));
            prop_assert_eq!(Some(held.observation.version()), scene.row.text(VERSION));
            let ends = scene.row.number(ENDS).and_then(|ends| ends.as_u64()).filter(|_| scene.row.is_ours());
            prop_assert_eq!(
                held.lease_ends_at,
                ends.and_then(|ends| UNIX_EPOCH.checked_add(Duration::from_millis(ends)))
            );
            scene.is_untouched()
        }
        Err(error) if granted => {
            // That a number is too large is noticed when it is used.
            prop_assert!(scene.next_token().is_none(), "{error}, although it is free");
            is_invalid(&error, &[wrong, vec![TOKEN]].concat())?;
            scene.is_left_alone_or_given_back()
        }
        Err(error) => {
            is_invalid(&error, &wrong)?;
            scene.is_untouched()
        }
    }
}

/// Checks that a new grant is held until it is released, both for its guard and for other callers.
fn written_is_held(scene: &Scene<'_>, lock: Lock) -> Checked {
    // A payload of a wrong type stays, because a Claim of a free row does not read it.
    let readable = ![DATA, FREEZE_CHANGED_AT].iter().any(|name| scene.row.wrong().contains(name));
    let locks = scene.process.locks("watcher");
    if readable {
        let seen = scene.run(locks.operator().peek("k")).unwrap().unwrap();
        prop_assert!(seen.holder.starts_with("asker") && !seen.released, "{:?}", seen);
        prop_assert_eq!(seen.fencing_token, Some(lock.fencing_token()));
    }
    prop_assert_eq!(scene.run(lock.release().into_future()).unwrap(), ReleaseOutcome::Released);
    if readable {
        prop_assert!(scene.run(locks.operator().peek("k")).unwrap().unwrap().released);
    }
    Ok(())
}

/// A lock that was saved a minute ago, and what the row means to its holder.
fn saved(scene: &Scene<'_>, ends: u64) -> SavedLock {
    let version = version(0, scene.now, -60_000, 7);
    SavedLock::from_parts(LockKey::from("k"), "me".to_owned(), version, OUR_TOKEN, LEASE_OF_OURS, ends, None)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mine {
    Held,
    Released,
    No,
    /// A version that begins with our grant, but that none of our clients writes.
    Hardly,
}

fn mine(scene: &Scene<'_>) -> Mine {
    let text = scene.row.text(VERSION).unwrap_or_default();
    let token = scene.row.number(TOKEN).and_then(|token| token.as_u64()) == Some(OUR_TOKEN);
    match Version::parse(text) {
        _ if !token => Mine::No,
        Some(version) if version.grant.to_string() == GRANTS[0] => {
            if scene.row.has(RELEASED) {
                Mine::Released
            } else {
                Mine::Held
            }
        }
        None if text.starts_with(&format!("ll1-{}-", GRANTS[0])) => Mine::Hardly,
        _ => Mine::No,
    }
}

fn is_settled(scene: &Scene<'_>) -> bool {
    scene.row.text(VERSION).is_some_and(|version| version.starts_with("lo1-"))
}

fn resume(scene: &Scene<'_>, ends_after: i64) -> Checked {
    let locks = scene.process.locks("me");
    let token = saved(scene, scene.now.saturating_add_signed(ends_after));
    let (wrong, mine) = (scene.row.wrong(), mine(scene));
    let result = scene.run(async {
        let budget = scene.process.budget(Duration::from_secs(10));
        locks.resume(token).lease(LEASE_OF_OURS).within(&budget).await
    });
    // An applied renewal checks only the version, token, lease, end and release. The end must be a number that
    // is not later than the new end.
    let looked_at = |name: &&str| match *name {
        OWNER | DATA | WORKFLOW | FREEZE_REASON | FREEZE_CHANGED_AT => false,
        ENDS => !scene.row.number(ENDS).is_some_and(|ends| ends.compare(scene.now + 20_000).is_lt()),
        _ => true,
    };
    match result {
        Ok(lock) => {
            prop_assert!(matches!(mine, Mine::Held | Mine::Hardly), "resumed, although it is another's");
            prop_assert!(!wrong.iter().any(looked_at), "resumed, although {wrong:?} is wrong");
            prop_assert_eq!(lock.fencing_token(), OUR_TOKEN);
            let after = scene.after();
            let end = |row: &Json| row[ENDS]["N"].as_str().and_then(|ends| ends.parse::<u64>().ok()).unwrap_or(0);
            prop_assert!(end(&after) >= end(&scene.before), "the lease became shorter");
            // The end in the saved lock does not count, and is not written to the row.
            let latest = scene.now + 60_000 + lock_lease(&after);
            prop_assert!(end(&after) <= latest.max(end(&scene.before)), "the end moved to {}", end(&after));
            drop(scene.run(lock.release().into_future()));
            Ok(())
        }
        Err(error) if error.is_lost() => {
            prop_assert!(mine != Mine::Held, "lost, although it is ours");
            prop_assert!(wrong.is_empty() || is_settled(scene), "lost, although {wrong:?} is wrong");
            scene.is_untouched()
        }
        Err(error) if error.is_unknown() => {
            // No stamp is newer than the last possible one, and no end is later than a missing end.
            let last = scene.row.text(VERSION).is_some_and(|version| version.contains("-ffffffffffff"));
            prop_assert!(mine == Mine::Held && (last || !scene.row.has(ENDS)), "{error}");
            scene.is_untouched()
        }
        Err(error) => {
            is_invalid(&error, &wrong)?;
            scene.is_untouched()
        }
    }
}

fn lock_lease(row: &Json) -> u64 {
    let lease = row[LEASE]["S"].as_str().and_then(lambda_lock_protocol::Lease::parse);
    lease.map_or(0, |lease| u64::try_from(lease.duration().as_millis()).unwrap_or(u64::MAX / 4).min(u64::MAX / 4))
}

fn release(scene: &Scene<'_>) -> Checked {
    let locks = scene.process.locks("me");
    let token = saved(scene, scene.now);
    let (wrong, mine) = (scene.row.wrong(), mine(scene));
    match scene.run(async { locks.release(token).await }) {
        Ok(ReleaseOutcome::Released) => {
            prop_assert!(mine != Mine::No, "released, although it is another's");
            prop_assert!(scene.after().get(RELEASED).is_some(), "released, and the row does not say so");
            Ok(())
        }
        Ok(ReleaseOutcome::AlreadyGone) => {
            prop_assert!(matches!(mine, Mine::No | Mine::Hardly), "gone, although it is ours");
            prop_assert!(wrong.is_empty() || is_settled(scene), "gone, although {wrong:?} is wrong");
            scene.is_untouched()
        }
        Err(error) => {
            is_invalid(&error, &wrong)?;
            scene.is_untouched()
        }
    }
}

fn fence(scene: &Scene<'_>) -> Checked {
    let locks = scene.process.locks("me");
    let token = saved(scene, scene.now);
    let write = Put::builder().table_name("locks").item("key", AttributeValue::S("effect".to_owned())).build().unwrap();
    let check = locks.condition_check(&token).unwrap();
    let transaction = scene.process.dynamodb().transact_write_items();
    let transaction = transaction.transact_items(TransactWriteItem::builder().put(write).build()).transact_items(check);
    let applied = scene.run(async { transaction.send().await.is_ok() });
    let mine = mine(scene);
    prop_assert!(mine == Mine::Hardly || applied == (mine == Mine::Held), "the fence lets pass: {applied}");
    scene.is_untouched()
}

/// Rows. Many of them are the row of the saved lock.
fn rows() -> impl Strategy<Value = Sketch> {
    let ours = (rows::rows(), any::<bool>(), prop::sample::select(vec!["1760000000001", "17600000000010E-1"]));
    let ours = ours.prop_map(|(Sketch(mut attributes), newer, token)| {
        attributes.retain(|(name, _)| *name != TOKEN);
        attributes.push((TOKEN, Attribute::Number(token.to_owned())));
        if newer {
            attributes.retain(|(name, _)| *name != VERSION);
            attributes.push((VERSION, Attribute::Ours(0, -30_000, 1)));
        }
        Sketch(attributes)
    });
    prop_oneof![2 => rows::rows(), 1 => ours]
}

pub(crate) fn all(stage: &Stage, sketch: &Sketch, paper_ends_after: i64) -> Checked {
    let scene = stage.begin(sketch);
    rows::check(&scene.row, &scene.spelled)?;
    peek(&scene)?;
    try_acquire(&stage.begin(sketch))?;
    resume(&stage.begin(sketch), paper_ends_after)?;
    release(&stage.begin(sketch))?;
    fence(&stage.begin(sketch))
}

#[test]
fn dynamodb_and_this_crate_read_every_row_in_the_same_way() {
    let stage = Stage::new();
    let paper = prop_oneof![Just(0_i64), Just(-60_000), Just(1 << 60), any::<i64>()];
    fuzz(250, (rows(), paper), |(sketch, paper_ends_after)| all(&stage, &sketch, paper_ends_after));
}
