//! Rules about shards: their owners, how far they are, what they hold, and how they come to rest.

use std::collections::BTreeMap;

use super::index::Index;
use super::{Report, Rule};
use crate::testing::history::{Called, Owned, Reached};

/// One owner an epoch, later epochs begin later, and from when an owner has read tasks nobody of an older epoch sends.
pub(super) fn epochs_rise(index: &Index<'_>, report: &mut Report) {
    let mut shards: BTreeMap<u32, Vec<&Owned>> = BTreeMap::new();
    for line in &index.history.owned {
        shards.entry(line.shard).or_default().push(line);
    }
    for lines in shards.values_mut() {
        lines.sort_by_key(|line| (line.epoch, line.at));
        for pair in lines.windows(2) {
            report.count(Rule::EpochsRise);
            if pair[0].epoch == pair[1].epoch && pair[0].owner != pair[1].owner {
                report.wrong(Rule::EpochsRise, "two owners of one epoch", None, pair);
            } else if pair[1].at < pair[0].at {
                report.wrong(Rule::EpochsRise, "an epoch began before the one below it", None, pair);
            }
        }
    }
    let reads = reads_from_above(index);
    for call in &index.history.called {
        let Some(sent) = call.sent else { continue };
        report.count(Rule::EpochsRise);
        if next_read(&reads, call).is_some_and(|read| sent > read) {
            report.of_call(Rule::EpochsRise, "sent after the next owner had read", call, call);
        }
    }
}

/// For each shard and epoch, when it or a higher one first read.
fn reads_from_above(index: &Index<'_>) -> BTreeMap<(u32, u64), i64> {
    let mut reads = BTreeMap::new();
    let mut last: Option<(u32, i64)> = None;
    for ((shard, epoch), line) in index.owned.iter().rev() {
        let above = last.filter(|(of, _)| of == shard).map(|(_, read)| read);
        let first = line.read.into_iter().chain(above).min();
        if let Some(first) = first {
            reads.insert((*shard, *epoch), first);
            last = Some((*shard, first));
        }
    }
    reads
}

fn next_read(reads: &BTreeMap<(u32, u64), i64>, call: &Called) -> Option<i64> {
    let above = (call.shard, call.token[1] + 1)..=(call.shard, u64::MAX);
    reads.range(above).next().map(|(_, read)| *read)
}

pub(super) fn offsets_never_go_back(index: &Index<'_>, report: &mut Report) {
    let mut shards: BTreeMap<u32, Vec<&Reached>> = BTreeMap::new();
    for line in &index.history.reached {
        shards.entry(line.shard).or_default().push(line);
    }
    for lines in shards.values_mut() {
        lines.sort_by_key(|line| line.at);
        let (mut applied, mut watermark, mut committed) = (None, None, None);
        for line in lines {
            report.count(Rule::OffsetsNeverGoBack);
            if rises(&mut applied, line.applied) {
                report.wrong(Rule::OffsetsNeverGoBack, "applied went back", None, (applied, *line));
            }
            if rises(&mut watermark, line.watermark) {
                report.wrong(Rule::OffsetsNeverGoBack, "the watermark went back", None, (watermark, *line));
            }
            if rises(&mut committed, line.committed) {
                report.wrong(Rule::OffsetsNeverGoBack, "the commit went back", None, (committed, *line));
            }
            if line.committed.zip(applied).is_some_and(|(committed, applied)| committed > applied) {
                report.wrong(
                    Rule::OffsetsNeverGoBack,
                    "committed before it was applied",
                    None,
                    (applied, *line),
                );
            }
        }
    }
}

/// Takes the next value; true when it lies below one seen before.
fn rises<T: Copy + PartialOrd>(seen: &mut Option<T>, next: Option<T>) -> bool {
    let falls = seen.zip(next).is_some_and(|(seen, next)| next < seen);
    if !falls {
        *seen = next.or(*seen);
    }
    falls
}

pub(super) fn memory_is_bounded(index: &Index<'_>, report: &mut Report) {
    for line in &index.history.held {
        report.count(Rule::MemoryBounded);
        if line.tasks > line.tasks_max {
            report.wrong(Rule::MemoryBounded, "more tasks in memory than the bound", None, line);
        }
    }
}

pub(super) fn comes_to_rest(index: &Index<'_>, report: &mut Report) {
    for line in &index.history.rested {
        report.count(Rule::ComesToRest);
        let late = |at: Option<i64>| at.is_none_or(|at| at > line.healed + index.slack.rest_ms);
        if late(line.owned) {
            report.wrong(Rule::ComesToRest, "a shard has no running owner", None, line);
        } else if late(line.caught_up) {
            report.wrong(Rule::ComesToRest, "a shard does not catch up with the log", None, line);
        }
    }
}

pub(super) fn nothing_is_unfinished(index: &Index<'_>, report: &mut Report) {
    for line in &index.history.left {
        report.count(Rule::NothingUnfinished);
        if line.finished {
            continue;
        }
        let below = line.ready <= line.watermark;
        let what = if below { "unfinished below the watermark" } else { "unfinished at the end" };
        report.wrong(Rule::NothingUnfinished, what, None, line);
    }
}
