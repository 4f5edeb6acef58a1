//! A steady load: tasks scheduled over HTTP, asked of pods in turn, each of another one again until it is accepted.

use super::ledger::Ledger;
use super::overlay::HANDLER;
use super::watch::{HTTP_PORT, Seen, agent};
use serde_json::json;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use ureq::Agent;

/// Threads, and the time between two tasks of one.
const THREADS: usize = 4;
const INTERVAL: Duration = Duration::from_millis(100);
const QUEUES: u64 = 997;
/// A task that nobody accepts for so long is given up.
const TRY_MAX: Duration = Duration::from_secs(60);
const TRY_INTERVAL: Duration = Duration::from_millis(100);

/// Who schedules.
#[derive(Clone)]
pub(super) struct Producer {
    pub(super) seen: Arc<Mutex<Seen>>,
    pub(super) ledger: Arc<Ledger>,
    /// One of an operator.
    pub(super) token: String,
}

/// A load that runs until it is dropped.
pub(super) struct Load {
    ends: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    /// `name` is in the ids of its tasks, which no other load may have.
    pub(super) fn start(producer: &Producer, name: &str) -> Load {
        let (ends, next): (Arc<AtomicBool>, Arc<AtomicUsize>) = Default::default();
        let threads = (0..THREADS).map(|_| {
            let (producer, ends, next, name) =
                (producer.clone(), ends.clone(), next.clone(), name.to_owned());
            std::thread::spawn(move || {
                let agent = agent();
                while !ends.load(Ordering::Relaxed) {
                    let begun = Instant::now();
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    producer.schedule(
                        &agent,
                        &Task {
                            id: format!("{name}-{number}"),
                            number,
                            delay: delay(number),
                            until: Until::Accepted,
                        },
                    );
                    std::thread::sleep(INTERVAL.saturating_sub(begun.elapsed()));
                }
            })
        });
        Load { threads: threads.collect(), ends }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// A task to schedule.
pub(super) struct Task {
    pub(super) id: String,
    /// Decides about its queue, its handler's time and who is asked first.
    pub(super) number: usize,
    pub(super) delay: Duration,
    pub(super) until: Until,
}

/// What is waited for.
#[derive(Clone, Copy)]
pub(super) enum Until {
    /// It will run.
    Accepted,
    /// Its owner has it in the store.
    Stored,
}

/// The status of what is accepted and not decided yet.
const NOT_DECIDED: u16 = 202;

/// Half of the tasks are due at once, others within four seconds.
fn delay(number: usize) -> Duration {
    let later = number as u64 % 9;
    Duration::from_millis(if number.is_multiple_of(2) { 0 } else { later * 500 })
}

/// One task in three takes its handler a while, so that calls are under way whenever something happens.
fn take_ms(number: usize) -> u64 {
    if number.is_multiple_of(3) { 400 } else { 0 }
}

/// Queues by turns that jump, so that no shard has all of its own at once.
fn queue(number: usize) -> String {
    const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;
    format!("q-{}", ((number as u64).wrapping_mul(GOLDEN) >> 32) % QUEUES)
}

impl Producer {
    /// Schedules one task; whether it was accepted.
    pub(super) fn schedule(&self, agent: &Agent, task: &Task) -> bool {
        let begun = Instant::now();
        let mut turn = task.number;
        while begun.elapsed() < TRY_MAX {
            let asked = Instant::now();
            if self.ip(turn).is_some_and(|ip| self.ask(agent, &ip, task)) {
                self.ledger.accepted(&task.id, asked + task.delay);
                return true;
            }
            turn += 1;
            std::thread::sleep(TRY_INTERVAL);
        }
        self.ledger.refused();
        false
    }

    /// A pod that serves; which one, is by turns.
    fn ip(&self, turn: usize) -> Option<String> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let serving: Vec<&str> =
            seen.pods.iter().filter(|pod| pod.serves()).map(|pod| pod.ip.as_str()).collect();
        (!serving.is_empty()).then(|| serving[turn % serving.len()].to_owned())
    }

    /// An id that was accepted before is a repeat, so one may ask again.
    fn ask(&self, agent: &Agent, ip: &str, task: &Task) -> bool {
        let body = json!({
            "queue": queue(task.number), "id": task.id, "delay": format!("{}ms", task.delay.as_millis()),
            "handler": HANDLER, "payload": {"take_ms": take_ms(task.number)},
        });
        let question = agent.post(format!("http://{ip}:{HTTP_PORT}/v1/tasks"));
        let question = question.header("authorization", format!("Bearer {}", self.token));
        let question = match task.until {
            Until::Accepted => question,
            Until::Stored => question.header("prefer", "wait=4"),
        };
        let answer = question.header("content-type", "application/json").send(body.to_string());
        let status = answer.map_or(0, |answer| answer.status().as_u16());
        match task.until {
            Until::Accepted => (200..300).contains(&status),
            Until::Stored => (200..300).contains(&status) && status != NOT_DECIDED,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn tasks_are_over_all_queues_due_at_once_or_later_and_slow_or_fast() {
        let numbers = 0..10_000;
        let queues: BTreeSet<String> = numbers.clone().map(queue).collect();
        assert_eq!(queues.len() as u64, QUEUES);
        let delays: BTreeSet<Duration> = numbers.clone().map(delay).collect();
        assert_eq!((delays.first(), delays.last()), (Some(&Duration::ZERO), Some(&Duration::from_secs(4))));
        let both: BTreeSet<u64> = numbers.map(take_ms).collect();
        assert_eq!(both.len(), 2);
    }
}
