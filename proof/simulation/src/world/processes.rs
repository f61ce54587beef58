//! Processes: their turns, pauses, crashes, clocks and timers, and the calls that they make.

use super::queue::Event;
use super::{State, nanos};
use crate::clocks::{Clocks, Nanos};
use crate::ledger::{Call, CallId, CallKind, Ended, Invariant, ProcessId};
use crate::table::{TOKEN_MEMORY, Typed};
use crate::worker::Role;
use lambda_lock_protocol::Instants;
use std::time::Duration;

#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) role: Role,
    clocks: Clocks,
    /// The process whose clocks and client it uses: itself, or another one.
    pub(crate) shares: ProcessId,
    beside: bool,
    /// The process does nothing before this point in time. While it runs, this is its present.
    pub(crate) local: Nanos,
    /// When its clocks were read last.
    pub(super) read: Nanos,
    /// When its clocks were read first since it was woken.
    pub(super) looked: Nanos,
    /// When it was woken last. It prepared its next request no earlier, and pauses may lie in between.
    pub(super) woken: Nanos,
    pub(crate) alive: bool,
    pub(crate) call: Option<CallId>,
    /// The grant that it believes to hold.
    pub(crate) holds: Option<usize>,
    pub(crate) nudged: bool,
    /// Its place in line, with which it will come back.
    pub(crate) ticket: Option<(u64, CallId)>,
    /// A transaction of the lock that it holds, if it does not know the outcome.
    pub(crate) unresolved: Option<usize>,
    /// It is about to send a transaction, perhaps again.
    pub(crate) commits: bool,
    /// Its credentials are invalid before this point in time.
    pub(super) denied_until: Nanos,
    /// The number of wrong dates that its client has seen, if the client is its own.
    pub(super) wrong_dates: u32,
    /// The request that the SDK is about to send.
    pub(crate) noted: Option<Typed>,
}

/// What a process does when it is woken.
pub(crate) enum Turn {
    Nothing,
    Go,
    Crash,
}

impl State {
    pub(crate) fn spawn(&mut self, role: Role) -> ProcessId {
        let clocks = Clocks::new(&self.plan.clocks, self.plan.skew, self.now, &mut self.rng);
        self.counts().behind += u64::from(clocks.is_behind());
        self.processes.push(Process {
            role,
            clocks,
            shares: self.processes.len(),
            beside: false,
            local: self.now,
            read: self.now,
            looked: 0,
            woken: self.now,
            alive: true,
            call: None,
            holds: None,
            nudged: false,
            ticket: None,
            unresolved: None,
            commits: false,
            denied_until: 0,
            wrong_dates: 0,
            noted: None,
        });
        self.alive += 1;
        let id = self.processes.len() - 1;
        if self.plan.shared && role == Role::Worker && self.rng.bool() {
            // Not a process that is paused, and perhaps frozen together with its clocks.
            let goes = |other: &Process| other.alive && other.role == role && other.local <= self.now;
            let living = (0..id).filter(|other| goes(&self.processes[*other]));
            let living: Vec<_> = living.collect();
            if let Some(other) = self.rng.choice(living) {
                self.processes[id].shares = self.processes[other].shares;
                self.processes[other].beside = true;
                self.processes[id].beside = true;
                self.counts().shared_clients += 1;
            }
        }
        id
    }

    /// Whether a process continues now, is paused first, or crashes.
    pub(crate) fn turn(&mut self, id: ProcessId, timer: Option<usize>) -> Turn {
        let process = &self.processes[id];
        if !process.alive || timer.is_some_and(|timer| !self.timers[timer]) {
            return Turn::Nothing;
        }
        if process.local > self.now {
            self.at(process.local, Event::Wake(id, timer));
            return Turn::Nothing;
        }
        self.processes[id].local = self.now;
        self.processes[id].woken = self.now;
        if self.chance(self.plan.faults.pause) {
            self.pause(id);
            self.at(self.processes[id].local, Event::Wake(id, timer));
            return Turn::Nothing;
        }
        if self.processes[id].role.may_crash() && self.chance(self.plan.faults.crash) {
            return Turn::Crash;
        }
        self.mix(id as u64 ^ self.now);
        Turn::Go
    }

    /// The process is paused from its present on.
    pub(super) fn pause(&mut self, id: ProcessId) {
        let lease = nanos(self.plan.lease);
        let longest = [lease / 8, lease, 3 * lease][self.rng.usize(..3)];
        let mut lasting = self.rng.u64(1..=longest);
        if self.processes[id].commits && self.plan.faults.long_freezes && !self.calm && self.rng.u8(..3) == 0 {
            // About as long as DynamoDB remembers a transaction, or longer.
            lasting = nanos(TOKEN_MEMORY) * self.rng.u64(75..=130) / 100;
            self.counts().long_freezes += 1;
        }
        // Peers read only one clock, so that clock must keep its rate.
        let looks_at_both = !matches!(self.processes[id].role, Role::Peer(_));
        // A sandbox is frozen with everything in it.
        let alone = !self.processes[id].beside;
        let freezes = self.plan.clocks.freezes && looks_at_both && self.rng.bool() && alone;
        let process = &mut self.processes[id];
        process.local += lasting;
        if freezes {
            process.clocks.freeze(lasting);
        }
        let (call, holds, until) = (process.call, process.holds.is_some(), process.local);
        if let Some(call) = call {
            let call = &mut self.ledger.calls[call];
            call.disturbed = Some(until);
            call.paused += lasting;
        }
        let counts = self.counts();
        counts.pauses += 1;
        counts.freezes += u64::from(freezes);
        counts.long_pauses += u64::from(holds && lasting > lease);
        self.say_of(id, || format!("was paused for {:?}, frozen: {freezes}", Duration::from_nanos(lasting)));
    }

