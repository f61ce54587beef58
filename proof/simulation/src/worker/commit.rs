//! What holders write together with the lock, and what must hold for the reported outcome.

use super::{Me, grant_of, refused_or_unknown};
use crate::ledger::{CallKind, Ended, Invariant};
use crate::table::WORK;
use crate::world::{Event, Fenced};
use aws_sdk_dynamodb::types::{AttributeValue, Put, TransactWriteItem};
use lambda_lock::{CommitOutcome, Error, ErrorKind, Lock};
use lambda_lock_protocol::{Expression, Grant, Value};
use std::time::Duration;

/// One of the caller's own writes, identified by its number.
pub(super) fn write(number: usize) -> TransactWriteItem {
    let put = Put::builder().table_name("work").item("key", AttributeValue::S("k".to_owned()));
    let put = put
        .condition_expression("attribute_not_exists(closed)")
        .item(WORK, AttributeValue::N(number.to_string()))
        .build()
        .unwrap();
    TransactWriteItem::builder().put(put).build()
}

impl Me {
    /// How long a commit may take: all of its budget.
    fn commit_limit(&self) -> Duration {
        let lease = self.state().plan.lease;
        self.call_limit() + lease.mul_f64(3.3)
    }

    /// Writes something together with a renewal.
    pub(crate) async fn commit(&self, key: usize, lock: &mut Lock, granted: usize) -> Ended {
        let unresolved = self.state().processes[self.id].unresolved.take();
        if unresolved.is_some() {
            return self.resolve(key, lock, unresolved).await;
        }
        let number = self.state().ledger.begin_commit(granted);
        let twice = self.one_in(40);
        let writes = if twice { vec![write(number), write(number)] } else { vec![write(number)] };
        self.state().counts().twice_on_one_item += u64::from(twice);
        let ended = self.sends_commit(key, lock, number, writes).await;
        if ended != Ended::Unknown {
            return ended;
        }
        let carries = {
            let state = self.state();
            state.plan.handing_over && state.ledger.is_open(number)
        };
        if carries && self.one_in(3) {
            // The process that continues with the lock has to find out the outcome.
            self.state().processes[self.id].unresolved = Some(number);
            return ended;
        }
        // If the outcome was reported already, it belongs to another commit that came with the lock.
        let open = self.state().ledger.is_open(number).then_some(number);
        self.resolve(key, lock, open).await
    }

    async fn sends_commit(&self, key: usize, lock: &mut Lock, number: usize, writes: Vec<TransactWriteItem>) -> Ended {
        let (grant, token) = grant_of(&lock.to_saved());
        self.state().call_begins(self.id, key, CallKind::Hold(grant, token));
        let data = self.some_data();
        self.wants(data.as_ref());
        self.commits();
        let commit = lock.commit(writes);
        let commit = if let Some(data) = data { commit.data(data) } else { commit };
        self.state().processes[self.id].commits = true;
        let answer = self.perhaps(commit.into_future()).await;
        self.state().processes[self.id].commits = false;
        if let Some(Err(error)) = &answer
            && error.is_lost()
            && self.state().is_held_by(key, grant, token)
        {
            let what = format!("grant {grant} is on the row: {error}");
            self.state().ledger.violate(Invariant::NotLostWhileOurs, what);
        }
        self.commit_ended(key, (grant, token), number, &answer, Duration::ZERO)
    }

    /// Repeats a commit whose outcome an earlier holder of this lock did not learn. If the lock refuses, because the
    /// commit may have been applied, resolves it instead.
    pub(super) async fn commits_again(&self, key: usize, lock: &mut Lock, number: usize) {
        if !self.state().ledger.is_open(number) {
            return;
        }
        self.state().counts().commits_carried += 1;
        let (grant, token) = grant_of(&lock.to_saved());
        let kind = CallKind::Hold(grant, token);
        self.state().call_begins(self.id, key, kind);
        let answer = self.perhaps(lock.commit([write(number)]).into_future()).await;
        let refused = matches!(&answer, Some(Err(error)) if error.kind() == ErrorKind::InvalidRequest);
        {
            let mut state = self.state();
            state.say_of(self.id, || format!("commit {number} once more: {answer:?}"));
            state.call_ends(self.id, Ended::Unknown, None);
            if let Some(Ok(())) = answer {
                state.ledger.said_committed(number, true, false);
            }
        }
        if refused {
            self.resolve(key, lock, Some(number)).await;
        }
    }

