//! Blows that fall at a very moment: when an instance has just sent a request of some kind. Some are the first of several
//! things that go wrong one after the other, each of which is common and which do harm only in this order.

use dueline::engine::{CallOrder, Effect};
use dueline::model::{Decision, Fact, FactRow, Place, QueueName, Row, Shard, Started, Wall, home_shard};

use crate::ledger::BASE;
use crate::nemesis::Fault;
use crate::workload::Sending;
use crate::world::{Addr, Event, World};

/// A request at which a blow falls: when it has just left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// A call, between the check of the lease and the send.
    Call,
    Start,
    End,
    Read,
    Bump,
    Progress,
    /// A pointer of a late queue, or a row of their list.
    Pointer,
    /// A start of an attempt that has longer than a lease and the wait for it.
    LongStart,
    /// A call of a task that was due before it came: others of its queue may have waited for long.
    OverdueCall,
    /// A call of a task that only its pointer tells of: the watermark passed it.
    LateCall,
    /// A start of such a task.
    LateStart,
    /// The mark on a task that was cancelled, replaced or moved.
    Mark,
    /// The answer that it is too late.
    TooLate,
    /// A page of tasks of which none is ready for a while.
    Ahead,
    /// A call of a task that has longer than a takeover needs.
    LongCall,
    /// The end of this attempt.
    EndOf(u64),
    /// A progress row that says that the shard's log is read to its end.
    AllRead,
}

/// What falls then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blow {
    Freeze(u64),
    Crash(u64),
    /// The store does not reach it for so long.
    Cut(u64),
    /// The group takes the shard, and the request is held up for so long.
    Revoke(u64),
    /// The brokers are gone for so long.
    LogAway(u64),
    /// The request is held up for so long, and its instance is killed meanwhile.
    Delay(u64),
    /// It is killed, and while another takes over the brokers are gone, for so long.
    Outage(u64),
    /// It is frozen for so long, and another is given its shard at once.
    Usurp(u64),
    /// It is frozen for so long, and who takes its shard over is killed at the first start of a task that only its pointer
    /// tells of.
    Succession(u64),
    /// The call takes long, and the shard moves meanwhile.
    Carry,
    /// The call takes long, tasks come that stand before it in its queue, and the shard moves.
    Overtake,
    /// The call takes long, its task is to be moved, and who answers that it is too late is killed.
    Edit,
    /// Pages of its shard are not answered until tasks of the next are ready, and for so long after that. A call that begins
    /// shortly before they are is cut in on.
    Starve(u64),
    /// The call takes long. At once tasks come that stand behind its own in its queue, and at this time some that stand before
    /// those.
    CutIn(u64),
    /// The call takes long, the log's clock is set back, tasks come that lie before its own, of its queue and of others, and
    /// the shard moves.
    Overfill,
    /// For so long the store takes no row that says that a task was cancelled, replaced or moved, and meanwhile the instance is killed.
    Refuse(u64),
    /// It is frozen for so long, the request leaves when it wakes, and while another takes over the brokers are gone.
    Sleep(u64),
    /// Its end is held up until so long before its deadline, and meanwhile its owner is frozen and another gets the shard: the
    /// end lands when that one has read it as open, and before it takes it for over.
    LateEnd(u64),
    /// The end is held up until this time, its owner frozen, and another is given the shard at once.
    Overtaken(u64),
    /// The call takes long, the log's clock is set back, and tasks come that lie before its own in time and behind it in the
    /// log. It is frozen for so long before it has written down that it read them; who takes over is not shown them
    /// for a while, and is killed when it has read them.
    Unread(u64),
}

/// Moments at which any of the first blows may fall.
pub(crate) const MOMENTS: [Moment; 7] =
    [Moment::Call, Moment::Start, Moment::End, Moment::Read, Moment::Bump, Moment::Progress, Moment::Pointer];

/// What falls on the next owner of a shard.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heir {
    shard: Shard,
    /// Not on this instance.
    but: usize,
    moment: Moment,
    blow: Blow,
}

/// An attempt that has so long is still worth a call when its owner was frozen until the next had read, in milliseconds.
const LONG_MS: i64 = 18_000;
/// Who is given a shard of an owner that is frozen has read it after so long, in milliseconds.
const TAKEOVER_MS: u64 = 8_000;
/// A task that has so long is at work until another has taken over and read, in milliseconds.
const LONG_CALL_MS: i64 = 16_000;
/// A request is held up until its instance, which is frozen, wakes.
pub(crate) const UNTIL_IT_WAKES: u64 = u64::MAX;
/// A page is ahead when it begins so long after now, in milliseconds.
const AHEAD_MS: i64 = 3_000;
/// A task that was due so long before it came is overdue, in milliseconds.
const OVERDUE_MS: i64 = 1_000;

