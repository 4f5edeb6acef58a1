//! How tasks die: the end, the dead letter that comes of it, and the queue that stops for it (`on_dead: stop`).
//!
//! ```text
//!   ended for good ─┬─ on_dead: continue ────────────────────────────────────► dead letter written ─► end written ─► gone
//!                   └─ on_dead: stop ─► gate on the queue, on record and in force here ─┘
//! ```
//!
//! The letter is on record before the death is: one too many is seen to be none when the task is looked at, one too few would never be.
//! The stop is a gate, and it is on record before the death is: whoever comes next knows of both or of neither, and nothing of
//! the queue starts in between. A death that was not recorded is an open attempt to the next owner, as any other end.

use std::sync::Arc;

use crate::model::{
    Boot, CloseReason, DeadLetterRow, Fact, FactRow, OnDead, Place, Row, TaskContent, TaskKey, Wall,
};

use super::Engine;
use super::effect::Effect;
use super::input::Failure;
use super::writes::Purpose;

/// That a task dies.
pub(super) struct Death {
    pub(super) seq: u64,
    pub(super) at: Wall,
    pub(super) key: TaskKey,
    pub(super) content: Arc<TaskContent>,
    pub(super) reason: CloseReason,
    pub(super) attempts: u32,
    pub(super) error: Option<Arc<str>>,
    /// It was cancelled or replaced besides: nobody waits for it, and its queue goes on.
    pub(super) marked: bool,
}

/// A death that waits until its queue is stopped, or its letter is on record.
#[derive(Debug)]
pub(super) struct Dying {
    letter: DeadLetterRow,
    end: Row,
    purpose: Purpose,
    /// The stop was asked for in vain: asked for again then.
    retry_at: Option<Boot>,
}

const RETRY_MS: u64 = 500;

impl Engine {
    pub(super) fn push_fact(&mut self, place: Place, fact: Fact, purpose: Purpose) {
        self.push_patient_fact(place, fact, purpose, None);
    }

    /// The same, and it may wait for others until then.
    pub(super) fn push_patient_fact(
        &mut self,
        place: Place,
        fact: Fact,
        purpose: Purpose,
        until: Option<Boot>,
    ) {
        self.will_be_told(&fact);
        let row = FactRow { shard: self.options.shard, place, fact };
        self.writes.push_patient(Row::Fact(row), purpose, until);
    }

    /// Puts the last fact about a task that dies on record, behind its dead letter, and behind the stop of its queue.
    pub(super) fn push_death(&mut self, place: Place, fact: Fact, death: Death, purpose: Purpose) {
        let shard = self.options.shard;
        let Death { seq, at, key, content, reason, attempts, error, marked } = death;
        let letter = DeadLetterRow {
            shard,
            at,
            place,
            key: key.clone(),
            handler: content.handler.clone(),
            collection: content.collection.clone(),
            reason,
            attempts,
            error,
            purged: None,
        };
        self.will_be_told(&fact);
        let end = Row::Fact(FactRow { shard, place, fact });
        self.attempts.dying.insert(seq, Dying { letter, end, purpose, retry_at: None });
        if content.on_dead == OnDead::Continue || marked || planted!(StopNotAwaited) {
            return self.push_letter(seq);
        }
        self.effects.push_back(Effect::StopQueue { seq, key, reason });
    }

    fn push_letter(&mut self, seq: u64) {
        let Some(dying) = self.attempts.dying.get(&seq) else { return };
        let letter = Row::DeadLetter(dying.letter.clone());
        self.writes.push(letter, Purpose::Letter(seq));
    }

    /// The letter is on record: now the end of the task.
    pub(super) fn letter_written(&mut self, seq: u64) {
        if let Some(dying) = self.attempts.dying.remove(&seq) {
            self.writes.push(dying.end, dying.purpose);
        }
    }

    pub(super) fn queue_stopped(&mut self, seq: u64, stopped: Result<(), Failure>) {
        match stopped {
            Ok(()) => self.push_letter(seq),
            Err(failure) => {
                let retry_at = self.now.boot.plus_ms(RETRY_MS);
                if let Some(dying) = self.attempts.dying.get_mut(&seq) {
                    dying.retry_at = Some(retry_at);
                    self.trouble("queue stop", &failure);
                }
            }
        }
    }

    /// Asks again for what was asked for in vain.
    pub(super) fn stop_queues_again(&mut self) {
        for (seq, dying) in &mut self.attempts.dying {
            if dying.retry_at.take_if(|at| *at <= self.now.boot).is_some() {
                let (key, reason) = (dying.letter.key.clone(), dying.letter.reason);
                self.effects.push_back(Effect::StopQueue { seq: *seq, key, reason });
            }
        }
    }
}

impl super::attempt::Attempts {
    pub(super) fn next_stop(&self) -> Option<Boot> {
        self.dying.values().filter_map(|dying| dying.retry_at).min()
    }
}
