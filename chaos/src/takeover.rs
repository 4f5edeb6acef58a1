//! For how long shards had no running owner after a kill, seen from outside: from the kill of the instance that ran a
//! shard until another process first says that it runs it, under a higher epoch. The time that an answer takes, and up to
//! one interval between two questions, are in it.

use std::fmt::{self, Write as _};
use std::io::{BufRead, Write};
use std::path::Path;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

/// Session, lease, and three seconds for everything else, with the defaults.
pub(crate) const BOUND_MS: i64 = 6_000 + 6_000 + 3_000;
/// Width of a bar of the histogram, in milliseconds.
const BAR_MS: i64 = 1_000;
/// Columns of the longest bar.
const BAR_COLUMNS: usize = 50;

/// One shard of one killed instance: a line of the ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Takeover {
    /// Number of the kill, from 0, over all runs of the ledger.
    pub(crate) kill: u32,
    pub(crate) seed: u64,
    pub(crate) commit: String,
    /// Who was killed, and when (milliseconds after 1970).
    pub(crate) victim: String,
    pub(crate) killed: i64,
    pub(crate) shard: u32,
    /// The epoch of the one that was killed, and of the next one that ran the shard.
    pub(crate) epoch: u64,
    pub(crate) next_epoch: Option<u64>,
    /// Without a running owner for so long; `None` = nobody ran it when the run gave up.
    pub(crate) gap_ms: Option<i64>,
}

/// A kill whose shards are watched.
#[derive(Debug, Default)]
pub(crate) struct Gaps {
    killed_us: i64,
    open: Vec<Takeover>,
}

impl Gaps {
    /// The shards that the killed instance ran last, each with `gap_ms` open, and when it was killed by the boot clock.
    pub(crate) fn new(killed_us: i64, open: Vec<Takeover>) -> Gaps {
        Gaps { killed_us, open }
    }

    /// A living instance says at a time that it runs a shard.
    pub(crate) fn runs(&mut self, at_us: i64, shard: u32, epoch: u64) {
        let closed = |one: &&mut Takeover| one.shard == shard && one.gap_ms.is_none() && epoch > one.epoch;
        if let Some(one) = self.open.iter_mut().find(closed) {
            one.next_epoch = Some(epoch);
            one.gap_ms = Some((at_us - self.killed_us) / 1_000);
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.open.iter().all(|one| one.gap_ms.is_some())
    }

    pub(crate) fn all(&self) -> &[Takeover] {
        &self.open
    }
}

/// Reads a ledger; nothing is in one that does not exist yet.
pub(crate) fn read(path: &Path) -> Result<Vec<Takeover>> {
    if !path.exists() {
        return Ok(Vec::new());
    }
    let file = std::fs::File::open(path).with_context(|| format!("{}", path.display()))?;
    let mut all = Vec::new();
    for line in std::io::BufReader::new(file).lines() {
        all.push(serde_json::from_str(&line?).with_context(|| format!("a line of {}", path.display()))?);
    }
    Ok(all)
}

/// Adds lines to a ledger.
pub(crate) fn append(path: &Path, lines: &[Takeover]) -> Result<()> {
    let open = std::fs::OpenOptions::new().create(true).append(true).open(path);
    let mut file = open.with_context(|| format!("{}", path.display()))?;
    for line in lines {
        file.write_all((serde_json::to_string(line)? + "\n").as_bytes())?;
    }
    Ok(file.sync_all()?)
}

/// Kills that a ledger has, whole.
pub(crate) fn kills(ledger: &[Takeover]) -> u32 {
    ledger.iter().map(|line| line.kill + 1).max().unwrap_or(0)
}

/// How times are spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Spread {
    pub(crate) p50_ms: i64,
    pub(crate) p90_ms: i64,
    pub(crate) p99_ms: i64,
    pub(crate) max_ms: i64,
}

impl Spread {
    /// Sorts the times. `None` when there are none.
    pub(crate) fn of(times: &mut [i64]) -> Option<Spread> {
        times.sort_unstable();
        let max_ms = *times.last()?;
        // The least value that the given share of all does not exceed.
        let at_share = |share: usize| times[(times.len() * share).div_ceil(100).max(1) - 1];
        Some(Spread { p50_ms: at_share(50), p90_ms: at_share(90), p99_ms: at_share(99), max_ms })
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Spread { p50_ms, p90_ms, p99_ms, max_ms } = self;
        write!(text, "p50 {p50_ms} ms, p90 {p90_ms} ms, p99 {p99_ms} ms, max {max_ms} ms")
    }
}

/// The distribution of gaps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Distribution {
    pub(crate) kills: u32,
    pub(crate) shards: usize,
    #[serde(flatten)]
    pub(crate) spread: Spread,
    pub(crate) bound_ms: i64,
    /// Shards whose gap was longer than the bound.
    pub(crate) over_bound: usize,
    /// Shards that nobody ran when the run gave up.
    pub(crate) never: usize,
    /// Shards for each second.
    pub(crate) histogram: Vec<usize>,
}

impl Distribution {
    /// `None` when there is nothing to tell of.
    pub(crate) fn of(ledger: &[Takeover]) -> Option<Distribution> {
        let mut gaps: Vec<i64> = ledger.iter().filter_map(|line| line.gap_ms).collect();
        let spread = Spread::of(&mut gaps)?;
        let mut histogram = vec![0; usize::try_from(spread.max_ms / BAR_MS).unwrap_or(0) + 1];
        for gap in &gaps {
            if let Some(bar) = usize::try_from(gap / BAR_MS).ok().and_then(|bar| histogram.get_mut(bar)) {
                *bar += 1;
            }
        }
        Some(Distribution {
            kills: kills(ledger),
            shards: ledger.len(),
            spread,
            bound_ms: BOUND_MS,
            over_bound: gaps.iter().filter(|gap| **gap > BOUND_MS).count(),
            never: ledger.len() - gaps.len(),
            histogram,
        })
    }

    /// For people.
    pub(crate) fn text(&self) -> String {
        let Distribution { kills, shards, spread, bound_ms, over_bound, never, .. } = self;
        let mut text = format!(
            "without a running owner after {kills} kills, {shards} shards: {spread}; \
             bound {bound_ms} ms, over it {over_bound}, never {never}"
        );
        let highest = self.histogram.iter().copied().max().unwrap_or(1).max(1);
        let first = self.histogram.iter().position(|count| *count > 0).unwrap_or(0);
        for (second, count) in self.histogram.iter().enumerate().skip(first) {
            let bar = "#".repeat((count * BAR_COLUMNS).div_ceil(highest));
            // Writing to a string does not fail.
            let _ = write!(text, "\n  {second:>3}-{:<3} s {count:>5} {bar}", second + 1);
        }
        text
    }
}

#[cfg(test)]
mod tests;