fn starts(rows: &[Row]) -> impl Iterator<Item = (Place, &Started)> {
    rows.iter().filter_map(|row| match row {
        Row::Fact(FactRow { place, fact: Fact::Started(started), .. }) => Some((*place, started)),
        _ => None,
    })
}

fn ends(rows: &[Row]) -> impl Iterator<Item = u64> {
    rows.iter().filter_map(|row| match row {
        Row::Fact(FactRow { fact: Fact::Ended(ended), .. }) => Some(ended.seq),
        _ => None,
    })
}

impl Moment {
    /// As it is counted.
    fn word(self) -> &'static str {
        match self {
            Moment::Call => "blow at a call",
            Moment::Start => "blow at a start",
            Moment::End => "blow at an end",
            Moment::Read => "blow at a read of the owner",
            Moment::Bump => "blow at a bump",
            Moment::Progress => "blow at a progress row",
            Moment::Pointer => "blow at a pointer",
            Moment::LongStart => "blow at the start of a long attempt",
            Moment::OverdueCall => "blow at a call of a task that was overdue when it came",
            Moment::LateCall => "blow at a call of a task known by pointer",
            Moment::LateStart => "blow at a start of a task known by pointer",
            Moment::Mark => "blow at a mark",
            Moment::TooLate => "blow at an answer that it is too late",
            Moment::Ahead => "blow at a page of tasks that are not ready",
            Moment::LongCall => "blow at the call of a long attempt",
            Moment::EndOf(_) => "blow at the end of a long attempt",
            Moment::AllRead => "blow when the log is read to its end",
        }
    }

    fn is_a_row(self, row: &Row) -> bool {
        match (self, row) {
            (Moment::Pointer, Row::Pointer(_) | Row::LateQueue(_)) => true,
            (Moment::TooLate, Row::Event(row)) => row.decision == Decision::TooLate,
            (Moment::Start, Row::Fact(FactRow { fact: Fact::Started(_), .. }))
            | (Moment::End, Row::Fact(FactRow { fact: Fact::Ended(_), .. }))
            | (Moment::Mark, Row::Fact(FactRow { fact: Fact::Superseded { .. }, .. })) => true,
            _ => false,
        }
    }
}

impl World {
    /// Springs the trap that an effect has met; gives how long its request is held up.
    pub(crate) fn spring(&mut self, at: Addr, effect: &Effect) -> u64 {
        if self.healing {
            return 0;
        }
        let own = self.instances[at.instance].trap;
        if let Some((moment, blow)) = own.filter(|(moment, _)| self.is_met(*moment, at.shard, effect)) {
            self.instances[at.instance].trap = None;
            self.ledger.count(moment.word());
            return self.fall(at, blow, effect);
        }
        let heir = self.heir.filter(|heir| heir.shard == at.shard && heir.but != at.instance);
        if let Some(heir) = heir.filter(|heir| self.is_met(heir.moment, at.shard, effect)) {
            self.heir = None;
            self.ledger.count(heir.moment.word());
            return self.fall(at, heir.blow, effect);
        }
        0
    }

    fn is_met(&self, moment: Moment, shard: Shard, effect: &Effect) -> bool {
        match (moment, effect) {
            (Moment::Call, Effect::Call(_))
            | (Moment::Read, Effect::ReadOwner)
            | (Moment::Bump, Effect::Bump { .. })
            | (Moment::Progress, Effect::WriteProgress { .. }) => true,
            (Moment::Ahead, Effect::Slice(_, first, _)) => {
                first.ready_at.0 > BASE + self.now as i64 + AHEAD_MS
            }
            (Moment::LongCall, Effect::Call(order)) => {
                order.deadline.0 > BASE + self.now as i64 + LONG_CALL_MS
            }
            (Moment::AllRead, Effect::WriteProgress { progress, .. }) => {
                self.log.hidden.is_none() && progress.next_offset >= self.log.end(shard).next
            }
            (Moment::OverdueCall, Effect::Call(order)) => order.due_at.0 + OVERDUE_MS < order.ready_at.0,
            (Moment::LateCall, Effect::Call(order)) => self.is_late(shard, order.place),
            (Moment::LateStart, Effect::Write(_, rows)) => {
                starts(rows).any(|(place, _)| self.is_late(shard, place))
            }
            (Moment::LongStart, Effect::Write(_, rows)) => {
                starts(rows).any(|(_, started)| started.deadline.0 - started.at.0 >= LONG_MS)
            }
            (Moment::EndOf(wanted), Effect::Write(_, rows)) => ends(rows).any(|seq| seq == wanted),
            (_, Effect::Write(_, rows)) => rows.iter().any(|row| moment.is_a_row(row)),
            _ => false,
        }
    }

