//! The exhaustive model: two callers, one key, small abstract time, and every order of what may happen.
//!
//! The decisions are the protocol's own [`Machine`]s, the table is the pure evaluation of the protocol's
//! own expressions. A request may be applied and answered, applied unheard, applied twice, or arrive at any
//! later time; callers time out, crash, and come back as somebody else; leases run out and are taken over.

use crate::expression::{self, Outcome};
use lambda_lock::mutants::{self, Mutant};
use lambda_lock::protocol::{
    AcquireVerdict, Acquisition, Action, Answer, DataChange, Expression, Holding, Item, LockKey, Machine, Moment,
    Reclaim, ReleaseVerdict, Releasing, RenewVerdict, Renewal, Request, Rules, Settings, Step, Tick, Value, WallClock,
    Wanted, schema,
};
use stateright::{Checker, HasDiscoveries, Model, Property};
use std::fmt::{Debug, Write as _};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How long a tick of the abstract time is.
const TICK: Duration = Duration::from_millis(100);
/// A lease of two ticks.
const LEASE: Duration = Duration::from_millis(200);
const EPOCH: u64 = 1_800_000_000_000;
const CALLERS: usize = 2;
/// How many requests a call may send before its time is over.
const REQUESTS: usize = 3;

static SETTINGS: LazyLock<Settings> =
    LazyLock::new(|| Settings { rules: Rules::default().with_max_clock_skew(Some(TICK)), ..Settings::default() });

/// How far it goes.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Happenings in a row.
    pub depth: usize,
    /// Ticks.
    pub time: u8,
    /// Calls of each caller.
    pub calls: u8,
    /// Requests on their way at the same time.
    pub messages: usize,
    /// Requests that are applied twice.
    pub duplicates: u8,
    /// Crashes.
    pub crashes: u8,
}

/// What is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Call {
    Acquire,
    Renew,
    Release,
}

/// What a machine was told, and when: enough to make it anew, as machines cannot be copied.
#[derive(Clone, Debug)]
enum Input {
    Step(u8),
    Answer(u8, Answer),
}

#[derive(Clone, Debug)]
enum Caller {
    Idle,
    Calling { call: Call, held: Option<Holding>, inputs: Vec<Input>, waits_for: WaitsFor, print: u64 },
    Holding(Holding),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum WaitsFor {
    /// The answer to the request with this number.
    Answer(u8),
    /// Time to pass.
    Time,
}

/// A request on its way.
#[derive(Clone, Debug)]
struct Message {
    caller: usize,
    number: u8,
    request: Request,
    print: u64,
}

/// Everything, at one moment.
#[derive(Clone, Debug)]
pub struct State {
    now: u8,
    row: Option<Item>,
    row_print: u64,
    callers: [Caller; CALLERS],
    calls: [u8; CALLERS],
    /// How many requests each caller has sent: it numbers them, and makes their randomness.
    sent: [u8; CALLERS],
    messages: Vec<Message>,
    duplicates: u8,
    crashes: u8,
    /// The largest token of all grants.
    token: u64,
    broken: Option<&'static str>,
}

impl Hash for State {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let Self { now, row: _, row_print, callers, calls, sent, messages, duplicates, crashes, token, broken } = self;
        (now, row_print, calls, sent, duplicates, crashes, token, broken).hash(hasher);
        for caller in callers {
            match caller {
                Caller::Idle => 0.hash(hasher),
                Caller::Calling { call, waits_for, print, .. } => (1, call, waits_for, print).hash(hasher),
                Caller::Holding(holding) => (2, print_of(holding)).hash(hasher),
            }
        }
        let mut prints: Vec<_> =
            messages.iter().map(|message| (message.caller, message.number, message.print)).collect();
        prints.sort_unstable();
        prints.hash(hasher);
    }
}

impl PartialEq for State {
    fn eq(&self, other: &Self) -> bool {
        let hash = |state: &Self| {
            let mut hasher = DefaultHasher::new();
            state.hash(&mut hasher);
            hasher.finish()
        };
        hash(self) == hash(other)
    }
}

