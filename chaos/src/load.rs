//! The load of a run: tasks due now, in the past, soon, later within the run and long after it, some at the same instant as others,
//! cancels and reschedules, over thousands of queues. What is asked follows from the seed; when exactly, from the machine.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::clock::wall_ms;
use crate::event::Event;
use crate::producer::Producer;
use dueline::testing::rng::Rng;

/// Queues that half of the tasks are of: each has several waiting at a time, so that order means something there.
const BUSY_QUEUES: usize = 100;
/// Queues that the other half is of: most have a task now and then.
const QUIET_QUEUES: usize = 4_000;
/// Tasks out of a hundred that are due at the same millisecond as the one before them, in its queue or another.
const TIES: i64 = 10;
/// Tasks that may still be cancelled or moved; older ones are forgotten.
const PENDING_MAX: usize = 2_000;
/// The latest due time within the run, so long after its event, in milliseconds: at least so much, and so much more than it
/// takes until an event counts as known, or no cancel would be judged.
const LATER_MS: i64 = 45_000;
const LATER_THAN_KNOWN_MS: i64 = 30_000;
/// Tasks out of a hundred that are due so long after their events, in milliseconds: beyond what an owner looks ahead (two minutes), so
/// that none has them in memory. So much later each is moved into the run, the last of them at its end.
const FAR: i64 = 4;
const FAR_MS: (i64, i64) = (1_800_000, 3_600_000);
const MOVED_AFTER_MS: i64 = 40_000;
/// Longer than an attempt may take, in milliseconds.
const HANG_MS: u64 = 12_000;
/// The stream of a seed that decides about the load.
const LOAD: u64 = 2;

/// A load that goes on until it is stopped.
#[derive(Debug)]
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    paused: Arc<AtomicBool>,
    sending: tokio::task::JoinHandle<Result<()>>,
}

impl Load {
    /// Sends `rate` events a second.
    /// After `known_ms` an event counts as known, wherever it is.
    pub(crate) fn start(producer: Producer, seed: u64, rate: u32, known_ms: i64) -> Load {
        let (stop, paused): (Arc<AtomicBool>, Arc<AtomicBool>) = Default::default();
        let (stopped, pauses) = (stop.clone(), paused.clone());
        let sending = tokio::spawn(async move {
            let mut tasks = Tasks::new(seed, known_ms);
            let mut pace = tokio::time::interval(Duration::from_secs(1) / rate.max(1));
            pace.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            while !stopped.load(Ordering::Relaxed) {
                pace.tick().await;
                if pauses.load(Ordering::Relaxed) {
                    continue;
                }
                producer.send(&tasks.next(wall_ms())).await?;
            }
            // One that is paused until its end is one whose log may be gone.
            while !pauses.load(Ordering::Relaxed)
                && let Some(event) = tasks.bring_in(wall_ms(), 0)
            {
                pace.tick().await;
                producer.send(&event).await?;
            }
            Ok(())
        });
        Load { stop, paused, sending }
    }

    /// Sends nothing for a while, or goes on.
    pub(crate) fn pause(&self, paused: bool) {
        self.paused.store(paused, Ordering::Relaxed);
    }

    /// Stops it, when no task is due after the run any more; everything sent is in the ledger.
    pub(crate) async fn stop(mut self) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        (&mut self.sending).await.context("the load ended with a panic")?
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.sending.abort();
    }
}

/// A task that is not due yet.
#[derive(Clone, Debug)]
struct Pending {
    queue: String,
    id: String,
    due: i64,
    moved: bool,
}

/// Events, one after the other.
#[derive(Debug)]
pub(crate) struct Tasks {
    dice: Rng,
    number: u64,
    pending: Vec<Pending>,
    /// Tasks that are due long after the run, and when they were asked for; the oldest first.
    far: VecDeque<(i64, Pending)>,
    /// The last task that is due at a time that was named: its queue and that time.
    before: Option<(String, i64)>,
    /// The latest due time, so long after its event.
    later_ms: i64,
}