    /// Whether the watermark passed a place.
    fn is_late(&self, shard: Shard, place: Place) -> bool {
        self.store.durable_progress(shard).is_some_and(|progress| place.ready_at <= progress.watermark)
    }

    /// What follows from the same input is still sent: whatever falls on an instance falls after that.
    fn fall(&mut self, at: Addr, blow: Blow, effect: &Effect) -> u64 {
        let n = at.instance;
        match blow {
            Blow::Freeze(ms) => self.after(0, Event::Fault(Fault::Freeze(n, ms))),
            Blow::Crash(ms) => self.after(0, Event::Fault(Fault::Crash(n, ms))),
            Blow::Cut(ms) => self.after(0, Event::Fault(Fault::CutFromStore(n, ms))),
            Blow::LogAway(ms) => self.after(0, Event::Fault(Fault::LogAway(ms))),
            Blow::Revoke(ms) => {
                self.after(0, Event::Fault(Fault::Move(at.shard.0)));
                return ms;
            }
            Blow::Delay(ms) => {
                let killed = self.rng.range(ms / 2, ms);
                self.after(killed, Event::Fault(Fault::Crash(n, 10_000)));
                return ms;
            }
            Blow::Outage(ms) => {
                self.after(0, Event::Fault(Fault::Crash(n, 30_000)));
                self.take_brokers_from_the_next(ms);
            }
            Blow::Usurp(ms) => self.usurp(at, ms),
            Blow::Succession(ms) => {
                let (moment, blow) = (Moment::LateStart, Blow::Crash(self.rng.range(5_000, 30_000)));
                self.heir = Some(Heir { shard: at.shard, but: n, moment, blow });
                let soon = self.rng.range(6, 40);
                self.after(soon, Event::Fault(Fault::Freeze(n, ms)));
            }
            Blow::Carry | Blow::Overtake | Blow::Edit | Blow::CutIn(_) | Blow::Overfill | Blow::Unread(_) => {
                if let Effect::Call(order) = effect {
                    self.during(at, blow, order);
                }
            }
            Blow::LateEnd(before) => {
                if let Effect::Call(order) = effect {
                    let lands = (order.deadline.0 - BASE) as u64 - before;
                    let end = Moment::EndOf(order.token.sequence);
                    self.instances[n].trap = Some((end, Blow::Overtaken(lands)));
                }
            }
            Blow::Overtaken(lands) => {
                let ms = lands.saturating_sub(self.now);
                if ms > TAKEOVER_MS {
                    self.usurp(at, ms + 10_000);
                    return ms;
                }
            }
            Blow::Starve(ms) => {
                if let Effect::Slice(_, first, _) = effect {
                    self.starve(at, *first, ms);
                }
            }
            Blow::Refuse(ms) => {
                self.after(0, Event::Fault(Fault::RefuseAnswers(ms)));
                let killed = self.rng.range(20, ms);
                self.after(killed, Event::Fault(Fault::Crash(n, 10_000)));
            }
            Blow::Sleep(ms) => {
                self.after(0, Event::Fault(Fault::Freeze(n, ms)));
                self.take_brokers_from_the_next(ms);
                return UNTIL_IT_WAKES;
            }
        }
        0
    }

    fn starve(&mut self, at: Addr, first: Place, ms: u64) {
        let ready = (first.ready_at.0 - BASE - self.now as i64).max(0) as u64;
        self.after(0, Event::Fault(Fault::NoPages(at.instance, at.shard, ready + ms)));
        let cut_in = Blow::CutIn(self.now + ready + self.rng.range(200, 900));
        let before = self.rng.range(500, 2_000);
        self.after(ready - before, Event::Fault(Fault::At(at.instance, Moment::Call, cut_in)));
    }

    /// The brokers are gone when the next owner has the shard, and waits for the lease to end.
    fn take_brokers_from_the_next(&mut self, ms: u64) {
        let away = self.rng.range(8_000, 12_500);
        self.after(away, Event::Fault(Fault::LogAway(ms)));
    }

    fn cut_in(&mut self, order: &CallOrder, cut_in_at: u64) {
        let now = Wall(BASE + self.now as i64);
        let behind = self.workload.due_before(self.now, &order.key.queue, now.plus_ms(600));
        self.after(1, Event::Send(behind));
        let before = self.workload.due_before(self.now, &order.key.queue, order.due_at);
        self.after(cut_in_at.saturating_sub(self.now), Event::Send(before));
    }

