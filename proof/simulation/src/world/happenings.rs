//! What each event does.

use super::processes::Process;
use super::queue::{Event, Fenced};
use super::{State, nanos};
use crate::expression;
use crate::ledger::{Invariant, ProcessId};

impl State {
    pub(crate) fn happens(&mut self, event: Event) {
        match event {
            Event::Wake(..) | Event::Spawn(_) => {}
            Event::Arrive(message) => self.arrives(*message),
            Event::ArrivePeers(slot, op) => self.peers_arrives(slot, *op),
            Event::Answer(slot) => self.answered(slot),
            Event::Claim { granted, fresh } => self.claims(granted, fresh),
            Event::Work { granted, fresh } => {
                self.say(|_| format!("a work of grant no {granted} is polled"));
                let Self { ledger, plan, now, .. } = self;
                ledger.works(plan, granted, *now);
                if fresh {
                    self.nudge_others(granted);
                }
            }
            Event::Effect(granted) => {
                self.say(|_| format!("an effect of grant no {granted} reaches the resource"));
                let Self { ledger, plan, fenced, .. } = self;
                ledger.effect(plan, granted, *fenced);
            }
            Event::Hand(token, unresolved) if self.handed.len() < 4 => self.handed.push((token, unresolved)),
            Event::Hand(..) => {}
            Event::Observed(observation) => self.observed = Some((observation, self.now)),
            Event::Fenced(fenced) => self.fenced_arrives(*fenced),
            _ if self.calm => {}
            Event::DeleteRow => {
                self.delete_row();
                self.again(self.plan.faults.row_deleted, Event::DeleteRow);
            }
            Event::Spoil => {
                self.spoil();
                self.again(self.plan.faults.spoiled, Event::Spoil);
            }
            Event::Repair(key) => self.repair(key),
            Event::Jump => {
                let living: Vec<_> = (0..self.processes.len()).filter(|id| self.processes[*id].alive).collect();
                if let Some(id) = self.rng.choice(living) {
                    self.jump(id);
                }
                self.again(self.plan.clocks.jumps * self.alive.max(1) as f64, Event::Jump);
            }
            Event::Throttle => {
                let lasting = self.rng.u64(1..=5) * nanos(self.plan.lease);
                self.throttled_until = self.now + lasting;
                self.again(self.plan.faults.bursts, Event::Throttle);
            }
        }
    }

    fn answered(&mut self, slot: usize) {
        let process = self.slots[slot].process;
        self.slots[slot].arrived = Some(self.server_time(process));
        if !self.slots[slot].dropped {
            let (heard, refused) = self.slots[slot].means.unwrap_or_default();
            self.slots[slot].refused = refused;
            self.slots[slot].heard = heard;
            if let Some(owned) = self.slots[slot].owned {
                self.ledger.calls[self.slots[slot].call].owned = owned;
            }
            if let Some(shown) = self.slots[slot].shows.take() {
                self.ledger.calls[self.slots[slot].call].shown = shown;
                self.sees_its_turn(self.slots[slot].call);
            }
            self.at(self.now, Event::Wake(process, None));
        }
    }

    fn fenced_arrives(&mut self, Fenced { key, granted, condition }: Fenced) {
        if let Some(complaint) = expression::complaint(&condition, &[self.schema.key_attribute.as_str()]) {
            self.ledger.violate(Invariant::WellFormed, format!("Fence: {complaint}"));
            return;
        }
        let holds = expression::holds(&condition, self.rows.get(&self.keys[key]));
        self.say(|_| format!("a fenced transaction of grant no {granted} arrives: {holds}"));
        self.mix(self.now ^ u64::from(holds));
        if holds {
            self.counts().fenced += 1;
            self.ledger.effect(&self.plan, granted, false);
        } else {
            self.counts().fenced_off += 1;
        }
    }

    fn delete_row(&mut self) {
        let key = self.rng.usize(..self.plan.keys);
        self.delete(key);
    }

    pub(super) fn delete(&mut self, key: usize) {
        self.say(|_| format!("the row {key} is deleted by hand"));
        self.rows.set(&self.keys[key].clone(), None);
        self.mirror(key);
        self.line_is_over(key);
        self.ledger.row_is_gone(key);
    }

    fn claims(&mut self, granted: usize, fresh: bool) {
        self.say(|_| format!("grant no {granted} says mine"));
        let Self { ledger, plan, now, .. } = self;
        ledger.mine(plan, granted, *now);
        if fresh {
            self.nudge_others(granted);
        }
    }

    fn nudge_others(&mut self, granted: usize) {
        // All other processes that hold the key are asked at the same instant.
        let key = self.ledger.grants[granted].key;
        for id in 0..self.processes.len() {
            let holds = self.processes[id].holds.filter(|holds| *holds != granted);
            if self.processes[id].alive && holds.is_some_and(|holds| self.ledger.grants[holds].key == key) {
                self.processes[id].nudged = true;
                self.at(self.now, Event::Wake(id, None));
            }
        }
    }

    /// A work under a guard is polled now. The instant is the one at which its process read its clock in this turn, if
    /// it did.
    pub(crate) fn works(&mut self, id: ProcessId, granted: usize, fresh: bool) {
        let Process { looked, woken, local, .. } = self.processes[id];
        let at = if looked >= woken { looked } else { local };
        self.at(at, Event::Work { granted, fresh });
    }

    /// A guard was checked just now and was valid.
    pub(crate) fn says_mine(&mut self, id: ProcessId, granted: usize, fresh: bool) {
        let read = self.processes[id].read;
        self.at(read, Event::Claim { granted, fresh });
    }
}
