//! What goes wrong: a plan of faults drawn from the seed, and how each begins and ends.

use dueline::model::Shard;

use crate::rng::Rng;
use crate::setup::Setup;
use crate::world::{Event, World};

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The instance is killed, and is back after so many milliseconds.
    Crash(usize, u64),
    Freeze(usize, u64),
    /// As soon as it lets a call go out: between the check of the lease and the send.
    FreezeAtCall(usize, u64),
    CutFromLog(usize, u64),
    CutFromStore(usize, u64),
    StoreAway(u64),
    LogAway(u64),
    /// The instance drains and ends in order.
    Stop(usize, u64),
    /// A shard moves to another member.
    Move(u32),
    /// A shard is given to a second member.
    Twice(u32),
}

/// Faults and when they begin.
pub(crate) fn plan(setup: &Setup, rng: &mut Rng) -> Vec<(u64, Fault)> {
    let one = |rng: &mut Rng| {
        let at = rng.range(6_000, setup.chaos_ms - 5_000);
        let (instance, shard) = (rng.index(setup.instances), rng.below(u64::from(setup.shards)) as u32);
        let (short, long) = (rng.range(500, 9_000), rng.range(5_000, 30_000));
        let fault = match rng.below(16) {
            0..=3 => Fault::Crash(instance, long),
            4..=5 => Fault::Freeze(instance, short),
            6 => Fault::FreezeAtCall(instance, long),
            7 => Fault::CutFromLog(instance, long),
            8 => Fault::CutFromStore(instance, long),
            9..=10 => Fault::StoreAway(short),
            11 => Fault::LogAway(if rng.chance(300) { long + 60_000 } else { long }),
            12 => Fault::Stop(instance, long),
            13..=14 => Fault::Move(shard),
            _ => Fault::Twice(shard),
        };
        (at, fault)
    };
    (0..setup.faults).map(|_| one(rng)).collect()
}

impl World {
    pub(crate) fn strike(&mut self, fault: Fault) {
        if self.healing {
            return;
        }
        self.mix(self.now);
        if self.setup.show.is_some() {
            eprintln!("{:>8} FAULT {fault:?}", self.now);
        }
        let ms = match fault {
            Fault::Crash(instance, ms) => {
                self.ledger.count("crash");
                self.crash(instance);
                ms
            }
            Fault::Freeze(instance, ms) => {
                self.ledger.count("freeze");
                self.instances[instance].frozen = true;
                ms
            }
            Fault::FreezeAtCall(instance, ms) => {
                self.instances[instance].freeze_at_call = Some(ms);
                return;
            }
            Fault::CutFromLog(instance, ms) => {
                self.instances[instance].cut_from_log = true;
                ms
            }
            Fault::CutFromStore(instance, ms) => {
                self.instances[instance].cut_from_store = true;
                ms
            }
            Fault::StoreAway(ms) => {
                self.store_away = true;
                ms
            }
            Fault::LogAway(ms) => {
                self.log.away = true;
                self.ledger.log_away.push((self.now, self.now + ms));
                if self.rng.chance(500) {
                    (0..self.instances.len()).for_each(|instance| self.lose_all(instance));
                }
                ms
            }
            Fault::Stop(instance, ms) => {
                if self.instances[instance].frozen {
                    return;
                }
                self.ledger.count("graceful stop");
                self.instances[instance].draining = true;
                self.leave(instance);
                ms
            }
            Fault::Move(shard) => return self.disturb(Shard(shard), false),
            Fault::Twice(shard) => return self.disturb(Shard(shard), true),
        };
        self.after(ms, Event::Heal(fault));
    }

    pub(crate) fn heal(&mut self, fault: Fault) {
        match fault {
            Fault::Crash(instance, _) => {
                let life = self.instances[instance].life;
                if !self.instances[instance].up {
                    self.after(1, Event::Join(instance, life));
                }
            }
            Fault::Freeze(instance, _) | Fault::FreezeAtCall(instance, _) => {
                self.instances[instance].frozen = false;
                self.release_held(instance);
            }
            Fault::CutFromLog(instance, _) => {
                self.instances[instance].cut_from_log = false;
                self.resume_fetches(instance);
            }
            Fault::CutFromStore(instance, _) => self.instances[instance].cut_from_store = false,
            Fault::StoreAway(_) => self.store_away = false,
            Fault::LogAway(_) => {
                self.log.away = false;
                self.refresh_sessions();
                self.settle_group();
            }
            Fault::Stop(instance, _) => {
                if self.instances[instance].draining {
                    self.crash(instance);
                    let life = self.instances[instance].life;
                    self.after(1, Event::Join(instance, life));
                }
            }
            Fault::Move(_) | Fault::Twice(_) => {}
        }
    }

    /// Fetches that waited at a broker out of reach are sent again by the client.
    fn resume_fetches(&mut self, _instance: usize) {
        (0..self.setup.shards).for_each(|shard| self.wake_fetches(Shard(shard)));
    }

    /// Ends every fault; from now on everything answers.
    pub(crate) fn heal_all(&mut self) {
        self.healing = true;
        self.store_away = false;
        self.log.away = false;
        self.refresh_sessions();
        for instance in 0..self.instances.len() {
            let at = &mut self.instances[instance];
            (at.cut_from_log, at.cut_from_store) = (false, false);
            if at.frozen {
                at.frozen = false;
                self.release_held(instance);
            }
            if self.instances[instance].draining {
                self.crash(instance);
            }
            let life = self.instances[instance].life;
            self.after(10, Event::Join(instance, life));
        }
        self.resume_fetches(0);
    }
}