    fn overfill(&mut self, at: Addr, order: &CallOrder) {
        let behind = -(self.rng.range(5_000, 20_000) as i64);
        self.after(0, Event::Fault(Fault::LogClock(behind, 3_000)));
        let is_home = |queue: &QueueName| home_shard(queue, self.setup.shards) == at.shard;
        let queues: Vec<QueueName> = self.workload.queues().filter(is_home).collect();
        for queue in queues {
            let mut records = self.workload.due_before(self.now, &queue, order.due_at);
            records.truncate(if queue == order.key.queue { 30 } else { 2 });
            self.after(5, Event::Send(records));
        }
        self.move_within(at, 300, 1_200);
    }

    fn unread(&mut self, at: Addr, order: &CallOrder, ms: u64) {
        let now = Wall(BASE + self.now as i64);
        let earlier = now.0 - order.ready_at.0 + self.rng.range(100, 5_000) as i64;
        let mut before = self.workload.due_before(self.now, &order.key.queue, now.plus_ms(600));
        let mut unread = self.workload.due_before(self.now, &order.key.queue, order.due_at);
        before.truncate(1);
        unread.truncate(3);
        self.after(0, Event::Send(before));
        self.after(0, Event::Fault(Fault::LogClock(-earlier, 2_000)));
        let hidden = self.rng.range(8_000, 12_000);
        self.after(0, Event::Fault(Fault::Hide(at.instance, at.shard, hidden)));
        self.after(1, Event::Send(unread));
        let written = self.rng.range(20, 200);
        self.after(written, Event::Fault(Fault::Usurp(at, ms)));
        let crash = Blow::Crash(self.rng.range(5_000, 20_000));
        self.heir = Some(Heir { shard: at.shard, but: at.instance, moment: Moment::AllRead, blow: crash });
    }

    fn move_within(&mut self, at: Addr, from: u64, to: u64) {
        let moved = self.rng.range(from, to);
        self.after(moved, Event::Fault(Fault::Move(at.shard.0)));
    }

    pub(crate) fn usurp(&mut self, at: Addr, ms: u64) {
        let others = self.others_than(at.instance);
        if others.is_empty() {
            return;
        }
        self.ledger.count("shard given away while its owner was frozen");
        self.after(0, Event::Fault(Fault::Freeze(at.instance, ms)));
        let instance = others[self.rng.index(others.len())];
        let to = Addr { instance, life: self.instances[instance].life, shard: at.shard };
        self.after(1, Event::Assign(to));
    }

    /// What happens while a call is at work, which takes long.
    fn during(&mut self, at: Addr, blow: Blow, order: &CallOrder) {
        self.handlers.slow_down(at, order.token.sequence);
        match blow {
            Blow::Carry => self.move_within(at, 300, 3_000),
            Blow::Overtake => {
                self.move_within(at, 3_000, 6_500);
                let records = self.workload.due_before(self.now, &order.key.queue, order.due_at);
                self.send_soon(records);
            }
            Blow::Edit => {
                self.instances[at.instance].trap = Some((Moment::TooLate, Blow::Crash(20_000)));
                let record = self.workload.reschedule(self.now, &order.key);
                self.send_soon(vec![record]);
            }
            Blow::CutIn(cut_in_at) => self.cut_in(order, cut_in_at),
            Blow::Overfill => self.overfill(at, order),
            Blow::Unread(ms) => self.unread(at, order, ms),
            _ => {}
        }
    }

    fn send_soon(&mut self, records: Vec<Sending>) {
        let soon = self.rng.range(10, 300);
        self.after(soon, Event::Send(records));
    }

    fn others_than(&self, instance: usize) -> Vec<usize> {
        let serves = |other: &usize| self.instances[*other].up && !self.instances[*other].frozen;
        (0..self.instances.len()).filter(|other| *other != instance).filter(serves).collect()
    }

    /// Two others get a shard of an instance that is frozen: both at once, or one after the other while the first waits.
    pub(crate) fn contest(&mut self, instance: usize, ms: u64) {
        let Some(shard) = self.instances[instance].believes.first().copied() else { return };
        let others = self.others_than(instance);
        if self.instances[instance].frozen || others.is_empty() {
            return;
        }
        self.ledger.count("shard contested while its owner was frozen");
        self.instances[instance].frozen = true;
        let (first, second) = (others[self.rng.index(others.len())], others[self.rng.index(others.len())]);
        let to = |world: &World, n: usize| Addr { instance: n, life: world.instances[n].life, shard };
        let (first, second) = (to(self, first), to(self, second));
        self.after(1, Event::Assign(first));
        if self.rng.chance(500) {
            let cut = Blow::Cut(self.rng.range(50, 900));
            self.instances[first.instance].trap = Some((Moment::Bump, cut));
            self.after(1, Event::Assign(second));
        } else {
            self.after(ms / 4, Event::Revoke(first));
            self.after(ms / 4 + 100, Event::Assign(second));
        }
    }
}