impl Tasks {
    pub(crate) fn new(seed: u64, known_ms: i64) -> Tasks {
        let later_ms = LATER_MS.max(known_ms + LATER_THAN_KNOWN_MS);
        let (pending, far) = (Vec::new(), VecDeque::new());
        Tasks { dice: Rng::of_stream(seed, LOAD), number: 0, pending, far, before: None, later_ms }
    }

    /// The next event, for this moment.
    pub(crate) fn next(&mut self, now: i64) -> Event {
        let change = match self.dice.range_ms(0, 100) {
            0..10 => self.cancel(),
            10..20 => self.reschedule(now),
            20..25 => self.bring_in(now, MOVED_AFTER_MS),
            _ => None,
        };
        change.unwrap_or_else(|| self.schedule(now))
    }

    fn schedule(&mut self, now: i64) -> Event {
        self.number += 1;
        let id = format!("t-{}", self.number);
        if self.dice.range_ms(0, 100) < FAR {
            let (queue, due) = (self.queue(), now + self.dice.range_ms(FAR_MS.0, FAR_MS.1));
            self.far.push_back((now, Pending { queue: queue.clone(), id: id.clone(), due, moved: false }));
            return Event::schedule(&queue, &id, Some(due), self.payload());
        }
        let (queue, due) = self.place(now);
        self.before = due.map(|due| (queue.clone(), due));
        if let Some(due) = due.filter(|due| *due > now) {
            self.remember(Pending { queue: queue.clone(), id: id.clone(), due, moved: false });
        }
        Event::schedule(&queue, &id, due, self.payload())
    }

    /// The queue of the next task, and when it is due.
    fn place(&mut self, now: i64) -> (String, Option<i64>) {
        let (queue, due) = (self.queue(), self.due(now));
        match self.before.take().filter(|_| self.dice.range_ms(0, 100) < TIES) {
            Some((same, tied)) if self.dice.index(2) == 0 => (same, Some(tied)),
            Some((_, tied)) => (queue, Some(tied)),
            None => (queue, due),
        }
    }

    fn queue(&mut self) -> String {
        match self.dice.index(2) {
            0 => format!("busy-{}", self.dice.index(BUSY_QUEUES)),
            _ => format!("q-{}", self.dice.index(QUIET_QUEUES)),
        }
    }

    fn due(&mut self, now: i64) -> Option<i64> {
        match self.dice.range_ms(0, 100) {
            0..10 => None,
            10..22 => Some(now - self.dice.range_ms(0, 60_000)),
            22..65 => Some(now + self.dice.range_ms(0, 5_000)),
            _ => Some(now + self.dice.range_ms(8_000, self.later_ms)),
        }
    }