    pub(crate) fn jump(&mut self, id: ProcessId) {
        let now = self.now;
        let Self { processes, rng, plan, .. } = self;
        let shares = processes[id].shares;
        let clocks = &mut processes[shares].clocks;
        let falls_behind = plan.clocks.behind && !clocks.is_behind() && rng.bool();
        if falls_behind {
            clocks.fall_behind(rng);
        } else {
            clocks.jump(now, rng);
        }
        if let Some(call) = processes[id].call {
            let disturbed = &mut self.ledger.calls[call].disturbed;
            *disturbed = Some(disturbed.unwrap_or(now).max(now));
        }
        self.counts().jumps += 1;
        self.counts().fell_behind += u64::from(falls_behind);
        self.say(|_| format!("the wall clock of {id} is set"));
    }

    pub(crate) fn read_clocks(&mut self, id: ProcessId) -> Instants {
        let pauses = self.chance(self.plan.faults.pause_at_clock);
        let before = pauses && self.rng.bool();
        if before {
            self.pause(id);
        }
        let shares = self.processes[id].shares;
        let process = &mut self.processes[id];
        process.read = process.local;
        if process.looked < process.woken {
            process.looked = process.local;
        }
        let local = process.local;
        let instants = self.processes[shares].clocks.read(local);
        if pauses && !before {
            self.pause(id);
        }
        instants
    }

    pub(crate) fn timer(&mut self, id: ProcessId, duration: Duration) -> (usize, u64, Nanos) {
        let Process { local, shares, .. } = self.processes[id];
        let clocks = &self.processes[shares].clocks;
        let until = clocks.monotonic(local) + nanos(duration);
        self.timers.push(true);
        let timer = self.timers.len() - 1;
        let at = clocks.when(until);
        self.at(at, Event::Wake(id, Some(timer)));
        (timer, until, at)
    }

    /// `Ok` if the timer has expired, otherwise the time for which it is scheduled now.
    pub(crate) fn poll_timer(
        &mut self,
        id: ProcessId,
        timer: usize,
        until: u64,
        scheduled: Nanos,
    ) -> Result<(), Nanos> {
        let Process { local, shares, .. } = self.processes[id];
        let clocks = &self.processes[shares].clocks;
        if clocks.monotonic(local) >= until {
            return Ok(());
        }
        // The clock stood still in between.
        let at = clocks.when(until);
        if at > scheduled {
            self.at(at, Event::Wake(id, Some(timer)));
        }
        Err(at.max(scheduled))
    }

    pub(crate) fn drop_timer(&mut self, timer: usize) {
        self.timers[timer] = false;
    }

    pub(crate) fn call_begins(&mut self, id: ProcessId, key: usize, kind: CallKind) -> CallId {
        let started = self.processes[id].local;
        self.say_of(id, || format!("calls {kind:?} on {key}"));
        self.ledger.calls.push(Call {
            kind,
            ended: Ended::Running,
            started,
            disturbed: None,
            paused: 0,
            sent_release: false,
            applied: false,
            owned: true,
            out_of_turn: false,
            lost_its_place: false,
            may_come: false,
            faulted: false,
            unclear: false,
            refusals: 0,
            wants: None,
            attributes: Vec::new(),
            commits: false,
            shown: None,
        });
        let call = self.ledger.calls.len() - 1;
        self.processes[id].call = Some(call);
        call
    }

    /// How long a call may take that does not wait for another holder: three timeouts for faults, then at most one more
    /// request, by a clock that may be slow.
    pub(crate) fn call_limit(&self) -> Duration {
        let timeout = self.plan.timeout;
        (timeout * 4).max(timeout * 3 + Duration::from_millis(250)).mul_f64(1.03) + Duration::from_millis(2)
    }

    /// How long the process was paused in its present call.
    pub(crate) fn paused(&self, id: ProcessId) -> Duration {
        Duration::from_nanos(self.processes[id].call.map_or(0, |call| self.ledger.calls[call].paused))
    }

    pub(crate) fn call_ends(&mut self, id: ProcessId, ended: Ended, limit: Option<Duration>) {
        let Some(call) = self.processes[id].call.take() else { return };
        let (local, call_limit) = (self.processes[id].local, self.call_limit());
        self.counts().calls += 1;
        self.mix(local ^ ended as u64);
        let record = &mut self.ledger.calls[call];
        record.ended = ended;
        let Some(limit) = limit else { return };
        // A pause uses up the caller's time. If it ends later than that, the call still waits for requests in flight,
        // releases what they acquired, and does nothing else.
        let rest = record.disturbed.map_or(0, |disturbed| disturbed + nanos(call_limit * 3));
        let (took, late) = (local - record.started, local > (record.started + nanos(limit)).max(rest));
        let (disturbed, kind) = (record.disturbed.is_some(), record.kind.clone());
        self.counts().calls_disturbed += u64::from(disturbed);
        if late {
            let what = format!("{kind:?} took {:?} of {limit:?}, disturbed: {disturbed}", Duration::from_nanos(took));
            self.ledger.violate(Invariant::ReturnsInTime, what);
        }
    }
}
