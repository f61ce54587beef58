//! A port that replies as a script says, and writes down what it is asked for.

use crate::Case;
use crate::row::Row;
use crate::words::described;
use lambda_lock_protocol::{
    Action, FailedWrite, Fault, Instants, Item, LockKey, NewGrant, NextToken, Now, Port, Refusal, Rejection, Reply,
    Request, RowRead, ServerTime, Transacted, TransactionId, Value, Version, WallClock, Written,
};
use std::collections::VecDeque;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// The epoch millisecond at which each call begins.
pub(crate) const BEGIN: u64 = 1_800_000_000_000;

/// What a response says.
#[derive(Clone, Debug)]
pub(crate) enum Says {
    /// The write was applied. A grant is returned as it was written, with the token 8, and as the attempt 5 of its work.
    Applied,
    /// The same, and this is the row that the response shows.
    AppliedTo(Row),
    /// The write was applied, and the response does not show what it asked for.
    AppliedWithoutRow,
    Refused(Row),
    /// The condition did not hold, and the response shows no row.
    RefusedWithoutRow,
    Is(Row),
    NoRow,
    /// A transaction was refused by these rows.
    RefusedBy(Vec<(usize, Row)>),
    /// A transaction was refused by this row of the first lock, and by the second lock, whose row the response does not show.
    RefusedPartly(Row),
    /// A transaction was cancelled because of the caller's first write.
    Cancelled,
    InProgress,
    /// A read of several rows. DynamoDB left out those that are `None`.
    Are(Vec<Option<Row>>),
    Throttled,
    NoResponse,
    Invalid,
    Denied,
}

pub(crate) struct Script {
    name: &'static str,
    replies: VecDeque<Says>,
    /// Since the beginning.
    passed: Duration,
    /// Whether the wall clock may prove that a holder is dead.
    trusted: bool,
    /// By how much the time to write, and the one from which a lease counts, are later than the wall clock.
    later: [u64; 2],
    /// By how much the wall clock is set forward.
    jump: Duration,
    wait: Duration,
    time: Duration,
    round_trip: Duration,
    lease: Duration,
    latest_end: Option<u64>,
    /// By how many milliseconds DynamoDB's clock is ahead.
    behind: Option<u64>,
    /// When the last request was sent that has a response.
    answered: Option<Instants>,
    drawn: u8,
    /// The versions that this call has sent.
    attempts: Vec<Version>,
    /// The transactions that it has sent.
    transactions: Vec<TransactionId>,
    said: String,
}

impl Script {
    /// A caller that waits for nobody, and has ten seconds for responses.
    pub(crate) fn new(replies: impl IntoIterator<Item = Says>) -> Self {
        Self {
            name: "",
            replies: replies.into_iter().collect(),
            passed: Duration::ZERO,
            trusted: true,
            later: [0; 2],
            jump: Duration::ZERO,
            wait: Duration::ZERO,
            time: Duration::from_secs(10),
            round_trip: Duration::from_millis(5),
            lease: Duration::from_secs(20),
            latest_end: None,
            behind: None,
            answered: None,
            drawn: 0,
            attempts: Vec::new(),
            transactions: Vec::new(),
            said: String::new(),
        }
    }

    pub(crate) fn waits(self, millis: u64) -> Self {
        Self { wait: Duration::from_millis(millis), ..self }
    }

    /// The rest of the caller's time.
    pub(crate) fn time(self, millis: u64) -> Self {
        Self { time: Duration::from_millis(millis), ..self }
    }

    pub(crate) fn distrusts_the_wall_clock(self) -> Self {
        Self { trusted: false, ..self }
    }

    /// The clock is wrong by no more than clocks may be: the times that it writes are later than what it shows.
    pub(crate) fn writes_later(self) -> Self {
        Self { later: [100, 300], ..self }
    }

    /// DynamoDB's clock is ahead of that of this caller by so much. The first response shows it.
    pub(crate) fn runs_behind(self, millis: u64) -> Self {
        Self { behind: Some(millis), ..self }
    }

    /// The wall clock is set forward, 20 ms after the beginning.
    pub(crate) fn jumps(self, millis: u64) -> Self {
        Self { jump: Duration::from_millis(millis), ..self }
    }

    /// Each response takes so long, and the caller has time for all of them.
    pub(crate) fn takes(self, millis: u64) -> Self {
        Self { round_trip: Duration::from_millis(millis), time: Duration::from_secs(9_999), ..self }
    }