    fn payload(&mut self) -> String {
        let n = self.number;
        match self.dice.range_ms(0, 1_000) {
            0..60 => format!(r#"{{"n":{n},"fail":{}}}"#, self.dice.range_ms(1, 3)),
            60..110 => format!(r#"{{"n":{n},"take_ms":{}}}"#, self.dice.range_ms(300, 3_000)),
            110..112 => format!(r#"{{"n":{n},"hang_ms":{HANG_MS}}}"#),
            _ => format!(r#"{{"n":{n},"take_ms":{}}}"#, self.dice.range_ms(0, 40)),
        }
    }

    /// The oldest task that is due long after the run is moved into it, so long after it was asked for at least. It may be cancelled then.
    fn bring_in(&mut self, now: i64, after_ms: i64) -> Option<Event> {
        let (_, mut task) = self.far.pop_front_if(|(asked, _)| *asked + after_ms <= now)?;
        (task.due, task.moved) = (now + self.dice.range_ms(1_000, self.later_ms), true);
        self.remember(task.clone());
        Some(Event::reschedule(&task.queue, &task.id, task.due))
    }

    /// It may be cancelled or moved, unless it is forgotten before.
    fn remember(&mut self, task: Pending) {
        if self.pending.len() == PENDING_MAX {
            self.pending.swap_remove(self.dice.index(PENDING_MAX));
        }
        self.pending.push(task);
    }

    /// Of a task that was asked for before, whether that is in time or not.
    fn cancel(&mut self) -> Option<Event> {
        let at = self.dice.index(self.pending.len());
        let task = (at < self.pending.len()).then(|| self.pending.swap_remove(at))?;
        Some(Event::cancel(&task.queue, &task.id))
    }

    fn reschedule(&mut self, now: i64) -> Option<Event> {
        let at = self.dice.index(self.pending.len());
        let due = now + self.dice.range_ms(1_000, self.later_ms);
        let task = self.pending.get_mut(at).filter(|task| !task.moved && task.due != due)?;
        (task.due, task.moved) = (due, true);
        Some(Event::reschedule(&task.queue, &task.id, due))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use dueline::testing::history::Asks;

    use super::*;

    const NOW: i64 = 1_795_000_000_000;

    fn events(seed: u64, count: i64) -> Vec<Event> {
        let mut tasks = Tasks::new(seed, 0);
        (0..count).map(|n| tasks.next(NOW + n * 20)).collect()
    }

    #[test]
    fn the_same_seed_asks_for_the_same() {
        assert_eq!(events(5, 500), events(5, 500));
        assert_ne!(events(5, 500), events(6, 500));
    }

    #[test]
    fn a_task_is_asked_for_once_and_moved_or_cancelled_only_afterwards() {
        let mut asked: BTreeMap<(String, String), bool> = BTreeMap::new();
        let (mut cancels, mut moves, mut queues, mut instants) = (0, 0, BTreeSet::new(), BTreeMap::new());
        for event in events(5, 5_000) {
            let key = (event.queue.clone(), event.id.clone());
            queues.insert(event.queue.clone());
            match event.asks {
                Asks::Schedule { due, .. } => {
                    instants.entry(due).or_insert_with(Vec::new).push(event.queue);
                    assert_eq!(asked.insert(key, false), None);
                }
                Asks::Cancel => {
                    cancels += 1;
                    assert_eq!(asked.insert(key, true), Some(false));
                }
                Asks::Reschedule { .. } => {
                    moves += 1;
                    assert_eq!(asked.get(&key), Some(&false));
                }
                Asks::Redrive { .. } | Asks::Abort | Asks::Nonsense => panic!("the load is in order"),
            }
        }
        assert!(cancels > 300 && moves > 150 && queues.len() > 1_500, "{cancels} {moves} {}", queues.len());
        let tied: Vec<_> =
            instants.into_iter().filter(|(due, queues)| due.is_some() && queues.len() > 1).collect();
        let of_one = tied.iter().filter(|(_, queues)| {
            queues.iter().any(|queue| queues.iter().filter(|q| *q == queue).count() > 1)
        });
        assert!(tied.len() > 200 && of_one.count() > 80, "{}", tied.len());
    }

    #[test]
    fn no_task_stays_due_after_the_run() {
        let mut tasks = Tasks::new(5, 0);
        let mut due: BTreeMap<String, i64> = BTreeMap::new();
        let mut asked: BTreeMap<String, i64> = BTreeMap::new();
        let mut moved_after = Vec::new();
        let end = NOW + 100_000;
        let mut note = |event: Event, now: i64| match event.asks {
            Asks::Schedule { due: at, .. } => {
                asked.insert(event.id.clone(), now);
                due.insert(event.id, at.unwrap_or(now));
            }
            Asks::Reschedule { due: at } => {
                moved_after.extend((due[&event.id] > end + LATER_MS).then(|| now - asked[&event.id]));
                due.insert(event.id, at);
            }
            _ => assert!(due.remove(&event.id).is_some()),
        };
        for n in 0..5_000 {
            note(tasks.next(NOW + n * 20), NOW + n * 20);
        }
        let within = tasks.far.len();
        while let Some(event) = tasks.bring_in(end, 0) {
            note(event, end);
        }
        assert_eq!(due.values().filter(|at| **at > end + LATER_MS).count(), 0);
        let moved = moved_after.len() - within;
        assert!(within > 40 && moved > 40, "{within} at the end, {moved} before");
        assert!(moved_after[..moved].iter().all(|after| *after >= MOVED_AFTER_MS), "{moved_after:?}");
    }

    #[test]
    fn payloads_are_json() {
        for event in events(5, 1_000) {
            serde_json::from_str::<serde_json::Value>(&event.json()).expect("JSON");
        }
    }
}
