//! What a runtime does: performs the effects of an engine, and decides nothing.

use dueline::engine::{Effect, Engine, Observation};
use dueline::model::{Boot, CloseReason};

use crate::ledger::BASE;
use crate::operation::{LogOp, StoreOp};
use crate::store::owners::Change;
use crate::trap::UNTIL_IT_WAKES;
use crate::world::{Addr, Event, Reading, World};

/// How long a commit takes to the coordinator.
const COMMIT_MS: u64 = 4;

impl World {
    /// Does what an engine decided at `decided_at`, now or when it was not yet frozen.
    pub(crate) fn perform(&mut self, from: Addr, effect: Effect, engine: &Engine, decided_at: u64) {
        let word = crate::words::of_effect(&effect);
        self.mix_word(word);
        if self.setup.shows(from.shard) && !matches!(effect, Effect::ReadOwner | Effect::LookAtOwner) {
            let text: String = format!("{effect:?}").chars().take(6000).collect();
            eprintln!("{:>8} i{}.{} s{} -> {text}", self.now, from.instance, from.life, from.shard.0);
        }
        self.held_up = self.spring(from, &effect);
        match effect {
            Effect::ReadOwner => self.ask_store(from, StoreOp::ReadOwner),
            Effect::LookAtOwner => self.ask_store(from, StoreOp::LookAtOwner),
            Effect::Bump { expected, owner, wait_ms } => {
                let lease_ms = self.setup.timing.lease_ms;
                if (1..lease_ms).contains(&wait_ms) {
                    self.ledger.count("rest of another's wait waited for");
                }
                let change = Change::Bump { expected, owner, lease_ms, wait_ms };
                self.ask_store(from, StoreOp::Change(change));
            }
            Effect::Release(release) => {
                self.ask_store(from, StoreOp::Change(Change::Release(release)));
            }
            Effect::ReadProgress(ticket) => {
                let epoch = engine.shard_view(Boot(0)).epoch.0;
                let took_over = self.ledger.took_over.entry(from.shard).or_insert(epoch);
                *took_over = epoch.max(*took_over);
                self.ask_store(from, StoreOp::ReadProgress(ticket));
            }
            Effect::WriteProgress { ticket, progress, stamp, ids } if ids.is_empty() => {
                self.ask_store(from, StoreOp::WriteProgress(ticket, Box::new(progress), stamp));
            }
            Effect::WriteProgress { ticket, progress, stamp, ids } => {
                self.ask_store(from, StoreOp::WriteIds(ids, ticket, Box::new(progress), stamp));
            }
            Effect::ReadIds(ticket, first, _) => self.ask_store(from, StoreOp::ReadIds(ticket, first)),
            Effect::ReadLogEnd(ticket) => self.ask_log(from, LogOp::End(ticket)),
            Effect::Seek(ticket, offset) => {
                self.stop_fetch(from);
                let reading = Reading { seek: ticket, fetch: None, position: None };
                self.instances[from.instance].readings.insert(from.shard, reading);
                self.ask_log(from, LogOp::Seek(ticket, offset));
            }
            Effect::Fetch { ticket, .. } => {
                if let Some(reading) = self.instances[from.instance].readings.get_mut(&from.shard) {
                    reading.fetch = Some(ticket);
                }
                self.ask_log(from, LogOp::Fetch(ticket));
            }
            Effect::StopFetch => self.stop_fetch(from),
            Effect::Commit(offset) => {
                let generation = self.group.generation_of(from.instance);
                // One connection: commits keep their order.
                self.after(COMMIT_MS, Event::Log(from, LogOp::Commit(offset, generation)));
            }
            Effect::LookUp(ticket, lookups) => self.ask_store(from, StoreOp::LookUp(ticket, lookups)),
            Effect::Slice(ticket, first, to) => {
                let view = engine.shard_view(Boot(0));
                self.ledger.loads.entry((from.shard, view.epoch.0)).or_insert(self.now);
                if view.phase == "running" && first.ready_at.0 <= BASE + self.now as i64 {
                    self.ledger.count("eviction and reload");
                }
                self.ask_store(from, StoreOp::Slice(ticket, first, to));
            }
            Effect::ReadFacts(ticket, place) => self.ask_store(from, StoreOp::Facts(ticket, place)),
            Effect::ReadPayload(ticket, place) => self.ask_store(from, StoreOp::Payload(ticket, place)),
            Effect::ReadLateQueues(ticket, segment) => {
                self.ask_store(from, StoreOp::LateQueues(ticket, segment));
            }
            Effect::ReadPointers(ticket, range) => self.ask_store(from, StoreOp::Pointers(ticket, range)),
            Effect::Write(ticket, rows) => self.ask_store(from, StoreOp::Write(ticket, rows)),
            Effect::Publish(ticket, events) => self.ask_log(from, LogOp::Publish(ticket, events)),
            Effect::Reject(offset, _) => self.ask_log(from, LogOp::Reject(offset)),
            Effect::Forward(offset, home) => self.ask_log(from, LogOp::Forward(offset, home)),
            Effect::WantSlots(lane, count, since) => self.want_slots(from, &lane, count, since),
            Effect::FreeSlots(lane, count) => self.free_slots(from, &lane, count),
            Effect::WithdrawSlots(lane, unused) => self.withdraw_slots(from, &lane, unused),
            Effect::Call(order) => {
                self.judge_call(from, &order);
                self.judge_policy(from, &order);
                self.judge_rates(&order);
                self.judge_slots(from, &order);
                let ms = self.way();
                self.handlers.sent(from, order.token.sequence);
                self.after(ms, Event::Call(from, order, decided_at));
            }
            Effect::BreakOff(seq, outcome) => {
                self.slot_is_free(from, seq);
                self.break_off(from, seq, outcome);
            }
            Effect::AskGates => {
                let ms = self.way();
                self.after(ms, Event::LookOnce(from.instance));
            }
            Effect::StopQueue { seq, key, .. } => {
                let ms = self.way();
                self.after(ms, Event::StopQueue(from, seq, key));
            }
            Effect::Rejoin(cause) => self.rejoin(from.instance, cause),
            Effect::Observe(observation) => self.observed(from, &observation),
        }
    }

