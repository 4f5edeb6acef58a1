//! What goes wrong: a plan of faults drawn from the seed, and how each begins and ends.

use dueline::model::Shard;
use dueline::planted;

use crate::setup::Setup;
use crate::store::cell::{ALL, Mask, REPLICAS, bits, replicas_of};
use crate::store::nodes::DCS;
use crate::trap::{Blow, MOMENTS, Moment};
use crate::world::{Addr, Event, World};
use dueline::testing::rng::Rng;

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The instance is killed, and is back after so many milliseconds.
    Crash(usize, u64),
    Freeze(usize, u64),
    /// The machine is stopped by its host, and its boot clock with it.
    Suspend(usize, u64),
    /// As soon as the instance sends a request of this kind.
    At(usize, Moment, Blow),
    /// The instance is frozen for a while, and meanwhile one of its shards goes to and fro between the others.
    Contest(usize, u64),
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
    /// Nodes of the store are down.
    NodesDown(Mask, u64),
    /// Nothing gets from one data centre to another.
    OneWay(usize, usize, u64),
    /// Two data centres do not hear each other.
    Apart(usize, usize, u64),
    /// A replica loses its disk, and serves again when it is repaired.
    Wipe(usize, u64),
    /// The store takes no writes: a guard rail, or a table that is missing.
    GuardRail(u64),
    /// Pages of a shard's tasks are not answered to this instance.
    NoPages(usize, Shard, u64),
    /// The store takes no row that says that a task was cancelled, replaced or moved.
    RefuseAnswers(u64),
    /// What comes into a shard's log is shown to this instance only.
    Hide(usize, Shard, u64),
    /// Another broker leads a shard's log, and this instance goes on asking the one before.
    FormerLeader(usize, Shard, u64),
    /// The instance is frozen, and another is given its shard at once.
    Usurp(Addr, u64),
    /// The log's leader has a clock that is behind.
    LogClock(i64, u64),
    /// An instance's system clock is set.
    WallStep(usize, i64),
    /// Members come and go.
    Storm(u64),
}

impl Fault {
    /// Its name in a history.
    fn word(self) -> &'static str {
        match self {
            Fault::Crash(..) => "crash",
            Fault::Freeze(..) | Fault::Contest(..) => "freeze",
            Fault::At(..) => "at a moment",
            Fault::Suspend(..) => "suspend",
            Fault::CutFromLog(..) => "cut from the log",
            Fault::CutFromStore(..) => "cut from the store",
            Fault::StoreAway(_) => "store away",
            Fault::LogAway(_) => "log away",
            Fault::Stop(..) => "stop",
            Fault::Move(_) | Fault::Twice(_) | Fault::Storm(_) => "rebalance",
            Fault::NodesDown(..) => "nodes down",
            Fault::OneWay(..) | Fault::Apart(..) => "data centres apart",
            Fault::Wipe(..) => "replica wiped",
            Fault::GuardRail(_) => "guard rail",
            Fault::NoPages(..) => "pages not read",
            Fault::RefuseAnswers(_) => "answers refused",
            Fault::Hide(..) => "records not shown",
            Fault::FormerLeader(..) => "former leader",
            Fault::Usurp(..) => "freeze",
            Fault::LogClock(..) => "log clock behind",
            Fault::WallStep(..) => "clock step",
        }
    }
}

/// A stream of chance of its own, for what needs several things in a row: most runs are better off without.
const RARE: u64 = 1;

