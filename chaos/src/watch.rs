//! Who runs which shard, asked of every living instance ten times a second and of each about itself only: what the
//! instances say of each other is not asked for.
//!
//! An owner is an instance that says it runs a shard; of two that say so, the one with the higher epoch. An answer counts
//! until the next one of the same instance, or until it is stale.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use dueline::testing::history::{Owned, Rested, Told};
use serde::{Deserialize, Serialize};
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;

use crate::clock;
use crate::takeover::{Gaps, Takeover};

/// Between two questions to one instance.
const INTERVAL: Duration = Duration::from_millis(100);
/// An instance without Kafka takes two seconds to say so.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// An answer that is older says nothing any more, in microseconds.
const STALE_US: i64 = 5_000_000;
/// So much of an answer is told that is none, in characters.
const WHY_CHARS: usize = 200;
/// What makes an instance answer for itself alone.
const OWN_ONLY: (&str, &str) = ("dueline-hop", "1");
/// The phase of a shard whose tasks are started.
pub(crate) const RUNNING: &str = "running";
/// The phase of a shard whose log lost records.
const STOPPED: &str = "stopped";

/// What an instance says of a shard.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct View {
    pub(crate) shard: u32,
    pub(crate) epoch: u64,
    pub(crate) phase: String,
    /// -1 for none.
    pub(crate) applied: i64,
}

#[derive(Debug, Deserialize)]
struct Page {
    shards: Vec<View>,
}

/// A change in what an instance says of a shard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Change {
    pub(crate) at: i64,
    pub(crate) instance: String,
    pub(crate) shard: u32,
    pub(crate) epoch: u64,
    pub(crate) phase: String,
}

/// A shard with who runs it under which epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) instance: String,
    pub(crate) epoch: u64,
}

/// When a shard was last said to run, under its highest epoch, and the longest time between two such answers.
#[derive(Clone, Copy, Debug)]
struct Heard {
    epoch: u64,
    last_us: i64,
    longest_us: i64,
}

/// Everything seen so far.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    heard: BTreeMap<u32, Heard>,
    hand_overs: Vec<i64>,
    now: BTreeMap<String, (i64, Vec<View>)>,
    /// Why the last question of an instance has no answer.
    unanswered: BTreeMap<String, String>,
    changes: Vec<Change>,
    owned: Vec<Owned>,
    /// How far owners said to be, rising for each shard.
    told: Vec<Told>,
    gaps: Gaps,
    rests: BTreeMap<u32, (Rested, Option<u64>)>,
}

impl Seen {
    /// Takes an answer of a process of an instance, at a time of the boot clock and of the wall clock.
    pub(crate) fn take(&mut self, instance: &str, process: &str, at_us: i64, at: i64, views: Vec<View>) {
        for view in views.iter().filter(|view| view.phase == RUNNING) {
            self.gaps.runs(at_us, view.shard, view.epoch);
            self.note_heard(at_us, view);
            self.note_owner(process, at, view);
            self.note_rest(at, view);
            self.note_told(at, view);
        }
        self.unanswered.remove(instance);
        let before = self.now.insert(instance.to_owned(), (at_us, views.clone())).map(|(_, views)| views);
        self.note_changes(instance, at, &before.unwrap_or_default(), &views);
    }

    fn note_heard(&mut self, at_us: i64, view: &View) {
        let epoch = view.epoch;
        let first = Heard { epoch, last_us: at_us, longest_us: 0 };
        let heard = self.heard.entry(view.shard).or_insert(first);
        if epoch > heard.epoch {
            self.hand_overs.push((at_us - heard.last_us) / 1_000);
        }
        if epoch >= heard.epoch {
            let longest_us = heard.longest_us.max(at_us - heard.last_us);
            *heard = Heard { epoch, last_us: at_us, longest_us };
        }
    }

    /// The shard that nobody said to run for longest, and for how long, in milliseconds.
    fn longest_silence(&self) -> Option<(u32, i64)> {
        let all = self.heard.iter().map(|(shard, heard)| (*shard, heard.longest_us / 1_000));
        all.max_by_key(|(_, longest_ms)| *longest_ms)
    }

    /// The first time that a process runs a shard under an epoch. What is heard of an epoch only after a higher one says
    /// nothing of when it began.
    fn note_owner(&mut self, process: &str, at: i64, view: &View) {
        let known = |line: &&Owned| line.shard == view.shard;
        let mut lines = self.owned.iter().rev().filter(known);
        let same =
            |line: &Owned| line.epoch == view.epoch && line.owner == process || line.epoch > view.epoch;
        if !lines.any(same) {
            let (shard, epoch, owner) = (view.shard, view.epoch, process.to_owned());
            self.owned.push(Owned { shard, epoch, owner, at, read: None });
        }
    }