/// What may happen next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happening {
    /// Time passes.
    Tick,
    /// A caller begins a call.
    Begins(usize, u8),
    /// A caller goes on after a pause.
    GoesOn(usize),
    /// A request is applied and answered.
    Answered(usize),
    /// A request is applied; nobody hears of it, or it is not waited for any more.
    Unheard(usize),
    /// A request is applied, and a copy of it stays on its way.
    Doubled(usize),
    /// A caller waits no longer for an answer.
    TimesOut(usize),
    /// A caller dies, and comes back as somebody else.
    Crashes(usize),
}

/// What happened at all.
#[derive(Debug, Default)]
pub struct Sometimes {
    /// Grants.
    pub granted: AtomicU64,
    /// Holders replaced after their lease.
    pub takeovers: AtomicU64,
    /// Own writes recognised after a lost answer.
    pub recognised: AtomicU64,
    /// Renewals applied after the lease had run out.
    pub renewed_late: AtomicU64,
    /// Guards that learnt that they are lost.
    pub lost: AtomicU64,
    /// Calls of unknown outcome.
    pub unknown: AtomicU64,
    /// Calls refused by a holder.
    pub held: AtomicU64,
    /// Late requests that were refused.
    pub late_refused: AtomicU64,
    /// Grants that nobody was told of.
    pub ghosts: AtomicU64,
    /// Releases applied.
    pub released: AtomicU64,
}

impl Sometimes {
    fn list(&self) -> [(&'static str, u64); 10] {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        [
            ("granted", of(&self.granted)),
            ("taken over", of(&self.takeovers)),
            ("recognised after a lost answer", of(&self.recognised)),
            ("renewed after the lease had run out", of(&self.renewed_late)),
            ("lost", of(&self.lost)),
            ("unknown", of(&self.unknown)),
            ("held", of(&self.held)),
            ("late requests refused", of(&self.late_refused)),
            ("grants that nobody was told of", of(&self.ghosts)),
            ("released", of(&self.released)),
        ]
    }
}

