//! Acquire: sends one Claim, and decides what follows when its condition fails or it has no response.
//!
//! ```text
//! Claim (to reclaim a saved lock: Take of its version; with the ticket of an earlier call: Peek)
//!  ├ applied ............................... granted
//!  ├ applied, but no larger token can
//!  │ follow the row's token ................ release it, and report the row
//!  ├ condition failed, with the row
//!  │   ├ it is no lock record .............. report the row
//!  │   ├ it carries our grant
//!  │   │   ├ held by an attempt of ours .... granted: that attempt had been applied
//!  │   │   └ released since ................ lost: unknown to the caller, if a write had no response
//!  │   ├ a write was rejected as invalid ... rejected
//!  │   ├ to reclaim a saved lock, and it is
//!  │   │ neither its grant nor its owner's . lost
//!  │   ├ frozen, and not to be reclaimed
//!  │   │ while it is held .................. report the reason, join, or wait and Peek again
//!  │   ├ to reclaim a saved lock ........... Take that version
//!  │   ├ held by the owner that reclaims ... Take that version
//!  │   ├ released, or held by a dead holder
//!  │   │   ├ nobody waits in line .......... Take that version
//!  │   │   │   └ ours, released before our
//!  │   │   │     :now, and without
//!  │   │   │     attributes to remove ...... Claim again
//!  │   │   ├ our turn, or left to those
//!  │   │   │ ahead for long enough, or all
//!  │   │   │ ahead have given up ........... Take that version
//!  │   │   └ not our turn yet .............. report the holder, join, or wait and Peek again
//!  │   └ held .............................. report the holder, join, or wait and Peek again
//!  ├ condition failed, without a row
//!  │   ├ of a Claim, or to reclaim ......... pause, then Peek
//!  │   └ of a Take ......................... Claim
//!  ├ throttled ............................. pause, then the same write as a new attempt
//!  ├ rejected as invalid ................... Peek: our grant → granted; else rejected
//!  ├ rejected .............................. rejected
//!  └ no response ........................... Peek: no row → Claim (to reclaim: lost); else as above
//! ```
//!
//! To join is to take a ticket, when two looks in a row have shown the same grant, or after a second: see `waiter`. A join
//! without a response is followed by a Peek, and leaves the outcome of the call as it was. A call that ends without a grant says
//! that it gives its ticket up, unless its caller sleeps between its calls. Nothing follows from the response.
//!
//! An attempt without a response may be applied at any time. If the call ends without a grant after one, it releases
//! what the attempt may have got, and reports that the outcome is unknown.
//!
//! Another contender can be faster each time. So the second write in a row that follows a refusal is sent only while
//! the caller has time left, and the third one pauses first. A row that this call would take is never reported as
//! held. When the time for responses is over, the call reports instead that it could not get the lock for now (throttled).

mod acquiring;
mod attempt;
mod one_of;
mod options;
mod rows;
mod together;
mod verdict;
mod waiter;

pub use one_of::{AcquiredPlace, Places, WantedPlace, acquire_one_of};
pub use options::{AcquireOptions, Acquired, HolderSeen, Queueing, Reclaim, Started};
pub use together::{AcquireAllOptions, AcquiredAll, Blocked, FailedAcquire, WantedLock, acquire_all};

use super::backoff::longest_pause;
use super::failure::Failure;
use super::instants::Instants;
use super::port::{Now, Port};
use super::record::Record;
use super::reply::{Fault, Rejection, Written};
use super::request::{Action, DataChange, NewGrant};
use super::schema;
use super::settings::Settings;
use super::value::Item;
use super::version::Version;
use super::work::{Look, Work};
use acquiring::{Acquiring, End, Flow, failed};
use rows::Row;
use std::convert::Infallible;
use std::ops::ControlFlow;
use std::time::Duration;
use verdict::{Verdict, Write};

/// Acquires a lock. Waits for another holder for as long as [`Now`] allows. Without time to wait it tries once.
///
/// Returns [`Failure::Lost`] when the grant to reclaim is no longer on the row.
pub async fn acquire(port: &mut impl Port, settings: &Settings, options: AcquireOptions) -> Result<Acquired, Failure> {
    plain(Acquiring::new(settings, options, None).run(port).await)
}

/// Acquires a lock without waiting for its holder, where this is known of its row. Notes what the call has seen of the row.
/// Returns also the newest version that was sent.
async fn acquire_at_once(
    port: &mut impl Port,
    settings: &Settings,
    options: AcquireOptions,
    row: &mut Row,
) -> (Result<Acquired, Failure>, Option<Version>) {
    let known = std::mem::replace(row, Row::Unseen);
    let mut acquiring = Acquiring { waits: false, row: known, ..Acquiring::new(settings, options, None) };
    let started = acquiring.run(port).await;
    let newest = acquiring.attempts.last().map(|attempt| attempt.version);
    *row = acquiring.row;
    (plain(started), newest)
}