    pub(crate) fn asks_for_a_lease_of(self, seconds: u64) -> Self {
        Self { lease: Duration::from_secs(seconds), ..self }
    }

    /// Renewals go no further than this millisecond after the beginning.
    pub(crate) fn renews_until(self, millis: u64) -> Self {
        Self { latest_end: Some(BEGIN + millis), ..self }
    }

    /// Runs an operation, which ends without waiting for anything but this port. Returns the name and the transcript.
    pub(crate) fn run<T>(
        mut self,
        name: &'static str,
        operation: impl AsyncFnOnce(&mut Self) -> T,
        ended: impl FnOnce(T, &[Version]) -> String,
    ) -> Case {
        self.name = name;
        let end = {
            let mut running = pin!(operation(&mut self));
            match running.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(end) => end,
                Poll::Pending => panic!("it waits for something else than its port"),
            }
        };
        assert!(self.replies.is_empty(), "{name}: it ended before {:?}\n{}", self.replies, self.said);
        let end = ended(end, &self.attempts);
        self.say(&format!("ended: {end}"));
        (name, self.said)
    }

    fn say(&mut self, what: &str) {
        self.said += &format!("{:>6} ms  {what}\n", self.passed.as_millis());
    }

    fn instants(&self) -> Instants {
        let jump = if self.passed < Duration::from_millis(20) { Duration::ZERO } else { self.jump };
        Instants { monotonic: self.passed, wall: Duration::from_millis(BEGIN) + self.passed + jump }
    }

    fn reply(&mut self, request: &str) -> (Instants, Says) {
        let Some(says) = self.replies.pop_front() else {
            panic!("{}: nothing replies to {request}\n{}", self.name, self.said)
        };
        self.say(request);
        if !matches!(says, Says::NoResponse) {
            self.answered = Some(self.instants());
        }
        self.passed += self.round_trip;
        (self.instants(), says)
    }

    fn fault<T>(&self, says: &Says) -> Reply<T> {
        Err(match says {
            Says::Throttled => Fault::Throttled,
            Says::NoResponse => Fault::Unknown,
            Says::Invalid => Fault::Rejected(Rejection::Invalid("DynamoDB's words".to_owned())),
            Says::Denied => Fault::Rejected(Rejection::Denied("DynamoDB's words".to_owned())),
            other => panic!("{}: no reply to this request is {other:?}\n{}", self.name, self.said),
        })
    }

    fn described(&mut self, Request { key, action, .. }: &Request) -> String {
        let sent = match action {
            Action::Claim { grant, .. } | Action::Take { grant, .. } => Some(grant.version),
            Action::Renew { version, .. } | Action::Settle { version, .. } => Some(*version),
            _ => None,
        };
        self.attempts.extend(sent.filter(|sent| !self.attempts.contains(sent)));
        let key = if key.key() == "k" { String::new() } else { format!("{}: ", key.key()) };
        key + &described(action, &self.attempts)
    }
}

impl Port for Script {
    fn now(&mut self) -> Now {
        let millis = u64::try_from(self.instants().wall.as_millis()).unwrap();
        let [written, latest] = self.later;
        // Once a response has shown DynamoDB's clock, leases end by that.
        let server = self.behind.filter(|_| self.answered.is_some()).map_or(0, |behind| millis + behind);
        Now {
            instants: self.instants(),
            wall: WallClock {
                millis,
                written: millis + written,
                latest: (millis + latest).max(server),
                trusted: self.trusted,
            },
            wait_left: self.wait.saturating_sub(self.passed),
            time_left: self.time.saturating_sub(self.passed),
            lease: self.lease,
            latest_end: self.latest_end,
            server: self.answered.zip(self.behind).map(|(sent, behind)| ServerTime {
                sent,
                millis: u64::try_from(sent.wall.as_millis()).unwrap() + behind,
            }),
        }
    }

    /// Pauses have their full length, since the fraction is 1.
    fn random(&mut self) -> [u8; 16] {
        self.drawn += 1;
        let mut drawn = [0xff; 16];
        (drawn[4], drawn[15]) = (self.drawn, self.drawn);
        drawn
    }

    fn write(&mut self, _: &Now, request: Request) -> impl Future<Output = (Instants, Reply<Written>)> + Send {
        let described = self.described(&request);
        let (after, says) = self.reply(&described);
        let reply = match says {
            Says::Applied => Ok(Written::Applied(written(&request.action))),
            Says::AppliedTo(row) => Ok(Written::Applied(row.item(&self.attempts))),
            Says::AppliedWithoutRow => Ok(Written::Applied(Item::default())),
            Says::Refused(row) => Ok(Written::Refused(Some(row.item(&self.attempts)))),
            Says::RefusedWithoutRow => Ok(Written::Refused(None)),
            other => self.fault(&other),
        };
        std::future::ready((after, reply))
    }

