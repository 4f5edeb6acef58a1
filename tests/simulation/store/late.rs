//! Pointers and lists of late queues on the replicas. As in the real store the pointers of a queue lie in partitions by
//! time, and what was due before the queue became late lies in the partition of that moment: who does not know when that
//! was does not find them.

use std::collections::BTreeMap;

use dueline::model::{
    LateQueueRow, Pointer, PointerPage, PointerRange, PointerRow, QueueName, Segment, Shard, Standing, Wall,
};

use super::Asked;
use super::cell::{Cell, Landed, Mask};

/// Time that a partition of pointers spans, in milliseconds. Short, so that there are several.
const BUCKET_MS: i64 = 60_000;

type Pointers = BTreeMap<(Standing, i64), Cell<Pointer>>;
type List = BTreeMap<u64, Cell<LateQueueRow>>;

/// The two tables.
#[derive(Debug, Default)]
pub(crate) struct Lates {
    pointers: BTreeMap<(Shard, QueueName), Pointers>,
    lists: BTreeMap<(Shard, Segment), List>,
}

fn bucket_of(opened: Wall, due_at: Wall) -> i64 {
    due_at.max(opened).0.div_euclid(BUCKET_MS)
}

impl Lates {
    pub(crate) fn put_pointer(&mut self, row: &PointerRow, stamp: u64, on: Mask) -> Landed {
        let pointers = self.pointers.entry((row.shard, row.queue.clone())).or_default();
        let bucket = bucket_of(row.opened, row.pointer.due_at);
        pointers.entry((row.pointer.standing(), bucket)).or_default().put(stamp, row.pointer, on)
    }

    pub(crate) fn put_list_row(&mut self, row: &LateQueueRow, stamp: u64, on: Mask) -> Landed {
        let list = self.lists.entry((row.shard, row.segment)).or_default();
        list.entry(row.seq).or_default().put(stamp, row.clone(), on)
    }

    /// The rows of a list.
    pub(crate) fn list(&mut self, shard: Shard, segment: Segment, from: Mask) -> Vec<LateQueueRow> {
        let cells = self.lists.get_mut(&(shard, segment)).into_iter().flat_map(BTreeMap::values_mut);
        cells.filter_map(|cell| super::read(cell, from, |_| {})).collect()
    }

    /// Pointers of a range, `rows_max` of them, and where to go on.
    pub(crate) fn pointers(
        &mut self,
        shard: Shard,
        range: &PointerRange,
        rows_max: usize,
        asked: Asked,
    ) -> PointerPage {
        let mut page = PointerPage::default();
        let Some(pointers) = self.pointers.get_mut(&(shard, range.queue.clone())) else { return page };
        for ((standing, bucket), cell) in pointers.range_mut((range.from, i64::MIN)..) {
            if standing.due_at >= range.to {
                break;
            }
            if *bucket != bucket_of(range.opened, standing.due_at) {
                continue;
            }
            if page.pointers.len() >= rows_max {
                page.next = Some(*standing);
                break;
            }
            let from = asked[bucket.rem_euclid(asked.len() as i64) as usize];
            page.pointers.extend(super::read(cell, from, |_| {}));
        }
        page
    }

    pub(crate) fn wipe(&mut self, replica: usize) {
        self.pointers.values_mut().flat_map(BTreeMap::values_mut).for_each(|cell| cell.wipe(replica));
        self.lists.values_mut().flat_map(BTreeMap::values_mut).for_each(|cell| cell.wipe(replica));
    }

    /// Gives `to` everything that `from` has.
    pub(crate) fn repair(&mut self, from: Mask, to: Mask) {
        for cell in self.pointers.values_mut().flat_map(BTreeMap::values_mut) {
            cell.spread(from, to);
        }
        for cell in self.lists.values_mut().flat_map(BTreeMap::values_mut) {
            cell.spread(from, to);
        }
    }
}