/// The model.
#[derive(Debug)]
pub struct Lock {
    bounds: Bounds,
    /// The mistake to be made.
    mutant: Option<Mutant>,
    sometimes: Sometimes,
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// A number for whatever can be printed.
fn print_of(value: &impl Debug) -> u64 {
    struct Printer(u64);
    impl std::fmt::Write for Printer {
        fn write_str(&mut self, text: &str) -> std::fmt::Result {
            for byte in text.bytes() {
                self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
            }
            Ok(())
        }
    }
    let mut printer = Printer(0xcbf2_9ce4_8422_2325);
    let _ = write!(printer, "{value:?}");
    printer.0
}

/// The clocks of a caller: the second one's wall clock is half a tick ahead, the first one's half behind.
fn moment(caller: usize, now: u8) -> Moment {
    let ticks = TICK * u32::from(now);
    let off = if caller == 0 { TICK / 2 } else { TICK * 3 / 2 };
    Moment { monotonic: ticks, wall: Duration::from_millis(EPOCH) + ticks + off }
}

fn wanted(caller: usize) -> Wanted {
    Wanted {
        key: LockKey::from("k"),
        owner: format!("caller {caller}"),
        workflow: None,
        data: DataChange::Keep,
        reclaim: Reclaim::Nobody,
        observation: None,
    }
}

/// How a call went on.
enum Next {
    Sends(Request),
    Pauses,
    Acquired(AcquireVerdict),
    Renewed(RenewVerdict),
    Released(ReleaseVerdict),
}

/// Makes a machine anew from what it was told, and answers what it does after that.
fn replay(
    caller: usize,
    serial: u8,
    call: Call,
    held: Option<&Holding>,
    inputs: &[Input],
) -> (Next, u64, Option<Holding>) {
    match (call, held.cloned()) {
        (Call::Renew, Some(mut holding)) => {
            let (step, print) = drive(Renewal::new(&SETTINGS, &mut holding, DataChange::Keep), caller, serial, inputs);
            let print = print ^ print_of(&holding);
            (step.map_or_else(|other| other, Next::Renewed), print, Some(holding))
        }
        (Call::Release, Some(holding)) => {
            let (step, print) = drive(Releasing::mine(&SETTINGS, &holding), caller, serial, inputs);
            (step.map_or_else(|other| other, Next::Released), print, None)
        }
        _ => {
            let (step, print) = drive(Acquisition::new(&SETTINGS, wanted(caller)), caller, serial, inputs);
            (step.map_or_else(|other| other, Next::Acquired), print, None)
        }
    }
}

fn drive<M: Machine + Debug>(
    mut machine: M,
    caller: usize,
    serial: u8,
    inputs: &[Input],
) -> (Result<M::Verdict, Next>, u64) {
    let mut last = None;
    let mut requests = 0;
    for input in inputs {
        match input {
            Input::Answer(now, answer) => machine.answered(moment(caller, *now), answer.clone()),
            Input::Step(now) => {
                let now = moment(caller, *now);
                let left = if requests < REQUESTS { Duration::from_secs(10) } else { Duration::ZERO };
                let drawn = std::cell::Cell::new(0);
                let random = || {
                    drawn.set(drawn.get() + 1);
                    let mut bytes = [caller as u8 + 1; 16];
                    (bytes[0], bytes[1], bytes[2]) = (serial, requests as u8, drawn.get());
                    bytes
                };
                let tick = Tick {
                    now,
                    wall: WallClock { millis: now.wall.as_millis() as u64, trusted: true },
                    wait_left: left,
                    time_left: left,
                    lease: LEASE,
                    latest_end: None,
                    random: &random,
                };
                let step = machine.step(&tick);
                requests += usize::from(matches!(step, Step::Send(_)));
                last = Some(step);
            }
        }
    }
    let print = print_of(&machine);
    let next = match last {
        Some(Step::Done(verdict)) => Ok(verdict),
        Some(Step::Send(request)) => Err(Next::Sends(request)),
        _ => Err(Next::Pauses),
    };
    (next, print)
}

impl State {
    /// What a guard says now.
    fn says_mine(&self, caller: usize) -> bool {
        match &self.callers[caller] {
            Caller::Holding(holding) => !holding.belief.remaining(moment(caller, self.now)).is_zero(),
            // A call that renews leaves the guard what it was until it is answered.
            Caller::Calling { call: Call::Renew, held: Some(holding), .. } => {
                !holding.belief.remaining(moment(caller, self.now)).is_zero()
            }
            _ => false,
        }
    }

    fn version(&self) -> Option<&str> {
        match self.row.as_ref()?.get(schema::VERSION) {
            Some(Value::S(version)) => Some(version),
            _ => None,
        }
    }

    fn token_on_row(&self) -> u64 {
        match self.row.as_ref().and_then(|row| row.get(schema::TOKEN)) {
            Some(Value::N(number)) => number.parse().unwrap(),
            _ => 0,
        }
    }

    fn is_released(&self) -> bool {
        self.row.as_ref().is_some_and(|row| row.get(schema::RELEASED).is_some())
    }

    fn is_held_by(&self, holding: &Holding) -> bool {
        let first = holding.newest.grant.first_version();
        let own = self.version().is_some_and(|version| version[..37] == first[..37]);
        own && self.token_on_row() == holding.token && !self.is_released()
    }

    fn breaks(&mut self, what: &'static str) {
        self.broken.get_or_insert(what);
    }
}

impl Lock {
    fn begin(&self, state: &mut State, caller: usize, call: Call) {
        let held = match std::mem::replace(&mut state.callers[caller], Caller::Idle) {
            Caller::Holding(holding) => Some(holding),
            _ => None,
        };
        state.calls[caller] += 1;
        self.go_on(state, caller, call, held, Vec::new());
    }