    fn transact(
        &mut self,
        _: &Now,
        requests: Vec<Request>,
    ) -> impl Future<Output = (Instants, Reply<Transacted>)> + Send {
        let described: Vec<String> = requests.iter().map(|request| self.described(request)).collect();
        let Some(id) = &requests[0].transaction else { panic!("{}: a transaction has an id", self.name) };
        if !self.transactions.contains(id) {
            self.transactions.push(id.clone());
        }
        let number = self.transactions.len();
        let (after, says) = self.reply(&format!("transaction {number}: {}", described.join("; ")));
        let reply = match says {
            Says::Applied => Ok(Transacted::Applied),
            Says::RefusedBy(rows) => {
                let refusal = |(index, row): (usize, Row)| Refusal { index, row: Some(row.item(&self.attempts)) };
                Ok(Transacted::Refused(rows.into_iter().map(refusal).collect()))
            }
            Says::RefusedPartly(row) => {
                let first = Refusal { index: 0, row: Some(row.item(&self.attempts)) };
                Ok(Transacted::Refused(vec![first, Refusal { index: 1, row: None }]))
            }
            Says::RefusedWithoutRow => Ok(Transacted::Refused(vec![Refusal { index: 0, row: None }])),
            Says::Cancelled => {
                let code = "ConditionalCheckFailed".to_owned();
                Ok(Transacted::Cancelled(vec![FailedWrite { index: 0, code, message: None }]))
            }
            Says::InProgress => Ok(Transacted::InProgress),
            other => self.fault(&other),
        };
        std::future::ready((after, reply))
    }

    fn read(&mut self, _: &Now, key: LockKey) -> impl Future<Output = (Instants, Reply<Option<Item>>)> + Send {
        let of = if key.key() == "k" { String::new() } else { format!(" at {}", key.key()) };
        let (after, says) = self.reply(&format!("Peek{of}"));
        let reply = match says {
            Says::Is(row) => Ok(Some(row.item(&self.attempts))),
            Says::NoRow => Ok(None),
            other => self.fault(&other),
        };
        std::future::ready((after, reply))
    }

    fn read_all(
        &mut self,
        _: &Now,
        keys: Vec<LockKey>,
    ) -> impl Future<Output = (Instants, Reply<Vec<RowRead>>)> + Send {
        let names: Vec<&str> = keys.iter().map(LockKey::key).collect();
        let (after, says) = self.reply(&format!("Peek at {}", names.join(", ")));
        let reply = match says {
            Says::Are(rows) => {
                let read = |row: Option<Row>| row.map_or(RowRead::Unread, |row| RowRead::Row(row.item(&self.attempts)));
                Ok(rows.into_iter().map(read).collect())
            }
            Says::NoRow => Ok(keys.iter().map(|_| RowRead::Missing).collect()),
            other => self.fault(&other),
        };
        std::future::ready((after, reply))
    }

    fn sleep(&mut self, _: &Now, pause: Duration) -> impl Future<Output = ()> + Send {
        self.say(&format!("pause of {} ms", pause.as_secs_f64() * 1000.0));
        self.passed += pause;
        std::future::ready(())
    }
}

/// What the response to an applied write shows.
fn written(action: &Action) -> Item {
    let (Action::Claim { grant, token, .. } | Action::Take { grant, token, .. }) = action else {
        return Item::default();
    };
    granted(grant, if let NextToken::Exactly(token) = token { *token } else { 8 })
}

fn granted(grant: &NewGrant, token: u64) -> Item {
    let mut attributes = vec![
        ("key", Value::S("k".to_owned())),
        ("recordVersionNumber", Value::S(grant.version.text())),
        ("ownerName", Value::S(grant.owner.clone())),
        ("leaseDuration", Value::S(grant.lease.text().to_owned())),
        ("leaseEndsAt", Value::N(grant.ends_at_ms.to_string())),
        ("fencingToken", Value::N(token.to_string())),
    ];
    if grant.once.is_some() {
        let record = [("attempts", 5), ("firstSeenAt", BEGIN), ("keptUntilAt", grant.ends_at_ms)];
        attributes.extend(record.map(|(name, number)| (name, Value::N(number.to_string()))));
    }
    attributes.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}
