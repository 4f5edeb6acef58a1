//! Where partitions are read from: seeks, their retries, and the judgement over offsets that are gone.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::super::board::Cell;
use super::super::leaders::Checked;
use super::super::raw::Held;
use super::{Member, partition_of};
use crate::log::Error;
use crate::model::Shard;

/// Time between two tries, in milliseconds.
const RETRY_MS: u64 = 20;
/// A partition that could not be sought for so long, in milliseconds, is assigned anew at its offset.
const ASSIGN_ANEW_MS: u64 = 1_000;

/// The shards that are to be placed.
#[derive(Default)]
pub(super) struct Places {
    waiting: BTreeMap<Shard, Place>,
}

struct Place {
    offset: u64,
    /// Read on from what is buffered.
    keep: bool,
    answer: Option<oneshot::Sender<Result<(), Error>>>,
    since: Instant,
    try_at: Instant,
}

impl Place {
    fn done(mut self, outcome: Result<(), Error>) {
        if let Some(answer) = self.answer.take() {
            // Nobody waits any more: nothing to be told.
            let _ = answer.send(outcome);
        }
    }
}

impl Places {
    /// The engine's seek: takes the place of whatever was waiting for the shard.
    pub(super) fn seek(&mut self, shard: Shard, offset: u64, answer: oneshot::Sender<Result<(), Error>>) {
        let now = Instant::now();
        let place = Place { offset, keep: false, answer: Some(answer), since: now, try_at: now };
        if let Some(before) = self.waiting.insert(shard, place) {
            before.done(Err(Error::Unavailable("another offset was sought".into())));
        }
    }

    /// Reads on from where the buffer ends, unless the engine seeks elsewhere.
    pub(super) fn read_on(&mut self, shard: Shard, offset: u64) {
        let now = Instant::now();
        let place = Place { offset, keep: true, answer: None, since: now, try_at: now };
        self.waiting.entry(shard).or_insert(place);
    }

    /// The shard is not to be placed any more.
    pub(super) fn forget(&mut self, shard: Shard) {
        if let Some(place) = self.waiting.remove(&shard) {
            place.done(Err(Error::NotAssigned(shard)));
        }
    }
}

impl Member {
    /// Goes on with a paused shard.
    pub(super) fn go_on(&mut self, shard: Shard) {
        let next = self.shared.board.cell(shard).and_then(|cell| cell.next());
        if let Some(next) = next {
            self.places.read_on(shard, next);
        }
    }

    /// Has the connections made to the leaders of partitions that will be read, and asked for their end, as soon as their shards
    /// are taken: between data centres the first request on a connection costs several round trips.
    pub(super) fn meet_leaders(&self, shards: &[Shard]) {
        let partitions: Vec<i32> = shards.iter().map(|shard| partition_of(*shard)).collect();
        if !partitions.is_empty() {
            self.reader.wake_leaders(&partitions);
            self.leaders.meet(partitions);
        }
    }

    /// Places what waits for it; asks the leaders when a position may be gone.
    pub(super) fn serve_places(&mut self) {
        let now = Instant::now();
        let due: Vec<Shard> = self
            .places
            .waiting
            .iter()
            .filter(|(_, place)| place.try_at <= now)
            .map(|(shard, _)| *shard)
            .collect();
        let mut placed = Vec::new();
        for shard in due {
            if let Some(place) = self.places.waiting.remove(&shard)
                && self.place(shard, place)
            {
                placed.push(partition_of(shard));
            }
        }
        if !placed.is_empty() {
            self.reader.wake_leaders(&placed);
        }
        if self.check_due && !self.checking {
            self.ask_for_check();
        }
    }

    /// Places a shard; says whether it is read now.
    fn place(&mut self, shard: Shard, mut place: Place) -> bool {
        let Some(cell) = self.shared.board.cell(shard) else {
            place.done(Err(Error::NotAssigned(shard)));
            return false;
        };
        let stuck = cell.is_suspect() || place.since.elapsed() >= Duration::from_millis(ASSIGN_ANEW_MS);
        let outcome = match stuck {
            true => self.reader.assign_anew(shard, place.offset),
            false => self.reader.seek(shard, place.offset),
        };
        match outcome {
            Ok(()) => {
                cell.place(place.offset, place.keep);
                place.done(Ok(()));
                return true;
            }
            Err(error) if stuck => {
                tracing::warn!(%error, shard = shard.0, "a partition cannot be placed: the client is made anew");
                self.shared.mark_broken();
                place.done(Err(Error::Unavailable(error.to_string())));
            }
            Err(_) => {
                place.try_at = Instant::now() + Duration::from_millis(RETRY_MS);
                self.places.waiting.insert(shard, place);
            }
        }
        false
    }

    /// The client says that some offset is out of range, but not of which partition: all that are read are checked.
    fn ask_for_check(&mut self) {
        let positions: Vec<(Shard, u64)> = self.read_cells().map(|(shard, _, next)| (shard, next)).collect();
        self.check_due = false;
        if !positions.is_empty() {
            self.checking = self.leaders.check(positions, &self.shared);
            self.check_due = !self.checking;
        }
    }

    /// The shards that are placed and not paused, with their positions.
    fn read_cells(&self) -> impl Iterator<Item = (Shard, std::sync::Arc<Cell>, u64)> + use<> {
        let cells = self.shared.board.cells().into_iter();
        cells.filter_map(|(shard, cell)| {
            let next = cell.next()?;
            (!cell.is_paused()).then_some((shard, cell, next))
        })
    }

    /// Stops the shards whose position the log does not hold; the other suspects are placed again.
    pub(super) fn judge(&mut self, checked: Checked) {
        self.checking = false;
        let held = match checked {
            Ok(held) => held,
            Err(error) => {
                tracing::debug!(error, "positions could not be checked");
                self.check_due = true;
                return;
            }
        };
        for (shard, cell, wanted) in self.read_cells() {
            match held.get(&shard) {
                Some(Held { first, next, .. }) if wanted < *first || wanted > *next => {
                    tracing::warn!(shard = shard.0, wanted, first, next, "the log does not hold the offset");
                    cell.stop(Error::OffsetGone { shard, wanted, first: *first, next: *next });
                }
                Some(_) if cell.is_suspect() => self.places.read_on(shard, wanted),
                Some(_) => {}
                None => self.check_due |= cell.is_suspect(),
            }
        }
    }
}