    /// The caller's machine makes its next step now.
    fn go_on(&self, state: &mut State, caller: usize, call: Call, held: Option<Holding>, mut inputs: Vec<Input>) {
        inputs.push(Input::Step(state.now));
        let (next, print, renewed) = replay(caller, state.calls[caller], call, held.as_ref(), &inputs);
        let waits_for = match next {
            Next::Pauses => WaitsFor::Time,
            Next::Sends(request) => {
                state.sent[caller] += 1;
                let number = state.sent[caller];
                let print = print_of(&request);
                state.messages.push(Message { caller, number, request, print });
                WaitsFor::Answer(number)
            }
            Next::Acquired(verdict) => return self.acquired(state, caller, verdict),
            Next::Renewed(verdict) => return self.renewed(state, caller, verdict, held, renewed),
            Next::Released(verdict) => return self.given_back(state, verdict, held),
        };
        state.callers[caller] = Caller::Calling { call, held, inputs, waits_for, print };
    }

    fn acquired(&self, state: &mut State, caller: usize, verdict: AcquireVerdict) {
        match verdict {
            AcquireVerdict::Granted { holding, .. } => state.callers[caller] = Caller::Holding(holding),
            AcquireVerdict::Held(seen) => {
                count(&self.sometimes.held);
                if seen.owner == format!("caller {caller}")
                    && seen.observation.version().contains(&self.grant_of(state, caller))
                {
                    state.breaks("held by a grant of the call itself");
                }
            }
            AcquireVerdict::Unknown => count(&self.sometimes.unknown),
            _ => {}
        }
    }

    /// How the versions of a caller's present call begin: its grants are made of its number and the call's.
    fn grant_of(&self, state: &State, caller: usize) -> String {
        format!("ll1-{:02x}00", state.calls[caller]) + &format!("{:02x}", caller + 1)
    }

    fn renewed(
        &self,
        state: &mut State,
        caller: usize,
        verdict: RenewVerdict,
        before: Option<Holding>,
        after: Option<Holding>,
    ) {
        let (Some(before), Some(after)) = (before, after) else { return };
        if verdict == RenewVerdict::Lost {
            count(&self.sometimes.lost);
            if state.is_held_by(&before) {
                state.breaks("lost while the row is ours");
            }
            return;
        }
        if verdict == RenewVerdict::Unknown {
            count(&self.sometimes.unknown);
        }
        state.callers[caller] = Caller::Holding(after);
    }

    fn given_back(&self, state: &mut State, verdict: ReleaseVerdict, held: Option<Holding>) {
        let said = matches!(verdict, ReleaseVerdict::Released | ReleaseVerdict::AlreadyGone);
        if held.is_some_and(|held| said && state.is_held_by(&held)) {
            state.breaks("released while the row is ours");
        }
    }

    /// A request reaches the table.
    fn apply(&self, state: &mut State, message: &Message, heard: bool) -> Answer {
        if message.request.action == Action::Peek {
            return Answer::Found(state.row.clone());
        }
        let expression = Expression::of(&message.request, &SETTINGS.schema);
        let (before, released) = (state.version().map(str::to_owned), state.is_released());
        let (token, alive) = (state.token_on_row(), state.row.is_some() && !released);
        let outcome = expression::update(&expression, &mut state.row, || {
            let mut made = Item::default();
            made.set("key", Value::S("k".to_owned()));
            made
        });
        let Outcome::Applied(returned) = outcome else {
            if !heard {
                count(&self.sometimes.late_refused);
            }
            return Answer::Refused(state.row.clone());
        };
        state.row_print = print_of(&sorted(&state.row));
        self.note(state, message, before, (token, alive));
        if !heard && matches!(message.request.action, Action::Claim { .. } | Action::Take { .. }) {
            count(&self.sometimes.ghosts);
        }
        Answer::Applied(returned)
    }

