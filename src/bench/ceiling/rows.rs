//! The rows of the raw program, made before its time is taken: some hundreds of tasks that differ as real ones do, taken in turn.
//!
//! Their form is that in which Dueline stored a task, its event, a start and an end when this was written, and stays: what
//! Dueline writes may become less.

use std::sync::Arc;

use crate::model::{HandlerName, TaskContent};

use super::super::event::{NOOP, content, mixed};
use super::super::rows::PLACE_BYTES;
use super::{Load, QUEUES};

/// Tasks that are drawn, and bytes of their payloads, at most: further apart than what a compressor looks back.
const DRAWN: u64 = 1_024;
const DRAWN_PAYLOADS_BYTES: u64 = 16 * 1024 * 1024;

/// What the rows of one task hold besides their keys.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) event: String,
    pub(super) task: String,
    pub(super) started: String,
    pub(super) ended: String,
    /// The same for a store that takes tasks.
    pub(super) content: Arc<TaskContent>,
}

/// All that were drawn.
pub(super) struct Drawn(Vec<Task>);

impl Drawn {
    pub(super) fn new(load: &Load) -> anyhow::Result<Drawn> {
        let count = DRAWN.min(DRAWN_PAYLOADS_BYTES / load.payload_bytes).max(1);
        let handler = HandlerName::new(NOOP)?;
        // Numbers as long as most have.
        let tasks = (0..count).map(|number| task(load, 100_000 + number, handler.clone()));
        Ok(Drawn(tasks.collect()))
    }

    pub(super) fn of(&self, task: u64) -> &Task {
        &self.0[(task % self.0.len() as u64) as usize]
    }

    /// Bytes of the four rows of a task with their keys, as those of Dueline are counted.
    pub(super) fn bytes_per_task(&self) -> f64 {
        let bytes = |task: &Task| {
            let data = task.event.len() + task.task.len() + task.started.len() + task.ended.len();
            data + 4 * PLACE_BYTES + key(100_000).len()
        };
        self.0.iter().map(bytes).sum::<usize>() as f64 / self.0.len() as f64
    }
}

/// The key of a task's by-id row.
pub(super) fn key(task: u64) -> String {
    format!("raw-{}/t-{task}", task % QUEUES)
}

fn task(load: &Load, number: u64, handler: HandlerName) -> Task {
    let (queue, due_at, payload) = (number % QUEUES, load.due_at(number), load.plan.payload_of(number));
    let drawn = |of: u64| mixed(load.plan.seed, number.wrapping_mul(8) + of);
    let hash = format!("{:016x}{:016x}", drawn(0), drawn(1));
    let appended = due_at - (drawn(2) % 10_000) as i64;
    let at = due_at + (drawn(3) % 1_000) as i64;
    let (shard, deadline, ended) = (drawn(4) % 64, at + 30_000, at + (drawn(5) % 1_000) as i64);
    Task {
        event: format!(
            r#"{{"shard":{shard},"verb":"schedule","hash":"{hash}","appended":{appended},"decision":"scheduled","current":{{"ready_at":{due_at},"version":{number},"due_at":{due_at},"hash":"{hash}","appended":{appended}}}}}"#
        ),
        task: format!(
            r#"{{"queue":"q-{queue}","id":"t-{number}","due_at":{due_at},"appended":{appended},"handler":"{NOOP}","payload":{payload},"priority":5}}"#
        ),
        started: format!(r#"{{"at":{at},"deadline":{deadline},"attempt":1,"instance":"bench"}}"#),
        ended: format!(r#"{{"at":{ended},"outcome":"succeeded"}}"#),
        content: Arc::new(content(handler, &payload)),
    }
}

#[cfg(test)]
mod tests {
    use crate::model::{Row, Shard, Wall};
    use crate::wire::row::{encode_event, encode_fact};

    use super::super::super::args::tests::plan;
    use super::super::embedded;
    use super::*;

    /// What Dueline stores for a task now, in bytes.
    fn stored(load: &Load, number: u64) -> usize {
        let handler = HandlerName::new(NOOP).expect("a name");
        let content = Arc::new(content(handler, &load.plan.payload_of(number)));
        let rows = embedded::rows_of(number, load, content, Shard(63), "q-").expect("names");
        let bytes = |row: &Row| match row {
            Row::Event(row) => encode_event(row).len(),
            Row::Fact(row) => encode_fact(&row.fact).len(),
            other => panic!("{other:?}"),
        };
        rows.iter().map(bytes).sum()
    }

    #[test]
    fn the_raw_programs_rows_are_json_as_long_as_those_that_are_stored() {
        for args in ["", "--payload 1024"] {
            let load = Load::new(&plan(args), Wall(1_764_000_000_000), 3_600_000);
            let drawn = Drawn::new(&load).expect("tasks");
            for task in &drawn.0 {
                for text in [&task.event, &task.task, &task.started, &task.ended] {
                    serde_json::from_str::<serde_json::Value>(text).expect("JSON");
                }
            }
            let keys = (4 * PLACE_BYTES + key(100_000).len()) as f64;
            let (raw, stored) = (drawn.bytes_per_task() - keys, stored(&load, 100_000) as f64);
            // Stored rows may become shorter; when they become longer, the raw program's are to be drawn anew.
            assert!(raw > 0.97 * stored, "{raw} bytes against {stored}");
        }
    }

    #[test]
    fn drawn_tasks_differ_and_are_bounded_by_their_payloads() {
        let load = |args| Load::new(&plan(args), Wall(0), 0);
        let ordinary = Drawn::new(&load("")).expect("tasks");
        assert_eq!(ordinary.0.len() as u64, DRAWN);
        assert_ne!(ordinary.of(1).task, ordinary.of(2).task);
        assert_eq!(ordinary.of(1).task, ordinary.of(1 + DRAWN).task);
        let large = Drawn::new(&load("--payload 262144")).expect("tasks");
        assert_eq!(large.0.len() as u64, DRAWN_PAYLOADS_BYTES / 262_144);
    }
}
