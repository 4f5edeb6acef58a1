//! Mistakes planted into the store's answers.

use std::collections::BTreeMap;

use dueline::model::{Fact, FactRow, LateQueueRow, QueueName, Standing, Wall};

/// Open attempts look as if their deadline had passed.
pub(crate) fn let_deadlines_pass(rows: &mut [FactRow]) {
    for row in rows {
        if let Fact::Started(started) = &mut row.fact {
            started.deadline = Wall::MIN;
        }
    }
}

/// Late queues look as if nothing had come before the last place where their pointers began.
pub(crate) fn begin_at_the_last(rows: &mut [LateQueueRow]) {
    let mut lasts: BTreeMap<QueueName, Standing> = BTreeMap::new();
    for row in rows.iter() {
        let Some(entry) = row.entry else { continue };
        let last = lasts.entry(row.queue.clone()).or_insert(entry.from);
        *last = entry.from.max(*last);
    }
    for row in rows {
        if let (Some(entry), Some(last)) = (&mut row.entry, lasts.get(&row.queue)) {
            entry.from = *last;
        }
    }
}