    fn ask_store(&mut self, from: Addr, op: StoreOp) {
        let held_up = std::mem::take(&mut self.held_up);
        if held_up == UNTIL_IT_WAKES {
            return self.hold(from.instance, Event::Store(from, op));
        }
        let ms = self.way() + held_up;
        self.after(ms, Event::Store(from, op));
    }

    fn ask_log(&mut self, from: Addr, op: LogOp) {
        let ms = self.way();
        self.after(ms, Event::Log(from, op));
    }

    fn stop_fetch(&mut self, from: Addr) {
        self.instances[from.instance].readings.remove(&from.shard);
        self.log.waiting[from.shard.0 as usize].retain(|(instance, ..)| *instance != from.instance);
    }

    fn observed(&mut self, from: Addr, observation: &Observation) {
        let shard = from.shard;
        match observation {
            Observation::Stopped(why) => {
                self.ledger.wrongs.push(format!("shard {} stopped: {why}", shard.0));
            }
            Observation::EventRefused { .. } => self.ledger.count("task event refused"),
            Observation::LeaseLost("fenced") => self.ledger.count("fenced owner"),
            Observation::LeaseLost(_) => self.ledger.count("lapse"),
            Observation::RepeatStart(_) => self.ledger.count("takeover with open attempt"),
            Observation::Decided(decision) => self.ledger.count(decision.word()),
            Observation::Closed { reason, key, handler } => {
                self.ledger.count(reason.word());
                if *reason == CloseReason::Dropped {
                    self.judge_drop(from, &key.queue, handler);
                }
            }
            Observation::AttemptEnded { outcome, .. } => self.ledger.count(outcome.word()),
            Observation::Rejected(reason) => self.ledger.count(reason.word()),
            Observation::BegunAnew { .. } => self.ledger.count("begun anew"),
            Observation::IdsNotKept(_) => self.ledger.count("more ids than are kept"),
            Observation::Phase(..)
            | Observation::Forwarded
            | Observation::Gap(_)
            | Observation::TakenOver(_)
            | Observation::Trouble { .. } => {}
        }
    }
}