/// Faults and when they begin.
pub(crate) fn plan(setup: &Setup, rng: &mut Rng) -> Vec<(u64, Fault)> {
    let one = |rng: &mut Rng| {
        let at = rng.range(6_000, setup.chaos_ms - 5_000);
        let (instance, shard) = (rng.index(setup.instances), rng.below(u64::from(setup.shards)) as u32);
        let (short, long) = (rng.range(500, 9_000), rng.range(5_000, 30_000));
        let fault = match rng.below(44) {
            0..=3 => Fault::Crash(instance, long),
            4 => Fault::Freeze(instance, if rng.chance(500) { short } else { long }),
            5 => Fault::Suspend(instance, long),
            6 => Fault::At(instance, Moment::Call, Blow::Freeze(long)),
            7 => Fault::CutFromLog(instance, long),
            8 => Fault::CutFromStore(instance, long),
            9..=10 => Fault::StoreAway(short),
            11 => Fault::LogAway(if rng.chance(300) { long + 60_000 } else { long }),
            12 => Fault::Stop(instance, long),
            13..=14 => Fault::Move(shard),
            15 => Fault::Twice(shard),
            16..=17 => Fault::NodesDown(1 << rng.index(REPLICAS), long),
            18 => Fault::NodesDown(replicas_of(rng.index(DCS)), long),
            19 => Fault::OneWay(rng.index(DCS), rng.index(DCS), short),
            20 => Fault::Apart(rng.index(DCS), rng.index(DCS), long),
            21 => Fault::Wipe(rng.index(REPLICAS), long),
            22 => Fault::GuardRail(short),
            23 => Fault::LogClock(-(rng.range(500, 20_000) as i64), long),
            24 => Fault::WallStep(instance, 3_600_000 * if rng.chance(500) { 1 } else { -1 }),
            25 => Fault::WallStep(instance, -(rng.range(2_000, 20_000) as i64)),
            26 => Fault::Storm(short),
            27..=28 => Fault::Contest(instance, rng.range(1_500, 4_900)),
            35 => Fault::At(instance, Moment::LateCall, Blow::Succession(rng.range(13_500, 24_000))),
            36 if rng.chance(500) => Fault::At(instance, Moment::OverdueCall, Blow::Carry),
            36 => Fault::At(instance, Moment::LateCall, Blow::Overtake),
            37 => Fault::At(instance, Moment::Call, Blow::Edit),
            38 => Fault::At(instance, Moment::LongStart, Blow::Usurp(rng.range(6_200, 9_000))),
            39 if rng.chance(500) => {
                Fault::At(instance, Moment::Mark, Blow::Outage(rng.range(70_000, 95_000)))
            }
            39 => Fault::At(instance, Moment::End, Blow::Delay(rng.range(300, 2_500))),
            40 => Fault::At(instance, Moment::Ahead, Blow::Starve(rng.range(4_000, 15_000))),
            41 => Fault::At(instance, Moment::Call, Blow::Overfill),
            42 => Fault::At(instance, Moment::Mark, Blow::Refuse(short)),
            43 => Fault::At(instance, Moment::Mark, Blow::Sleep(rng.range(75_000, 95_000))),
            _ => {
                let blow = match rng.below(7) {
                    0 => Blow::Freeze(long),
                    1 => Blow::Cut(rng.range(50, 9_000)),
                    2..=3 => Blow::Revoke(rng.range(0, 3_000)),
                    4 => Blow::LogAway(if rng.chance(500) { long + 60_000 } else { long }),
                    _ => Blow::Crash(long),
                };
                Fault::At(instance, MOMENTS[rng.index(MOMENTS.len())], blow)
            }
        };
        (at, fault)
    };
    let mut own = Rng::of_stream(rng.clone().draw(), RARE);
    let mut plan: Vec<_> = (0..setup.faults).map(|_| one(rng)).collect();
    let blows: [fn(&mut Rng) -> Blow; 2] =
        [|rng| Blow::Unread(rng.range(9_000, 14_000)), |rng| Blow::LateEnd(rng.range(0, 1_500))];
    for blow in blows {
        if own.chance(300) {
            let at = own.range(6_000, setup.chaos_ms - 60_000);
            let blow = blow(&mut own);
            plan.push((at, Fault::At(own.index(setup.instances), Moment::LongCall, blow)));
        }
    }
    if own.chance(300) {
        let at = own.range(6_000, setup.chaos_ms - 30_000);
        let shard = Shard(own.below(u64::from(setup.shards)) as u32);
        plan.push((at, Fault::FormerLeader(own.index(setup.instances), shard, own.range(10_000, 25_000))));
    }
    plan
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
            Fault::Suspend(instance, ms) => {
                self.ledger.count("boot clock stood still");
                self.instances[instance].frozen = true;
                self.instances[instance].suspended_at = Some(self.now);
                ms
            }
            Fault::At(instance, moment, blow) => {
                self.instances[instance].trap = Some((moment, blow));
                return;
            }
            Fault::Contest(instance, ms) => {
                self.contest(instance, ms);
                ms
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
            Fault::NodesDown(..)
            | Fault::OneWay(..)
            | Fault::Apart(..)
            | Fault::Wipe(..)
            | Fault::GuardRail(_) => match self.strike_store(fault) {
                Some(ms) => ms,
                None => return,
            },
            Fault::NoPages(instance, shard, ms) => {
                self.ledger.count("pages of one shard not read");
                self.no_pages = Some((instance, shard));
                ms
            }
            Fault::RefuseAnswers(ms) => {
                self.refuses_answers = true;
                ms
            }
            Fault::Hide(instance, shard, ms) => {
                self.ledger.count("records not shown to who takes over");
                self.log.hidden = Some((instance, shard, self.log.end(shard).next));
                ms
            }
            Fault::FormerLeader(instance, shard, ms) => {
                self.log.elect(instance, shard);
                // Read by others meanwhile, and then by who is not told.
                for at in [ms / 3, 2 * ms / 3] {
                    self.after(at, Event::Fault(Fault::Move(shard.0)));
                }
                ms
            }
            Fault::Usurp(at, ms) => return self.usurp(at, ms),
            Fault::LogClock(behind, ms) => {
                self.ledger.count("append time stepped back");
                self.log.clock_ms = behind;
                // What is given a place in the past now has its owner killed while it runs.
                let instance = self.rng.index(self.instances.len());
                let crash = Blow::Crash(self.rng.range(2_000, 20_000));
                self.instances[instance].trap = Some((Moment::Start, crash));
                ms
            }
            Fault::WallStep(instance, step) => {
                self.ledger.count("system clock set");
                self.instances[instance].step += step;
                // Who measures by the wall clock has nothing to see its jumps by.
                self.instances[instance].jumps += u64::from(!planted!(WallClockInLease));
                return;
            }
            Fault::Storm(ms) => {
                self.ledger.count("rebalance storm");
                for step in 0..6 {
                    let shard = self.rng.below(u64::from(self.setup.shards)) as u32;
                    self.after(1 + step * ms / 6, Event::Fault(Fault::Move(shard)));
                }
                ms
            }
        };
        self.ledger.faults.push((fault.word(), self.now, self.now + ms));
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
            Fault::Freeze(instance, _) | Fault::Contest(instance, _) | Fault::Suspend(instance, _) => {
                self.wake(instance)
            }
            Fault::CutFromLog(instance, _) => {
                self.instances[instance].cut_from_log = false;
                self.resume_fetches();
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
            Fault::NodesDown(nodes, _) => self.store.nodes.start(nodes),
            Fault::OneWay(..) | Fault::Apart(..) => self.store.nodes.join(),
            Fault::GuardRail(_) => self.guard_rail = false,
            Fault::NoPages(..) => self.no_pages = None,
            Fault::RefuseAnswers(_) => self.refuses_answers = false,
            Fault::LogClock(..) => self.log.clock_ms = 0,
            Fault::Hide(..) => {
                self.log.hidden = None;
                self.resume_fetches();
            }
            Fault::FormerLeader(..) => {
                self.log.former = None;
                self.resume_fetches();
            }
            Fault::At(..)
            | Fault::Usurp(..)
            | Fault::Wipe(..)
            | Fault::WallStep(..)
            | Fault::Storm(_)
            | Fault::Move(_)
            | Fault::Twice(_) => {}
        }
    }

    /// For how long, or `None` when it cannot be borne on top of what is wrong already.
    fn strike_store(&mut self, fault: Fault) -> Option<u64> {
        match fault {
            Fault::NodesDown(nodes, ms) => {
                if self.store.nodes.joining() != 0 {
                    return None;
                }
                self.ledger.count(if nodes.count_ones() > 1 { "data centre down" } else { "replica down" });
                self.store.nodes.stop(nodes);
                Some(ms)
            }
            Fault::OneWay(from, to, ms) => {
                self.ledger.count("one-way partition of the store");
                self.store.nodes.cut(from, to);
                Some(ms)
            }
            Fault::Apart(one, other, ms) => {
                self.ledger.count("data centres apart");
                self.store.nodes.cut(one, other);
                self.store.nodes.cut(other, one);
                Some(ms)
            }
            Fault::Wipe(replica, ms) => {
                if !self.store.nodes.may_lose(replica) {
                    return None;
                }
                self.ledger.count("replica wiped and repaired");
                self.store.wipe(replica);
                if planted!(ServeBeforeRepair) {
                    self.store.nodes.repaired(replica);
                } else {
                    self.after(ms, Event::Repair(replica));
                }
                Some(ms)
            }
            Fault::GuardRail(ms) => {
                self.ledger.count("guard rail hit");
                self.guard_rail = true;
                Some(ms)
            }
            _ => None,
        }
    }

    pub(crate) fn repair(&mut self, replica: usize) {
        if !self.store.nodes.is_up(replica) {
            return self.after(1_000, Event::Repair(replica));
        }
        for (shard, row) in self.store.repair(replica) {
            self.note_owner(shard, &row);
        }
        for row in std::mem::take(&mut self.store.repaired) {
            self.durable(&row);
        }
    }

    /// Fetches that waited at a broker out of reach are sent again by the client.
    fn resume_fetches(&mut self) {
        (0..self.setup.shards).for_each(|shard| self.wake_fetches(Shard(shard)));
    }

    /// Ends every fault; from now on everything answers.
    pub(crate) fn heal_all(&mut self) {
        self.healing = true;
        self.open_gates();
        self.store_away = false;
        self.guard_rail = false;
        (self.no_pages, self.refuses_answers) = (None, false);
        self.log.away = false;
        (self.log.clock_ms, self.log.hidden, self.log.former) = (0, None, None);
        self.store.nodes.join();
        self.store.nodes.start(ALL);
        for replica in bits(self.store.nodes.joining()) {
            self.after(100, Event::Repair(replica));
        }
        self.refresh_sessions();
        for instance in 0..self.instances.len() {
            let at = &mut self.instances[instance];
            (at.cut_from_log, at.cut_from_store) = (false, false);
            if at.frozen {
                self.wake(instance);
            }
            if self.instances[instance].draining {
                self.crash(instance);
            }
            let life = self.instances[instance].life;
            self.after(10, Event::Join(instance, life));
        }
        self.resume_fetches();
    }
}
