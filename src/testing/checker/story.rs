//! What happened to one queue, in the order of time, for people.

use std::collections::BTreeSet;

use crate::testing::history::History;

/// Lines about a queue: what was asked, answered, begun and called, and the faults in between.
pub fn story(history: &History, queue: &str) -> Vec<String> {
    let mut lines: Vec<(i64, String)> = Vec::new();
    let mut versions = BTreeSet::new();
    for line in history.answered.iter().filter(|line| line.queue == queue) {
        versions.insert((line.shard, line.offset));
        versions.extend(line.current.map(|current| (line.shard, current)));
        let decided = line.decided;
        lines.push((
            line.at,
            format!("{:?} {}/{} of {}: {line:?}", decided, line.shard, line.offset, line.id),
        ));
    }
    for line in &history.asked {
        let at = line.shard.zip(line.offset);
        if line.queue.as_deref() == Some(queue) || at.is_some_and(|at| versions.contains(&at)) {
            lines.push((line.appended, format!("asked {line:?}")));
        }
    }
    for line in history.begun.iter().filter(|line| versions.contains(&(line.shard, line.version))) {
        let (version, epoch, sequence) = (line.version, line.epoch, line.sequence);
        lines.push((line.at, format!("begun version {version} as {epoch}.{sequence}")));
    }
    for line in history.finished.iter().filter(|line| versions.contains(&(line.shard, line.version))) {
        lines.push((line.from, format!("finished on record: version {} until {:?}", line.version, line.to)));
    }
    for line in history.called.iter().filter(|line| line.queue == queue) {
        lines.push((line.arrived, format!("called {line:?}")));
    }
    let shards: BTreeSet<u32> = versions.iter().map(|(shard, _)| *shard).collect();
    for line in history.owned.iter().filter(|line| shards.contains(&line.shard)) {
        lines.push((
            line.at,
            format!("epoch {} of shard {} begins, reads at {:?}", line.epoch, line.shard, line.read),
        ));
    }
    for fault in &history.faults {
        lines.push((fault.from, format!("FAULT {} until {}", fault.what, fault.to)));
    }
    lines.sort();
    lines.into_iter().map(|(at, text)| format!("{at:>8} {text}")).collect()
}