    /// What an applied write must not have done.
    fn note(&self, state: &mut State, message: &Message, before: Option<String>, (token, alive): (u64, bool)) {
        let grant = |version: &str| version[..36].to_owned();
        match &message.request.action {
            Action::Claim { .. } | Action::Take { .. } => {
                count(&self.sometimes.granted);
                if alive {
                    count(&self.sometimes.takeovers);
                }
                let new = state.token_on_row();
                if new <= state.token {
                    state.breaks("a token that is not larger than all before");
                }
                state.token = state.token.max(new);
            }
            Action::Renew { version, token: own, .. } => {
                if before.as_deref().map(grant) != Some(grant(&version.to_string())) || token != *own {
                    state.breaks("a renewal of another grant");
                }
                if !state.says_mine(message.caller) {
                    count(&self.sometimes.renewed_late);
                }
            }
            Action::Release { scope: lambda_lock::protocol::Scope::Mine { grant: own, token: of, .. }, .. } => {
                count(&self.sometimes.released);
                let is = before.is_some_and(|before| before[..37] == own.first_version()[..37]);
                if !is || of.is_some_and(|of| of != token) {
                    state.breaks("a release of another grant");
                }
            }
            _ => {}
        }
    }

    fn answer(&self, state: &mut State, caller: usize, answer: Answer) {
        let Caller::Calling { call, held, mut inputs, .. } =
            std::mem::replace(&mut state.callers[caller], Caller::Idle)
        else {
            return;
        };
        if let (Call::Acquire, Answer::Refused(Some(row)) | Answer::Found(Some(row))) = (call, &answer)
            && let Some(Value::S(version)) = row.get(schema::VERSION)
            && version.starts_with(&self.grant_of(state, caller)[..6])
        {
            count(&self.sometimes.recognised);
        }
        inputs.push(Input::Answer(state.now, answer));
        self.go_on(state, caller, call, held, inputs);
    }
}

fn sorted(row: &Option<Item>) -> Vec<(String, Value)> {
    let mut list: Vec<_> =
        row.iter().flat_map(Item::iter).map(|(name, value)| (name.to_owned(), value.clone())).collect();
    list.sort_by(|one, other| one.0.cmp(&other.0));
    list
}

impl Model for Lock {
    type State = State;
    type Action = Happening;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            now: 0,
            row: None,
            row_print: 0,
            callers: [Caller::Idle, Caller::Idle],
            calls: [0; CALLERS],
            sent: [0; CALLERS],
            messages: Vec::new(),
            duplicates: 0,
            crashes: 0,
            token: 0,
            broken: None,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Happening>) {
        if state.now < self.bounds.time {
            actions.push(Happening::Tick);
        }
        let room = state.messages.len() < self.bounds.messages;
        for (caller, what) in state.callers.iter().enumerate() {
            let more = state.calls[caller] < self.bounds.calls && room;
            match what {
                Caller::Idle if more => actions.push(Happening::Begins(caller, 0)),
                Caller::Holding(_) if more => {
                    actions.extend([Happening::Begins(caller, 1), Happening::Begins(caller, 2)]);
                }
                Caller::Calling { waits_for: WaitsFor::Time, .. } if room => actions.push(Happening::GoesOn(caller)),
                Caller::Calling { waits_for: WaitsFor::Answer(_), .. } if room => {
                    actions.push(Happening::TimesOut(caller))
                }
                _ => {}
            }
            if state.crashes < self.bounds.crashes && !matches!(what, Caller::Idle) {
                actions.push(Happening::Crashes(caller));
            }
        }
        for (index, message) in state.messages.iter().enumerate() {
            let waited_for = matches!(&state.callers[message.caller],
                Caller::Calling { waits_for: WaitsFor::Answer(number), .. } if *number == message.number);
            if waited_for {
                actions.push(Happening::Answered(index));
            }
            if message.request.action != Action::Peek {
                actions.push(Happening::Unheard(index));
                if state.duplicates < self.bounds.duplicates {
                    actions.push(Happening::Doubled(index));
                }
            }
        }
    }