    fn note_rest(&mut self, at: i64, view: &View) {
        if let Some((rest, wanted)) = self.rests.get_mut(&view.shard) {
            rest.owned.get_or_insert(at);
            let applied = u64::try_from(view.applied).ok();
            if *wanted <= applied {
                rest.caught_up.get_or_insert(at);
            }
        }
    }

    fn note_told(&mut self, at: i64, view: &View) {
        let before = self.told.iter().rev().find(|line| line.shard == view.shard).map(|line| line.applied);
        if let Ok(applied) = u64::try_from(view.applied)
            && before < Some(applied)
        {
            self.told.push(Told { at, shard: view.shard, applied });
        }
    }

    fn note_changes(&mut self, instance: &str, at: i64, before: &[View], now: &[View]) {
        let known = |all: &[View], view: &View| {
            all.iter().any(|one| (one.shard, one.epoch, &one.phase) == (view.shard, view.epoch, &view.phase))
        };
        let mut change = |view: &View, phase: &str| {
            let (instance, phase) = (instance.to_owned(), phase.to_owned());
            self.changes.push(Change { at, instance, shard: view.shard, epoch: view.epoch, phase });
        };
        for gone in before.iter().filter(|old| !now.iter().any(|view| view.shard == old.shard)) {
            change(gone, "let go");
        }
        for view in now.iter().filter(|view| !known(before, view)) {
            change(view, &view.phase);
        }
    }

    /// Running owners by answers that are not stale.
    pub(crate) fn owners(&self, now_us: i64) -> BTreeMap<u32, Owner> {
        let mut owners: BTreeMap<u32, Owner> = BTreeMap::new();
        for (instance, (at_us, views)) in &self.now {
            for view in views.iter().filter(|view| view.phase == RUNNING && at_us + STALE_US > now_us) {
                let owner = Owner { instance: instance.clone(), epoch: view.epoch };
                let newer = owners.get(&view.shard).is_none_or(|known| known.epoch < owner.epoch);
                if newer {
                    owners.insert(view.shard, owner);
                }
            }
        }
        owners
    }

    /// How far the running owners are: offsets applied, -1 for none.
    fn applied(&self) -> BTreeMap<u32, i64> {
        let mut applied = BTreeMap::new();
        for view in self.now.values().flat_map(|(_, views)| views).filter(|view| view.phase == RUNNING) {
            let known = applied.entry(view.shard).or_insert(view.applied);
            *known = view.applied.max(*known);
        }
        applied
    }
}

/// Asks the instances until it is dropped.
#[derive(Debug)]
pub(crate) struct Watch {
    client: reqwest::Client,
    seen: Arc<Mutex<Seen>>,
    pollers: BTreeMap<String, JoinHandle<()>>,
    shards: u32,
}

