//! Attempts under way at a takeover, however little fits into memory: all of them are known before anything starts.
//!
//! ```text
//!   watermark        cursor: memory is full      now            a little ahead of now
//!   ────┼─────────────────┼───────────────────────┼─────────────────────┼────►  place
//!       loaded            looked through: only tasks with an open attempt are kept
//! ```
//!
//! The loader stops when memory is full. Behind its cursor may lie a task whose attempt an owner before left open, and a
//! task of its queue that is loaded must not start beside it. What is kept here waits in memory beyond the cursor until
//! its end or its deadline; there are no more of them than slots of the owners before. Nothing is started here.

use crate::model::{FactRow, Place, Wall};

use super::effect::Effect;
use super::fold::{Next, fold};
use super::input::Failure;
use super::load::LoadedTask;
use super::window::PageNotes;
use super::{Engine, Stage};

/// An owner before may have started what is ready this much after now: its clock may have been ahead. In milliseconds.
const AHEAD_MS: i64 = 5_000;

/// How far open attempts are known.
#[derive(Debug)]
pub(super) struct Scout {
    /// Every open attempt before this is in memory.
    seen_to: Place,
    /// As far as an owner before may have started anything, once it was asked for.
    to: Option<Place>,
    /// The page being read.
    reading: Option<u64>,
}

impl Default for Scout {
    fn default() -> Self {
        Scout { seen_to: Place::start_of(Wall::MIN), to: None, reading: None }
    }
}

impl Scout {
    /// Everything before this was read.
    pub(super) fn saw(&mut self, to: Place) {
        self.seen_to = self.seen_to.max(to);
    }

    pub(super) fn is_reading(&self) -> bool {
        self.reading.is_some()
    }
}

impl Engine {
    /// Looks for open attempts where the loader did not come. True when all are known.
    pub(super) fn open_attempts_are_known(&mut self) -> bool {
        let ahead = Place::start_of(self.now.wall.plus_ms(AHEAD_MS));
        let to = *self.scout.to.get_or_insert(ahead);
        if self.scout.seen_to >= to || planted!(OpenBeyondMemoryNotSeen) {
            return true;
        }
        let ticket = self.ticket();
        self.scout.reading = Some(ticket);
        self.effects.push_back(Effect::Slice(ticket, self.scout.seen_to, to));
        false
    }

    /// Takes a page that was read for open attempts. False when it was read for the loader.
    pub(super) fn scouted(
        &mut self,
        ticket: u64,
        page: &Result<(Vec<FactRow>, Option<Place>), Failure>,
    ) -> bool {
        if self.scout.reading.take_if(|reading| *reading == ticket).is_none() {
            return false;
        }
        if self.stage != Stage::Loading {
            return true;
        }
        match page {
            Ok((rows, next)) => {
                for task in rows.chunk_by(|a, b| a.place == b.place) {
                    self.keep_if_open(task);
                }
                self.scout.saw((*next).or(self.scout.to).unwrap_or(self.scout.seen_to));
            }
            Err(failure) => {
                self.trouble("slice read", failure);
                self.retry_load();
            }
        }
        true
    }

    fn keep_if_open(&mut self, rows: &[FactRow]) {
        let folded = fold(rows.iter().map(|row| &row.fact), self.commit.applied_to());
        let (place, next) = (rows[0].place, folded.next());
        if matches!(next, Next::Open(_)) || place.version >= self.commit.applied_to() {
            self.load_task(rows, &PageNotes::default());
        } else if let Some(task) = LoadedTask::from_rows(rows) {
            let stands = (matches!(next, Next::Finished(_)), folded.mark.map(|(_, mark)| mark));
            self.retell(place, &task, rows.iter().map(|row| &row.fact), stands);
        }
    }
}
