//! Makes packs of first events, and takes them apart.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{EventPackColumns, PACK, Partition, cell_of, span_of};
use crate::model::{Epoch, EventRow, Row, Shard, Version, home_shard};
use crate::store::cassandra::singles::{shard_column, text};
use crate::store::pack::{Indexes, digest};
use crate::store::{Error, Packs};
use crate::wire::row as codec;

/// Events of a pack, at least.
const EVENTS_MIN: usize = 2;
/// Bytes after which a pack is full.
const BYTES_MAX: usize = 16 * 1024;
/// An event whose line has more is not packed.
const LINE_BYTES_MAX: usize = 1_024;

/// Packs made so far, and the events in them.
#[derive(Default)]
pub(in super::super) struct EventPacker {
    packs: AtomicU64,
    events: AtomicU64,
}

/// What became of the events of a call.
#[derive(Default)]
pub(in super::super) struct PackedEvents {
    /// Each with the index of its first event, by partition.
    pub(in super::super) packs: BTreeMap<Partition, Vec<(usize, EventPackColumns)>>,
    /// The events that are in packs, by index in the call.
    pub(in super::super) taken: Indexes,
}

impl EventPacker {
    /// Packs what may be packed of the rows of a call.
    pub(in super::super) fn pack(&self, rows: &[Row], shards: u32) -> Result<PackedEvents, Error> {
        let may_be_packed = |row: &EventRow| {
            // Who looks for it looks there.
            row.is_first && row.is_listed && home_shard(&row.key.queue, shards) == row.shard
        };
        let candidates = rows.iter().enumerate().filter_map(|(index, row)| match row {
            Row::Event(row) if may_be_packed(row) => Some((row.shard, row.version, index, row)),
            _ => None,
        });
        let mut candidates: Vec<(Shard, Version, usize, &EventRow)> = candidates.collect();
        let mut packed = PackedEvents::default();
        if candidates.len() < EVENTS_MIN {
            return Ok(packed);
        }
        candidates.sort_by_key(|(shard, version, index, _)| (*shard, *version, *index));
        let cell = |one: &(Shard, Version, usize, &EventRow)| (one.0, cell_of(one.1));
        for of_cell in candidates.chunk_by(|one, next| cell(one) == cell(next)) {
            let mut open = Open::default();
            for (_, _, index, row) in of_cell {
                open.push(*index, row);
                if open.lines.len() >= BYTES_MAX {
                    self.close(std::mem::take(&mut open), of_cell[0].1, of_cell[0].0, &mut packed)?;
                }
            }
            self.close(open, of_cell[0].1, of_cell[0].0, &mut packed)?;
        }
        Ok(packed)
    }

    fn close(
        &self,
        open: Open,
        version: Version,
        shard: Shard,
        packed: &mut PackedEvents,
    ) -> Result<(), Error> {
        let Open { lines, events } = open;
        if events.len() < EVENTS_MIN {
            return Ok(());
        }
        self.packs.fetch_add(1, Ordering::Relaxed);
        self.events.fetch_add(events.len() as u64, Ordering::Relaxed);
        events.iter().for_each(|index| packed.taken.add(*index));
        let (shard, span, digest) = (shard_column(shard), span_of(version), digest(&lines));
        let columns = (shard, span, cell_of(version), PACK, digest, text(lines)?);
        packed.packs.entry((shard, span)).or_default().push((events[0], columns));
        Ok(())
    }

    /// What was packed so far.
    pub(in super::super) fn made(&self) -> Packs {
        let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
        Packs { event_packs: count(&self.packs), events: count(&self.events), ..Packs::default() }
    }
}

/// A pack that still takes events.
#[derive(Default)]
struct Open {
    lines: Vec<u8>,
    /// By index in the call.
    events: Vec<usize>,
}

impl Open {
    fn push(&mut self, index: usize, row: &EventRow) {
        let len = self.lines.len();
        // Writing to memory does not fail.
        let _ = write!(self.lines, "{} {} {} ", row.version.0, row.epoch.0, codec::key_text(&row.key));
        // JSON of ours: a line feed within a text is escaped.
        self.lines.extend_from_slice(&codec::encode_event(row));
        self.lines.push(b'\n');
        if self.lines.len() - len > LINE_BYTES_MAX {
            self.lines.truncate(len);
        } else {
            self.events.push(index);
        }
    }
}

/// An event of a pack, as it lies there.
pub(super) struct Line<'a> {
    pub(super) version: Version,
    pub(super) epoch: Epoch,
    pub(super) key: &'a str,
    pub(super) data: &'a str,
}

pub(super) fn lines(data: &str) -> impl Iterator<Item = Result<Line<'_>, Error>> {
    data.lines().map(|line| {
        let mut fields = line.splitn(4, ' ');
        let mut number = || fields.next().and_then(|field| u64::from_str(field).ok());
        let (version, epoch) = (number(), number());
        match (version, epoch, fields.next(), fields.next()) {
            (Some(version), Some(epoch), Some(key), Some(data)) => {
                Ok(Line { version: Version(version), epoch: Epoch(epoch), key, data })
            }
            _ => Err(Error::Corrupt(format!("event_pack: line {line:?}"))),
        }
    })
}