    fn commit_ended(
        &self,
        key: usize,
        (grant, token): (Grant, u64),
        number: usize,
        answer: &Option<Result<(), Error>>,
        more: Duration,
    ) -> Ended {
        let limit = self.commit_limit() + more;
        let mut state = self.state();
        let ours = state.is_held_by(key, grant, token);
        state.say_of(self.id, || format!("commit {number} ended: {answer:?}"));
        let ended = match answer {
            Some(Ok(())) => Ended::Done,
            Some(Err(error)) => refused_or_unknown(error),
            None => Ended::Unknown,
        };
        let call = state.processes[self.id].call;
        if let (Some(Err(error)), Some(call)) = (answer, call) {
            // The ledger tells whether the writes were applied, because a release may have followed.
            state.ledger.calls[call].applied = false;
            let still = error.is_cancelled() && error.to_string().contains("still ours");
            if still && !state.ledger.calls[call].owned && !ours {
                state.ledger.violate(Invariant::CancelledIsOurs, error.to_string());
            }
            state.failed(self.id, call, error);
        }
        state.call_ends(self.id, ended, Some(limit));
        match ended {
            Ended::Done => state.ledger.said_committed(number, true, false),
            Ended::Refused => {
                let failed = answer.as_ref().and_then(|answer| answer.as_ref().err());
                // A row that is no lock record does not exclude the transaction for good either, because it may be
                // repaired.
                let cancelled =
                    failed.is_some_and(|error| error.is_cancelled() || error.kind() == ErrorKind::InvalidRecord);
                state.ledger.said_committed(number, false, cancelled);
            }
            Ended::Unknown | Ended::Running => state.counts().commits_unknown += 1,
        }
        // After any error other than a lost lock, the lock is still held.
        if answer.as_ref().is_some_and(|answer| answer.as_ref().is_err_and(|error| !error.is_lost())) {
            return Ended::Unknown;
        }
        ended
    }

    /// Asks for the outcome of the last commit until it is known.
    async fn resolve(&self, key: usize, lock: &mut Lock, number: Option<usize>) -> Ended {
        for _ in 0..4 {
            let (grant, token) = grant_of(&lock.to_saved());
            self.state().call_begins(self.id, key, CallKind::Hold(grant, token));
            let answer = self.perhaps(async { lock.resolve_commit().await }).await;
            if let Some(ended) = self.settling_ended(number, answer) {
                return ended;
            }
            self.sleep(self.part_of_lease(0.1)).await;
        }
        Ended::Refused
    }

    /// `None`: the outcome is not known yet.
    fn settling_ended(&self, number: Option<usize>, answer: Option<Result<CommitOutcome, Error>>) -> Option<Ended> {
        let limit = self.commit_limit();
        let mut state = self.state();
        state.say_of(self.id, || format!("settling {number:?} ended: {answer:?}"));
        let ended = match &answer {
            Some(Ok(_)) => Ended::Done,
            Some(Err(error)) => refused_or_unknown(error),
            None => Ended::Unknown,
        };
        state.call_ends(self.id, ended, Some(limit));
        match answer {
            Some(Ok(CommitOutcome::Indeterminate)) => {
                state.counts().commits_indeterminate += 1;
                Some(Ended::Unknown)
            }
            Some(Ok(outcome)) => {
                state.counts().commits_resolved += 1;
                if let Some(number) = number {
                    state.ledger.said_committed(number, outcome == CommitOutcome::Applied, false);
                }
                Some(Ended::Unknown)
            }
            Some(Err(error)) if error.is_lost() => Some(Ended::Refused),
            // There is nothing to resolve: the commit was refused as a whole.
            Some(Err(error)) if error.kind() == ErrorKind::InvalidRequest => Some(Ended::Unknown),
            _ => None,
        }
    }

    pub(crate) async fn commit_and_release(&self, key: usize, lock: Lock, granted: usize) {
        let (grant, token) = grant_of(&lock.to_saved());
        let number = self.state().ledger.begin_commit(granted);
        self.state().call_begins(self.id, key, CallKind::Release { grant, token, later_of: None });
        self.state().processes[self.id].holds = None;
        self.state().processes[self.id].commits = true;
        let answer = self.perhaps(lock.commit_and_release([write(number)]).into_future()).await;
        self.state().processes[self.id].commits = false;
        // The release that follows a failure has a time limit of its own.
        self.commit_ended(key, (grant, token), number, &answer, self.call_limit());
    }

    /// Sends one of the caller's own writes in a transaction with a Fence. Sometimes it arrives late.
    pub(crate) fn fenced_write(&self, key: usize, lock: &Lock, granted: usize) {
        let Ok(fence) = lock.condition_check() else { return };
        let condition = condition_of(&fence);
        let mut state = self.state();
        let lease = state.plan.lease.as_nanos() as u64;
        let slow = if state.rng.u8(..4) == 0 { state.rng.u64(..3 * lease) } else { 0 };
        let at = state.processes[self.id].local + state.way() + slow;
        state.at(at, Event::Fenced(Box::new(Fenced { key, granted, condition })));
    }
}

/// The condition of a Fence, as the table evaluates it.
fn condition_of(fence: &TransactWriteItem) -> Expression {
    let check = fence.condition_check().unwrap();
    let value = |value: &AttributeValue| match value {
        AttributeValue::S(text) => Value::S(text.clone()),
        AttributeValue::N(number) => Value::N(number.clone()),
        other => panic!("unexpected value {other:?} in a fence"),
    };
    let given = check.expression_attribute_values().unwrap();
    let known = [":first", ":last", ":rvn", ":token"];
    let values: Vec<_> = known.into_iter().filter_map(|name| Some((name, value(given.get(name)?)))).collect();
    assert_eq!(values.len(), given.len(), "a fence with other values than {known:?}");
    Expression { condition: check.condition_expression().to_owned(), values, ..Expression::default() }
}
