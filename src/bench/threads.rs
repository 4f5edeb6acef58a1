//! Processor time of this process by what its threads do, from the kernel's list of them.
//!
//! The engine, its actors, the client of Cassandra and the handlers run on the threads of the async runtime: by thread they cannot
//! be told apart.

use std::collections::BTreeMap;

/// Ticks of the kernel's clock for processor time in a second: the same on every Linux.
const TICKS_PER_SECOND: f64 = 100.0;

/// Where threads belong, by how their names begin.
const PARTS: [(&str, &str); 7] = [
    ("tokio-", RUNTIME),
    ("rdk:", "librdkafka"),
    ("kafka-", "kafka threads"),
    ("fjall", "embedded store"),
    ("dueline-writer", "embedded store"),
    ("jemalloc", "allocator"),
    ("bench-", "sampler"),
];
const RUNTIME: &str = "async runtime";
/// Threads of no known name: the main one, which makes the records that are sent, and those of the resolver.
const OTHER: &str = "other";

/// Adds up what threads use, those that end meanwhile too, up to when they were last looked at.
#[derive(Debug, Default)]
pub(super) struct Threads {
    seen: BTreeMap<u32, u64>,
    seconds: BTreeMap<&'static str, f64>,
    is_begun: bool,
}

impl Threads {
    /// Looks at all threads; what they used before the first look does not count.
    pub(super) fn look(&mut self) {
        for (id, part, ticks) in read() {
            let before = self.seen.insert(id, ticks);
            let before = if self.is_begun { before.unwrap_or(0) } else { ticks };
            // An id that is used again begins at nothing.
            let used = if ticks < before { ticks } else { ticks - before };
            *self.seconds.entry(part).or_default() += used as f64 / TICKS_PER_SECOND;
        }
        self.is_begun = true;
    }

    /// Seconds of processor time since the first look, by part.
    pub(super) fn seconds(&self) -> &BTreeMap<&'static str, f64> {
        &self.seconds
    }
}

fn read() -> Vec<(u32, &'static str, u64)> {
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else { return Vec::new() };
    let of = |entry: std::fs::DirEntry| {
        let id = entry.file_name().to_str()?.parse().ok()?;
        let (name, ticks) = parsed(&std::fs::read_to_string(entry.path().join("stat")).ok()?)?;
        Some((id, part_of(&name), ticks))
    };
    threads.flatten().filter_map(of).collect()
}

fn part_of(name: &str) -> &'static str {
    PARTS.iter().find(|(begins, _)| name.starts_with(begins)).map_or(OTHER, |(_, part)| part)
}

/// Name and ticks in user and kernel mode of a line of `stat`; the name, in parentheses, may hold anything.
fn parsed(stat: &str) -> Option<(String, u64)> {
    let (begin, rest) = stat.rsplit_once(") ")?;
    let name = begin.split_once(" (")?.1;
    // From the state on: user mode is the 12th, kernel mode the 13th.
    let mut fields = rest.split(' ').skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let kernel: u64 = fields.next()?.parse().ok()?;
    Some((name.to_owned(), user + kernel))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_stat_is_read_whatever_the_thread_is_called() {
        let line = "42 (rdk:a) b (c) S 1 2 3 4 5 6 7 8 9 10 700 21 0 0 20 0 9 0 77 88 99";
        assert_eq!(parsed(line), Some(("rdk:a) b (c".to_owned(), 721)));
        assert_eq!(parsed("42 no name"), None);
    }

    #[test]
    fn threads_belong_to_parts_by_name() {
        for (name, part) in [("tokio-rt-worker", RUNTIME), ("rdk:broker1", "librdkafka"), ("main", OTHER)] {
            assert_eq!(part_of(name), part);
        }
    }

    #[test]
    fn work_of_a_thread_shows_up_after_the_first_look() {
        let mut threads = Threads::default();
        threads.look();
        assert!(threads.seconds().values().all(|seconds| *seconds < f64::EPSILON));
        let worked = std::thread::Builder::new().name("fjall-test".to_owned()).spawn(|| {
            let begun = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
            let mut held = 0u64;
            loop {
                let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
                let ns = (now.tv_sec - begun.tv_sec) * 1_000_000_000 + now.tv_nsec - begun.tv_nsec;
                held = held.wrapping_add(ns.unsigned_abs());
                if ns > 50_000_000 {
                    std::hint::black_box(held);
                    // The thread is there until it was looked at.
                    std::thread::park();
                    return;
                }
            }
        });
        let worked = worked.expect("a thread");
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(40);
        while threads.seconds().get("embedded store").is_none_or(|seconds| *seconds < 0.03) {
            assert!(std::time::Instant::now() < deadline, "{threads:?}");
            threads.look();
            std::thread::yield_now();
        }
        worked.thread().unpark();
        worked.join().expect("ends");
    }
}