impl Watch {
    pub(crate) fn new(shards: u32) -> Result<Watch> {
        let client = reqwest::Client::builder().no_proxy().timeout(ANSWER_TIMEOUT).build();
        let client = client.context("an HTTP client")?;
        Ok(Watch { client, seen: Arc::default(), pollers: BTreeMap::new(), shards })
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks an instance from now on.
    pub(crate) fn follow(&mut self, instance: &str, process: String, port: u16) {
        let (client, seen, name) = (self.client.clone(), self.seen.clone(), instance.to_owned());
        let poller = tokio::spawn(async move {
            let mut pace = tokio::time::interval(INTERVAL);
            pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let url = format!("http://127.0.0.1:{port}/v1/shards?lag=false");
            loop {
                pace.tick().await;
                let answer = ask(&client, &url).await;
                let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
                match answer {
                    Ok(views) => seen.take(&name, &process, clock::boot_us(), clock::wall_ms(), views),
                    // One that starts, stands still or is cut off does not answer; the next question will tell.
                    Err(why) => drop(seen.unanswered.insert(name.clone(), why)),
                }
            }
        });
        if let Some(before) = self.pollers.insert(instance.to_owned(), poller) {
            before.abort();
        }
    }

    /// Asks it no more, and forgets what it said.
    pub(crate) fn forget(&mut self, instance: &str) {
        if let Some(poller) = self.pollers.remove(instance) {
            poller.abort();
        }
        let mut seen = self.seen();
        seen.unanswered.remove(instance);
        if let Some((_, before)) = seen.now.remove(instance) {
            seen.note_changes(instance, clock::wall_ms(), &before, &[]);
        }
    }

    /// Running owners at this moment.
    pub(crate) fn owners(&self) -> BTreeMap<u32, Owner> {
        self.seen().owners(clock::boot_us())
    }

    /// Whether every shard has a running owner, and each of these instances, and no other, is one.
    pub(crate) fn all_run(&self, instances: &BTreeSet<String>) -> bool {
        let owners = self.owners();
        let busy: BTreeSet<&String> = owners.values().map(|owner| &owner.instance).collect();
        owners.len() == self.shards as usize && busy.into_iter().eq(instances)
    }

    /// What instances said instead of which shards they have.
    pub(crate) fn unanswered(&self) -> String {
        let seen = self.seen();
        seen.unanswered.iter().map(|(instance, why)| format!("; {instance} does not say: {why}")).collect()
    }

    /// Whether an instance says of every shard that it is stopped, and none that it runs.
    pub(crate) fn all_stopped(&self) -> bool {
        let seen = self.seen();
        let stopped: BTreeSet<u32> = seen
            .now
            .values()
            .flat_map(|(_, views)| views)
            .filter(|view| view.phase == STOPPED)
            .map(|view| view.shard)
            .collect();
        stopped.len() == self.shards as usize && seen.owners(clock::boot_us()).is_empty()
    }

    /// Whether everything up to these offsets is applied.
    pub(crate) fn applied(&self, offsets: &BTreeMap<u32, u64>) -> bool {
        let applied = self.seen().applied();
        let reached = |(shard, offset): (&u32, &u64)| {
            applied
                .get(shard)
                .and_then(|applied| u64::try_from(*applied).ok())
                .is_some_and(|at| at >= *offset)
        };
        offsets.iter().all(reached)
    }

    /// Watches shards that lost their owner just now.
    pub(crate) fn measure(&self, gaps: Gaps) {
        self.seen().gaps = gaps;
    }

    pub(crate) fn gaps_closed(&self) -> bool {
        self.seen().gaps.is_closed()
    }

    /// What was measured since [`Watch::measure`].
    pub(crate) fn gaps(&self) -> Vec<Takeover> {
        self.seen().gaps.all().to_vec()
    }

    /// From now on no fault is made: notes when each shard has an owner, and when that has applied what was
    /// acknowledged before.
    pub(crate) fn healed(&self, offsets: &BTreeMap<u32, u64>) {
        let healed = clock::wall_ms();
        self.seen().rests = (0..self.shards)
            .map(|shard| {
                let rest = Rested { shard, healed, owned: None, caught_up: None };
                (shard, (rest, offsets.get(&shard).copied()))
            })
            .collect();
    }

    /// Whether every shard has come to rest since [`Watch::healed`].
    pub(crate) fn at_rest(&self) -> bool {
        self.seen().rests.values().all(|(rest, _)| rest.caught_up.is_some())
    }

    /// The shard that nobody said to run for longest, and for how long, in milliseconds: the time of an answer is in it.
    pub(crate) fn longest_silence(&self) -> Option<(u32, i64)> {
        self.seen().longest_silence()
    }

    /// For each change of a shard's epoch, how long nobody said to run it, in milliseconds.
    pub(crate) fn hand_overs(&self) -> Vec<i64> {
        self.seen().hand_overs.clone()
    }

    /// Lines for the history.
    pub(crate) fn lines(&self) -> (Vec<Owned>, Vec<Rested>, Vec<Told>) {
        let seen = self.seen();
        (seen.owned.clone(), seen.rests.values().map(|(rest, _)| *rest).collect(), seen.told.clone())
    }

    /// All changes so far.
    pub(crate) fn changes(&self) -> Vec<Change> {
        self.seen().changes.clone()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.pollers.values().for_each(JoinHandle::abort);
    }
}

async fn ask(client: &reqwest::Client, url: &str) -> Result<Vec<View>, String> {
    let asked = client.get(url).header(OWN_ONLY.0, OWN_ONLY.1).send().await;
    let answer = asked.map_err(|error| error.to_string())?;
    let status = answer.status();
    let text = answer.text().await.map_err(|error| error.to_string())?;
    if !status.is_success() {
        return Err(format!("{status} {}", text.chars().take(WHY_CHARS).collect::<String>()));
    }
    serde_json::from_str::<Page>(&text).map(|page| page.shards).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(shard: u32, epoch: u64, phase: &str, applied: i64) -> View {
        View { shard, epoch, phase: phase.to_owned(), applied }
    }

    #[test]
    fn of_two_that_run_a_shard_the_higher_epoch_owns_it_and_a_stale_answer_counts_no_more() {
        let mut seen = Seen::default();
        seen.take("i-1", "i-1#1", 1_000_000, 1, vec![view(0, 4, "running", 9), view(1, 2, "waiting", 9)]);
        seen.take("i-2", "i-2#1", 3_000_000, 3, vec![view(0, 5, "running", 9)]);
        let owner = |seen: &Seen, now_us| seen.owners(now_us).get(&0).map(|owner| owner.instance.clone());
        assert_eq!(owner(&seen, 3_000_000).as_deref(), Some("i-2"));
        assert_eq!(seen.owners(3_000_000).len(), 1, "one that waits does not run");
        assert_eq!(owner(&seen, 3_000_000 + STALE_US), None);
    }

    #[test]
    fn how_far_owners_are_is_taken_down_when_it_rises_and_not_of_who_waits_or_is_behind() {
        let mut seen = Seen::default();
        seen.take("i-1", "i-1#1", 1_000, 1, vec![view(0, 4, "running", -1), view(1, 2, "waiting", 9)]);
        seen.take("i-1", "i-1#1", 2_000, 2, vec![view(0, 4, "running", 7)]);
        seen.take("i-1", "i-1#1", 3_000, 3, vec![view(0, 4, "running", 7)]);
        seen.take("i-2", "i-2#1", 4_000, 4, vec![view(0, 5, "running", 6)]);
        seen.take("i-2", "i-2#1", 5_000, 5, vec![view(0, 5, "running", 8)]);
        let told: Vec<_> = seen.told.iter().map(|line| (line.at, line.applied)).collect();
        assert_eq!(told, [(2, 7), (5, 8)]);
    }

    #[test]
    fn an_epoch_begins_when_it_is_first_seen_and_not_when_it_is_heard_of_after_the_next() {
        let mut seen = Seen::default();
        seen.take("i-1", "i-1#1", 0, 10, vec![view(0, 4, "running", 9)]);
        seen.take("i-1", "i-1#1", 0, 20, vec![view(0, 4, "running", 9)]);
        seen.take("i-2", "i-2#1", 0, 30, vec![view(0, 6, "running", 9)]);
        seen.take("i-3", "i-3#1", 0, 40, vec![view(0, 5, "running", 9)]);
        let found: Vec<_> = seen.owned.iter().map(|line| (line.epoch, line.at)).collect();
        assert_eq!(found, [(4, 10), (6, 30)]);
        seen.take("i-4", "i-4#1", 0, 50, vec![view(0, 6, "running", 9)]);
        assert_eq!(seen.owned.len(), 3, "two owners of one epoch are both told");
    }

    #[test]
    fn a_shard_is_at_rest_when_its_owner_has_applied_what_was_acknowledged() {
        let mut seen = Seen::default();
        let rest = Rested { shard: 0, healed: 5, owned: None, caught_up: None };
        seen.rests = [(0, (rest, Some(10)))].into();
        seen.take("i-1", "i-1#1", 0, 10, vec![view(0, 4, "running", 9)]);
        assert_eq!((seen.rests[&0].0.owned, seen.rests[&0].0.caught_up), (Some(10), None));
        seen.take("i-1", "i-1#1", 0, 20, vec![view(0, 4, "running", 10)]);
        assert_eq!((seen.rests[&0].0.owned, seen.rests[&0].0.caught_up), (Some(10), Some(20)));
    }

    #[test]
    fn the_longest_silence_is_that_between_two_answers_of_the_highest_epoch() {
        let mut seen = Seen::default();
        for (at_us, epoch) in
            [(1_000_000, 4), (1_100_000, 4), (9_000_000, 3), (13_100_000, 5), (13_200_000, 5)]
        {
            seen.take("i-1", "i-1#1", at_us, 0, vec![view(0, epoch, "running", 9)]);
            seen.take("i-1", "i-1#1", at_us, 0, vec![view(1, epoch, "running", 9)]);
        }
        seen.take("i-1", "i-1#1", 16_000_000, 0, vec![view(1, 9, "lapsed", 9)]);
        assert_eq!(seen.longest_silence().map(|(_, longest_ms)| longest_ms), Some(12_000));
        assert_eq!(seen.hand_overs, [12_000, 12_000], "one of each shard");
    }

    #[test]
    fn changes_are_told_once() {
        let mut seen = Seen::default();
        for phase in ["waiting", "waiting", "running"] {
            seen.take("i-1", "i-1#1", 0, 1, vec![view(0, 4, phase, 9)]);
        }
        seen.take("i-1", "i-1#1", 0, 2, Vec::new());
        let found: Vec<_> = seen.changes.iter().map(|change| change.phase.as_str()).collect();
        assert_eq!(found, ["waiting", "running", "let go"]);
    }
}