/// Acquires the lock of idempotent work.
pub(super) async fn acquire_for(
    port: &mut impl Port,
    settings: &Settings,
    options: AcquireOptions,
    work: Work,
) -> Result<Started, Failure> {
    Acquiring::new(settings, options, Some(work)).run(port).await
}

/// The result for a lock without work.
fn plain(started: Result<Started, Failure>) -> Result<Acquired, Failure> {
    match started? {
        Started::Lock(acquired, _) => Ok(acquired),
        // Only work has a record.
        Started::Settled(_) | Started::Mismatch(_) => Err(Failure::OutcomeUnknown),
    }
}

/// What a call does next.
enum Decision {
    Send(Next),
    /// To wait behind the holder, or for its turn.
    Wait {
        due_in: Duration,
    },
}

/// What a call sends next.
enum Next {
    Grant(Write),
    /// A request for a ticket.
    Join,
}

impl Acquiring<'_> {
    /// Runs the call, once.
    async fn run(&mut self, port: &mut impl Port) -> Result<Started, Failure> {
        let ControlFlow::Break(end) = self.pursue(port).await;
        self.finish(port, end).await
    }

    async fn pursue(&mut self, port: &mut impl Port) -> Flow<Infallible> {
        let mut now = match &self.row {
            Row::Watched(_) => self.now(port),
            Row::Unseen if self.waiter.ticket().is_some() => self.look(port).await?,
            Row::Unseen | Row::Missing | Row::Invalid(_) => {
                let first = Next::Grant(self.caller().write_without_record());
                self.write(port, &first).await?
            }
        };
        loop {
            let next = self.next(port, now).await?;
            now = self.write(port, &next).await?;
        }
    }

    /// Sends a write until it has a usable response. Continues when the row was seen that refused it, with the clocks as they were
    /// read then.
    async fn write(&mut self, port: &mut impl Port, write: &Next) -> Flow<Now> {
        loop {
            let now = self.ready(port).await?;
            let action = self.action(port, &now, write);
            let (after, reply) = self.send(port, &now, action).await;
            match reply {
                Ok(Written::Applied(row)) if matches!(write, Next::Join) => {
                    self.call.answered();
                    self.waiter.joined(&row);
                    if row.get(schema::VERSION).is_none() {
                        return self.look(port).await;
                    }
                    return self.see(port, after, Some(row));
                }
                Ok(Written::Applied(row)) => {
                    self.call.answered();
                    self.applied(&port.now(), row)?;
                    // The response does not contain the attributes that the request asked for.
                    self.call.may_be_applied();
                    return self.look(port).await;
                }
                Ok(Written::Refused(Some(row))) => {
                    self.call.answered();
                    return self.see(port, after, Some(row));
                }
                // A missing row refuses no Claim, and a reclaim has to know the row. So read it, after a pause as when throttled.
                Ok(Written::Refused(None)) if self.has_to_look(write) => {
                    self.call.throttled();
                    return self.look(port).await;
                }
                Ok(Written::Refused(None)) => {
                    self.call.answered();
                    return self.see(port, after, None);
                }
                Err(Fault::Rejected(Rejection::Invalid(message))) => {
                    self.refused_as_invalid = Some(message);
                    return self.look(port).await;
                }
                // The row shows what became of a first write, so read it at once. Pause when writes keep failing while reads
                // succeed.
                Err(Fault::Unknown) => {
                    match write {
                        // A ticket whose response was lost is passed like that of a caller that is gone.
                        Next::Join => self.call.repeat(),
                        Next::Grant(_) => self.call.no_response(),
                    }
                    return self.look(port).await;
                }
                Err(fault) => self.call.write_failed(fault).map_or_else(failed, ControlFlow::Continue)?,
            }
        }
    }

    async fn look(&mut self, port: &mut impl Port) -> Flow<Now> {
        loop {
            let now = self.ready(port).await?;
            let (after, reply) = port.read(&now, self.options.key.clone()).await;
            match reply {
                Ok(row) => {
                    self.call.answered();
                    return self.see(port, after, row);
                }
                Err(fault) => self.call.read_failed(fault).map_or_else(failed, ControlFlow::Continue)?,
            }
        }
    }

    /// Returns the next write that the row calls for. Waits behind a holder until there is one.
    async fn next(&mut self, port: &mut impl Port, mut now: Now) -> Flow<Next> {
        loop {
            let due_in = match self.decide(&now)? {
                Decision::Send(next) => return ControlFlow::Continue(next),
                Decision::Wait { due_in } => due_in,
            };
            let pause = self.pause(port, &now, due_in);
            port.sleep(&now, pause).await;
            if let Some(write) = self.without_a_look(&self.now(port)) {
                return ControlFlow::Continue(Next::Grant(write));
            }
            now = self.look(port).await?;
        }
    }

    /// After a pause: the write that needs no look before it, if there is one.
    fn without_a_look(&self, now: &Now) -> Option<Write> {
        let record = self.row.watch()?.record();
        match self.verdict(now) {
            // Whoever passes others in line looks once more before.
            Verdict::May(write) if !self.caller().lets_others_go_first(record) => Some(write),
            _ => None,
        }
    }

    /// Notes what a response showed: reads the row as a lock record, and continues to observe it.
    fn see(&mut self, port: &mut impl Port, after: Instants, row: Option<Item>) -> Flow<Now> {
        let now = self.now(port);
        let Some(item) = row else {
            self.row = Row::Missing;
            self.waiter.line_is_over();
            return ControlFlow::Continue(now);
        };
        let ours = self.attempts.have_written(&item);
        let record = match self.look_at_work(&now, &item)? {
            // What this call wrote is judged as if its response had come.
            Ok(Look::Lock) if ours => Record::read_granted(item, &self.settings.schema),
            Ok(Look::Over) => Record::read_over_to_hold(item, &self.settings.schema),
            Ok(Look::Lock | Look::Settled(_) | Look::Mismatch(_)) => Record::read_to_hold(item, &self.settings.schema),
            Err(invalid) => Err(invalid),
        };
        match record {
            Ok(record) => {
                self.waiter.see(&record, after);
                self.row.see(record, after, self.options.observation.as_ref());
                ControlFlow::Continue(now)
            }
            Err(invalid) if ours => ControlFlow::Break(End::Unreadable(invalid)),
            Err(invalid) => failed(Failure::InvalidRecord(invalid)),
        }
    }

    /// Decides what the row means now.
    fn decide(&mut self, now: &Now) -> Flow<Decision> {
        let own = self.row.watch().and_then(|watch| Some((watch.record().own_version?, watch.record())));
        if let Some((version, record)) = own.filter(|(version, _)| self.attempts.have_granted(version)) {
            return ControlFlow::Break(self.recognised(now, version, record));
        }
        if let Some(message) = self.refused_as_invalid.take() {
            return failed(Failure::Rejected(Rejection::Invalid(message)));
        }
        if matches!(self.verdict(now), Verdict::Wait(wait) if wait.is_left_to_line()) {
            self.waiter.leaves_it();
        }
        let wait = match (self.verdict(now), &self.row) {
            (Verdict::Refuse(failure), _) => return failed(failure),
            (Verdict::May(write), Row::Watched(_)) => return self.follow_up(Next::Grant(write)),
            (Verdict::May(write), _) => return ControlFlow::Continue(Decision::Send(Next::Grant(write))),
            (Verdict::Wait(wait), _) => wait,
        };
        if self.waiter.joins(self.options.queueing, now, wait.record()) {
            return self.follow_up(Next::Join);
        }
        if now.wait_left.is_zero() {
            return ControlFlow::Break(End::Held(self.caller().holder(now, &wait)));
        }
        let due_in = wait.due_in();
        self.call.waits();
        ControlFlow::Continue(Decision::Wait { due_in })
    }

    /// Prepares the write that follows a refusal.
    fn follow_up(&mut self, next: Next) -> Flow<Decision> {
        self.call.follow_up();
        ControlFlow::Continue(Decision::Send(next))
    }

    /// Waits until the next request may be sent. Breaks when the caller's time is over.
    async fn ready(&mut self, port: &mut impl Port) -> Flow<Now> {
        match self.call.ready(port).await {
            Ok(now) => ControlFlow::Continue(self.as_it_waits(now)),
            Err(failure) => ControlFlow::Break(self.out_of_time(&self.now(port), failure)),
        }
    }

    fn action(&mut self, port: &mut impl Port, now: &Now, next: &Next) -> Action {
        let write = match next {
            Next::Grant(write) => write.clone(),
            Next::Join => return Action::Join { sleeps: self.options.queueing == Queueing::BetweenCalls },
        };
        let AcquireOptions { owner, workflow, data, attributes, .. } = &self.options;
        let attempt = self.attempts.next(port, now, self.settings, None, vec![write.replaced()]);
        let once = self.work.as_ref().map(|work| work.claim(matches!(write, Write::Take { .. })));
        let data = match data {
            // Of a record whose time is over, only the token is kept.
            DataChange::Keep if once.as_ref().is_some_and(|once| once.anew) => DataChange::Remove,
            data => data.clone(),
        };
        let grant =
            NewGrant { data, attributes: attributes.clone(), once, ..attempt.grant(now, owner, workflow.as_deref()) };
        write.action(now, &self.caller(), grant, None)
    }

    /// Whether a refusal without a row tells too little, so that the row must be read. A place in line is not given up for it.
    fn has_to_look(&self, write: &Next) -> bool {
        matches!(write, Next::Grant(Write::Claim)) || matches!(self.options.reclaim, Reclaim::Only(_))
    }

    /// Behind a holder: how long to wait before the next look.
    fn pause(&mut self, port: &mut impl Port, now: &Now, due_in: Duration) -> Duration {
        let longest = longest_pause(port, now, due_in);
        let in_line = self.row.watch().and_then(|watch| self.waiter.pause(port, now, watch.record()));
        in_line.unwrap_or_else(|| self.poll.pause(port)).min(longest)
    }
}