    fn next_state(&self, last: &State, action: Happening) -> Option<State> {
        mutants::set(self.mutant);
        let mut state = last.clone();
        match action {
            Happening::Tick => state.now += 1,
            Happening::Begins(caller, call) => {
                self.begin(&mut state, caller, [Call::Acquire, Call::Renew, Call::Release][usize::from(call)]);
            }
            Happening::GoesOn(caller) => {
                let Caller::Calling { call, held, inputs, .. } =
                    std::mem::replace(&mut state.callers[caller], Caller::Idle)
                else {
                    return None;
                };
                self.go_on(&mut state, caller, call, held, inputs);
            }
            Happening::Answered(index) => {
                let message = state.messages.swap_remove(index);
                let answer = self.apply(&mut state, &message, true);
                self.answer(&mut state, message.caller, answer);
            }
            Happening::Unheard(index) => {
                let message = state.messages.swap_remove(index);
                self.apply(&mut state, &message, false);
            }
            Happening::Doubled(index) => {
                state.duplicates += 1;
                let message = state.messages[index].clone();
                self.apply(&mut state, &message, false);
            }
            Happening::TimesOut(caller) => {
                // A read that nobody waits for does nothing any more.
                state.messages.retain(|message| message.caller != caller || message.request.action != Action::Peek);
                self.answer(&mut state, caller, Answer::Unknown);
            }
            Happening::Crashes(caller) => {
                state.crashes += 1;
                state.messages.retain(|message| message.caller != caller || message.request.action != Action::Peek);
                state.callers[caller] = Caller::Idle;
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("no promise is broken", |_, state: &State| state.broken.is_none()),
            Property::always("at most one guard says mine", |_, state: &State| {
                (0..CALLERS).filter(|caller| state.says_mine(*caller)).count() <= 1
            }),
            Property::sometimes("a guard says mine", |_, state: &State| {
                (0..CALLERS).any(|caller| state.says_mine(caller))
            }),
            Property::sometimes("a holder finds its lease run out", |_, state: &State| {
                matches!(state.callers[0], Caller::Holding(_)) && !state.says_mine(0)
            }),
            Property::sometimes("an old holder has not noticed the new one", |_, state: &State| {
                matches!(state.callers, [Caller::Holding(_), Caller::Holding(_)])
            }),
        ]
    }
}

/// What checking the model came to.
#[derive(Debug)]
pub struct Checked {
    /// How many different states there are.
    pub states: usize,
    /// What was broken, and how it came to that.
    pub broken: Vec<String>,
    /// What should happen sometimes, and how often it did.
    pub sometimes: Vec<(&'static str, u64)>,
}

/// Looks at every state. `tick` hears now and then how many there are so far.
pub fn check(bounds: Bounds, mutant: Option<Mutant>, threads: usize, tick: impl Fn(usize)) -> Checked {
    let model = Lock { bounds, mutant, sometimes: Sometimes::default() };
    let checker = model.checker().threads(threads).target_max_depth(bounds.depth);
    let checker = checker.finish_when(HasDiscoveries::AnyFailures).spawn_bfs();
    while !checker.is_done() {
        std::thread::sleep(Duration::from_millis(200));
        tick(checker.unique_state_count());
    }
    let checker = checker.join();
    let mut broken = Vec::new();
    let mut sometimes = checker.model().sometimes.list().to_vec();
    let discoveries = checker.discoveries();
    for property in checker.model().properties() {
        let found = discoveries.get(property.name);
        match property.expectation {
            stateright::Expectation::Sometimes => sometimes.push((property.name, u64::from(found.is_some()))),
            _ => broken.extend(found.map(|path| {
                let mut text = property.name.to_owned();
                for (state, action) in path.clone().into_vec() {
                    let _ = write!(text, "\n  at {} {action:?} {:?}", state.now, state.broken);
                }
                text
            })),
        }
    }
    Checked { states: checker.unique_state_count(), broken, sometimes }
}
