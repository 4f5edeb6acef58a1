//! What is taken down of a run beside its two ledgers, and the history of all of it.

use dueline::testing::history::{Fault, Halted, History, Line};

use super::Stage;
use crate::clock::wall_ms;
use crate::journal::Journal;
use crate::ledger::{Call, Key};
use crate::say;

impl Stage<'_> {
    /// Notes something that must never be.
    pub(crate) fn wrong(&mut self, wrong: String) {
        say::line(&wrong);
        self.wrongs.push(wrong);
    }

    /// Notes tasks that may never be called from now on, and were not before.
    pub(crate) fn forbid(&mut self, keys: Vec<Key>) {
        self.forbidden.extend(keys);
    }

    /// Notes something that was wrong since `from` and is over.
    pub(crate) fn fault(&mut self, what: String, from: i64) {
        let fault = Fault { what, from, to: wall_ms() };
        self.note(Line::Fault(fault.clone()));
        self.faults.push(fault);
    }

    /// Notes what a step that could not go on has left, since the last fault, or since then.
    pub(crate) fn broken_off(&mut self, begun: i64) {
        let from = self.faults.last().map_or(begun, |last| last.to);
        self.fault("what could not go on".to_owned(), from);
    }

    /// Notes something that is no fault, at the time it was done.
    pub(crate) fn mark(&mut self, what: String) {
        self.marks.push((what, wall_ms()));
    }

    /// Notes that an instance may not have heard how calls ended, from then until then.
    pub(crate) fn halted_until(&mut self, name: &str, from: i64, to: i64) {
        for line in self.halted_lines(name, from, to) {
            self.note(Line::Halted(line));
        }
        self.halts.push((name.to_owned(), from, to));
    }

    /// Notes that an instance could not go on since `from`, and can now.
    pub(crate) fn halted(&mut self, name: &str, from: i64) {
        self.halted_until(name, from, wall_ms());
    }

    /// A line for each epoch under which an instance has made calls.
    fn halted_lines(&self, name: &str, from: i64, to: i64) -> Vec<Halted> {
        let epochs = self.sink.calls.epochs_of(name).into_iter();
        epochs.map(|(shard, epoch)| Halted { shard, epoch, from, to }).collect()
    }

    fn note(&self, line: Line) {
        let [.., faults] = &self.journals;
        faults.add(line);
    }

    /// Everything that was taken down, for the checker. The epochs of an instance are those it made calls under.
    pub(crate) fn history(&self) -> History {
        let calls = self.sink.calls.all();
        let mut wrongs = self.wrongs.clone();
        wrongs.extend(self.sink.calls.all_unreadable());
        let unwritten = self.journals.iter().filter_map(Journal::failure);
        wrongs.extend(unwritten.map(|error| format!("a ledger on disk lacks lines: {error}")));
        for Call { called, by, .. } in &calls {
            if self.forbidden.contains(&(called.queue.clone(), called.id.clone())) {
                wrongs.push(format!("cancelled while nobody lived, and yet called by {by}: {called:?}"));
            }
        }
        let halts = self.halts.iter();
        let halted = halts.flat_map(|(name, from, to)| self.halted_lines(name, *from, *to)).collect();
        let (owned, rested, told) = self.watch.lines();
        History {
            asked: self.producer.sent.asked(),
            called: calls.into_iter().map(|call| call.called).collect(),
            faults: self.faults.clone(),
            wrongs,
            owned,
            rested,
            told,
            halted,
            ..History::default()
        }
    }
}
