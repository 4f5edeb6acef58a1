//! Which ids are looked up: those that may have events, and no others.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::rig::{Rig, content};
use crate::engine::{Failure, Input, KeyLookup};
use crate::model::{Decision, Epoch, EventRow, IdsRow, ListedIds, Shard, TaskId, TaskKey, Version, limits};

impl Rig {
    /// Rows of an id. What is the first and listed is packed: found by its version alone.
    pub(super) fn rows_of(&self, lookup: &KeyLookup) -> Vec<EventRow> {
        let is_found = |row: &&EventRow| {
            row.key == lookup.key && (!is_packed(row) || lookup.listed.contains(&row.version))
        };
        let mut rows: Vec<EventRow> = self.events.iter().filter(is_found).cloned().collect();
        rows.sort_by_key(|row| (std::cmp::Reverse(row.version), std::cmp::Reverse(row.epoch)));
        rows
    }

    /// What is on record of ids, and packed events that are in no list where a generation ended.
    pub(super) fn listed(&self, from: u64, ends: &[Version]) -> ListedIds {
        let rows = self.ids.range((from, Epoch(0))..).map(|(_, row)| row.clone()).collect();
        let is_of = |version: Version| {
            let is_above =
                |end: &Version| (end.0..=end.0 + limits::UNLISTED_VERSIONS_MAX).contains(&version.0);
            ends.iter().any(is_above)
        };
        let unlisted = self.events.iter().filter(|row| is_packed(row) && is_of(row.version));
        ListedIds { rows, unlisted: unlisted.map(|row| (row.key.clone(), row.version)).collect() }
    }
}

fn is_packed(row: &EventRow) -> bool {
    row.is_first && row.is_listed
}

/// How many are looked up when tasks of these ids are asked for, one after the other.
fn looked_up(rig: &mut Rig, ids: &[&str]) -> usize {
    let before = rig.looked_up;
    for id in ids {
        rig.schedule("q", id, 3_600_000);
    }
    rig.looked_up - before
}

fn key(rig: &Rig, id: &str) -> TaskKey {
    let queue = rig.events[0].key.queue.clone();
    TaskKey { queue, id: TaskId::new(id).expect("a name") }
}

/// The events of an id, forgotten.
fn forget(rig: &mut Rig, id: &str) {
    let key = key(rig, id);
    let versions: Vec<Version> =
        rig.events.iter().filter(|row| row.key == key).map(|row| row.version).collect();
    rig.events.retain(|row| row.key != key);
    rig.give(Input::Forgotten(versions.into_iter().map(|version| (key.clone(), version)).collect()));
}

#[test]
fn a_new_id_is_not_looked_up_and_a_known_one_is() {
    let mut rig = Rig::running();
    assert_eq!(looked_up(&mut rig, &["a", "b", "c"]), 0);
    assert_eq!(looked_up(&mut rig, &["b", "d", "a"]), 2);
    let accepted = Decision::Scheduled;
    assert_eq!(rig.decisions()[..3], [accepted; 3]);
    assert_eq!(rig.decisions().iter().filter(|decision| **decision == accepted).count(), 4);
}

#[test]
fn ids_that_come_together_are_looked_up_from_the_second_on() {
    let mut rig = Rig::running();
    let verbs = [3_600_000, 7_200_000].map(|ms| rig.due_in(ms, content()));
    let events = [("a", 0), ("b", 0), ("a", 1)]
        .map(|(id, verb)| super::rig::event("q", id, verbs[verb].clone(), u128::from(verb as u64)));
    rig.append_all(events);
    rig.run(1_000);
    assert_eq!((rig.looked_up, rig.decisions().len()), (1, 3));
    assert_ne!(rig.events[2].decision, Decision::Scheduled);
}

#[test]
fn the_next_owner_knows_the_ids_and_looks_up_what_may_have_been_decided() {
    let mut rig = Rig::running();
    looked_up(&mut rig, &["a", "b", "c"]);
    rig.run(1_000);
    // Decided, and no progress row says so.
    rig.hold_progress = true;
    looked_up(&mut rig, &["d"]);
    rig.run(1_000);
    rig.hold_progress = false;
    let before = rig.looked_up;
    rig.take_over(2);
    assert_eq!(rig.looked_up - before, 1, "the event of d is looked up");
    assert_eq!(looked_up(&mut rig, &["e", "f"]), 0);
    assert_eq!(looked_up(&mut rig, &["a", "c", "d", "e"]), 4);
}

#[test]
fn a_progress_row_says_it_only_when_the_rows_are_there() {
    let mut rig = Rig::running();
    looked_up(&mut rig, &["a", "b"]);
    rig.fail_progress = Some(0);
    rig.run(1_000);
    let progress = rig.progress.clone().expect("one is there");
    assert_eq!((progress.ids_from, progress.next_offset), (Some(0), 2));
    let rows: Vec<usize> = rig.ids.values().map(|row| row.prints.len()).collect();
    assert_eq!(rows, [2], "what was not written is written with the next one");
}

#[test]
fn what_the_store_forgot_is_new_again_and_its_row_goes() {
    let mut rig = Rig::running();
    let count = 2 * limits::IDS_OF_CHUNK as usize + 10;
    let ids: Vec<String> = (0..count).map(|n| format!("t-{n}")).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    assert_eq!(looked_up(&mut rig, &ids), 0);
    rig.run(1_000);
    let chunk = limits::IDS_OF_CHUNK as usize;
    ids[..chunk].iter().chain([&ids[chunk + 1], &ids[count - 1]]).for_each(|id| forget(&mut rig, id));
    rig.schedule("q", "another", 3_600_000);
    rig.run(1_000);
    let left = |rig: &Rig| -> Vec<usize> {
        rig.ids.values().map(|row| row.prints.iter().filter(|print| **print != 0).count()).collect()
    };
    assert_eq!(left(&rig), [chunk - 1, 10], "one went from the last and one came");
    let progress = rig.progress.clone().expect("one is there");
    assert_eq!(progress.ids_from, Some(1));
    for owner in 2..4 {
        let known = [ids[chunk], ids[count - 2], "another"];
        assert_eq!(looked_up(&mut rig, &known), 3, "owner {owner}");
        rig.take_over(owner);
    }
    assert_eq!(looked_up(&mut rig, &[ids[0], ids[chunk - 1], ids[chunk + 1], ids[count - 1]]), 0);
    assert_eq!(looked_up(&mut rig, &[ids[0]]), 1);
}

#[test]
fn more_than_fit_are_looked_up_and_listed_for_an_owner_with_more_room() {
    let mut rig = Rig::running();
    rig.ids_max = 3;
    rig.take_over(2);
    assert_eq!(looked_up(&mut rig, &["a", "b", "c", "d"]), 0);
    assert_eq!(looked_up(&mut rig, &["e", "f"]), 2);
    rig.run(1_000);
    rig.take_over(3);
    assert_eq!(looked_up(&mut rig, &["g", "a"]), 2);
    rig.run(1_000);
    rig.ids_max = 100;
    rig.take_over(4);
    assert_eq!(looked_up(&mut rig, &["h", "i"]), 0);
    assert_eq!(looked_up(&mut rig, &["a", "d", "e", "g"]), 4);
}

#[test]
fn a_shard_with_very_many_lists_on_while_it_keeps_them() {
    let chunks = 1 + limits::IDS_OF_SHARD as u64 / limits::IDS_OF_CHUNK;
    for (ids_max, keeps) in [(limits::IDS_IN_MEMORY, true), (limits::IDS_OF_SHARD, false)] {
        let mut rig = Rig::running();
        looked_up(&mut rig, &["a"]);
        rig.run(1_000);
        let (shard, epoch) = (Shard(0), Epoch(1));
        // None of them is packed.
        rig.ids.extend((1..=chunks).map(|chunk| {
            let prints = (1..=limits::IDS_OF_CHUNK as u32).map(|n| 2 * n).collect();
            ((chunk, epoch), IdsRow { shard, chunk, epoch, prints })
        }));
        rig.ids_max = ids_max;
        rig.take_over(2);
        assert_eq!(looked_up(&mut rig, &["b", "c"]), if keeps { 0 } else { 2 });
        rig.run(1_000);
        let progress = rig.progress.clone().expect("one is there");
        assert_eq!((progress.ids_from, progress.ids_are_all), (Some(0), keeps));
        // Where not all are listed the rows of no use go, and what is packed is found as before.
        let shards = rig.ids.len();
        rig.take_over(3);
        assert_eq!(looked_up(&mut rig, &["d", "a"]), if keeps { 1 } else { 2 });
        assert_eq!(rig.events.iter().filter(|row| row.decision == Decision::Scheduled).count(), 4);
        rig.run(300_000);
        assert_eq!(rig.ids.len() < shards, !keeps);
    }
}

#[test]
fn rows_that_cannot_be_read_are_waited_for() {
    let mut rig = Rig::running();
    looked_up(&mut rig, &["a"]);
    rig.run(1_000);
    for (owner, failure) in [(2, Rig::away()), (3, Failure::Misconfigured("no such table".into()))] {
        rig.fail_ids = Some(failure);
        rig.take_over(owner);
        assert_eq!(rig.engine.shard_view(rig.now().boot).phase, "loading");
        rig.fail_ids = None;
        rig.run(10_000);
        assert_eq!(rig.engine.shard_view(rig.now().boot).phase, "running");
        assert_eq!(looked_up(&mut rig, &[&format!("b-{owner}"), "a"]), 1);
        rig.run(1_000);
    }
}

#[test]
fn of_owners_before_the_last_one_no_rows_stay() {
    let mut rig = Rig::running();
    for owner in 2..6 {
        looked_up(&mut rig, &[&format!("t-{owner}")]);
        rig.run(1_000);
        rig.take_over(owner);
    }
    looked_up(&mut rig, &["last"]);
    rig.run(1_000);
    let full: Vec<Epoch> =
        rig.ids.values().filter(|row| !row.prints.is_empty()).map(|row| row.epoch).collect();
    assert_eq!(full, [Epoch(rig.owner.epoch.0 - 1), rig.owner.epoch]);
}

#[test]
fn an_event_is_said_to_be_the_first_of_its_id_only_when_that_is_certain() {
    let mut rig = Rig::with(crate::engine::Options::new(crate::model::Shard(0), 1, "rig"));
    rig.leads = Some(5);
    rig.assign(1);
    let firsts = |rig: &Rig| rig.events.iter().map(|row| row.is_first).collect::<Vec<_>>();
    looked_up(&mut rig, &["a", "b", "a"]);
    assert_eq!(firsts(&rig), [true, true, false]);
    // What an owner before may have decided is not, whether it is found or not; what is looked up in vain then is.
    rig.run(1_000);
    rig.hold_progress = true;
    looked_up(&mut rig, &["c"]);
    rig.events.clear();
    (rig.hold_progress, rig.ids_max) = (false, 0);
    rig.take_over(2);
    looked_up(&mut rig, &["d", "c"]);
    assert_eq!(firsts(&rig), [false, true, false]);
    rig.leads = Some(6);
    looked_up(&mut rig, &["e"]);
    assert_eq!(firsts(&rig), [false, true, false, false]);
}

/// An owner with so many chunks that do not grow any more, all on record.
fn with_chunks(chunks: usize) -> (Rig, Vec<String>) {
    let mut rig = Rig::running();
    let count = chunks * limits::IDS_OF_CHUNK as usize + 1;
    let ids: Vec<String> = (0..count).map(|n| format!("t-{n}")).collect();
    assert_eq!(looked_up(&mut rig, &ids.iter().map(String::as_str).collect::<Vec<_>>()), 0);
    rig.run(1_000);
    (rig, ids)
}

/// Rows, by chunk: how many ids each holds.
fn held(rig: &Rig) -> Vec<(u64, usize)> {
    let print_count = |prints: &[u32]| prints.iter().filter(|print| **print != 0).count();
    rig.ids.values().map(|row| (row.chunk, print_count(&row.prints))).collect()
}

#[test]
fn an_owner_that_grows_large_while_a_closed_chunk_is_written_takes_nothing_from_it() {
    let (mut rig, ids) = with_chunks(2);
    forget(&mut rig, &ids[3]);
    // Its row is on its way, and does not arrive.
    rig.fail_progress = Some(0);
    looked_up(&mut rig, &["x"]);
    rig.run(150);
    rig.give(Input::Budget(crate::engine::Budget { ids: 5, ..crate::engine::Budget::default() }));
    looked_up(&mut rig, &["y"]);
    rig.run(1_000);
    let chunk = limits::IDS_OF_CHUNK as usize;
    assert_eq!(held(&rig), [(0, chunk), (1, chunk), (2, 3)]);
    rig.take_over(2);
    assert_eq!(looked_up(&mut rig, &[ids[0].as_str(), &ids[chunk], "x", "y", "z"]), 4);
}

#[test]
fn what_is_forgotten_twice_goes_once_and_all_of_it_goes() {
    let (mut rig, ids) = with_chunks(1);
    let named: Vec<(TaskKey, Version)> = ids
        .iter()
        .enumerate()
        .take(200)
        .map(|(offset, id)| (key(&rig, id), Version::new(rig.engine.generation(), offset as u64)))
        .collect();
    let twice: Vec<_> = named.iter().chain(&named).cloned().collect();
    rig.give(Input::Forgotten(twice.clone()));
    rig.give(Input::Forgotten(twice));
    rig.events.retain(|row| !named.iter().any(|(key, _)| *key == row.key));
    let known: Vec<&str> = ids[200..].iter().map(String::as_str).collect();
    assert_eq!(looked_up(&mut rig, &known), known.len());
    let gone: Vec<&str> = ids[..200].iter().map(String::as_str).collect();
    assert_eq!(looked_up(&mut rig, &gone), 0);
}

#[test]
fn a_chunk_that_the_next_owner_forgets_leaves_no_row() {
    let (mut rig, ids) = with_chunks(2);
    rig.take_over(2);
    let chunk = limits::IDS_OF_CHUNK as usize;
    ids[..chunk].iter().for_each(|id| forget(&mut rig, id));
    forget(&mut rig, &ids[chunk]);
    for id in ["x", "y"] {
        looked_up(&mut rig, &[id]);
        rig.run(1_000);
    }
    assert_eq!(held(&rig), [(1, chunk - 1), (2, 3)]);
    rig.take_over(3);
    assert_eq!(looked_up(&mut rig, &[&ids[0], &ids[chunk], &ids[chunk + 1]]), 1);
}

#[test]
fn rows_of_several_epochs_count_once() {
    let (mut rig, ids) = with_chunks(1);
    let chunk = limits::IDS_OF_CHUNK as usize;
    // What an owner that is lost wrote last.
    for epoch in [Epoch(7), Epoch(8)] {
        let row = rig.ids.values().next().expect("there is one").clone();
        rig.ids.insert((0, epoch), crate::model::IdsRow { epoch, ..row });
    }
    rig.ids_max = chunk + 2;
    rig.take_over(2);
    assert_eq!(looked_up(&mut rig, &["x"]), 0, "they fit");
    assert_eq!(looked_up(&mut rig, &[ids[0].as_str(), "y"]), 2, "and now they do not");
}

#[test]
fn what_a_newer_leader_has_is_looked_up_until_it_has_told_where_the_log_ends() {
    let mut rig = Rig::with(crate::engine::Options::new(crate::model::Shard(0), 1, "rig"));
    rig.leads = Some(5);
    rig.assign(1);
    assert_eq!(looked_up(&mut rig, &["a", "b"]), 0);
    rig.leads = Some(6);
    assert_eq!(looked_up(&mut rig, &["c", "d"]), 2);
    rig.run(31_000);
    assert_eq!(looked_up(&mut rig, &["e", "f", "c"]), 1);
}

#[test]
fn while_the_store_takes_no_ids_tasks_are_taken_and_no_progress_is_written() {
    let mut rig = Rig::running();
    rig.fail_ids = Some(Failure::Misconfigured("no right to event_ids".into()));
    looked_up(&mut rig, &["a", "b"]);
    rig.run(2_000);
    let next_offset = |rig: &Rig| rig.progress.as_ref().map(|progress| progress.next_offset);
    assert_eq!((next_offset(&rig), rig.decisions().len()), (Some(0), 2));
    assert_eq!(looked_up(&mut rig, &["c", "a"]), 1);
    rig.fail_ids = None;
    rig.run(2_000);
    assert_eq!(next_offset(&rig), Some(4));
}

/// A rig of which the log has a leader: then it is certain what no owner before decided.
fn led() -> Rig {
    let mut rig = Rig::with(crate::engine::Options::new(Shard(0), 1, "rig"));
    rig.leads = Some(5);
    rig.assign(1);
    rig
}

#[test]
fn who_is_asked_for_an_id_is_told_which_versions_may_be_packed() {
    let mut rig = led();
    looked_up(&mut rig, &["a", "b", "a"]);
    let [a, b, c] = ["a", "b", "c"].map(|id| key(&rig, id));
    let versions = |of: [&[u64]; 3]| Some(of.map(|of| of.iter().copied().map(Version).collect()).to_vec());
    let keys = [a.clone(), b, c];
    assert_eq!(
        rig.engine.listed_versions(&keys),
        versions([&[0], &[1], &[]]),
        "and the second event of a is a row"
    );
    rig.give(Input::Budget(crate::engine::Budget { ids: 0, ..crate::engine::Budget::default() }));
    assert_eq!(rig.engine.listed_versions(&keys), versions([&[0], &[1], &[]]), "it is what is kept");
    rig.give(Input::Forgotten(vec![(a, Version(0))]));
    assert_eq!(rig.engine.listed_versions(&keys), versions([&[], &[1], &[]]));
    looked_up(&mut rig, &["c"]);
    assert_eq!(
        rig.engine.listed_versions(&keys),
        versions([&[], &[1], &[]]),
        "there is no room, so it is a row"
    );
}

#[test]
fn an_event_may_be_packed_where_all_ids_are_listed_and_it_makes_a_task() {
    let mut rig = led();
    looked_up(&mut rig, &["a"]);
    rig.append("q", "x", crate::model::Verb::Cancel);
    rig.run(1_000);
    // A build that did not list them had the shard.
    rig.progress.as_mut().expect("one is there").ids_from = None;
    rig.take_over(2);
    looked_up(&mut rig, &["b"]);
    assert_eq!(rig.events.iter().map(|row| row.is_listed).collect::<Vec<_>>(), [true, false, false]);
}

#[test]
fn after_its_log_began_anew_a_shard_finds_what_it_had() {
    let mut rig = led();
    looked_up(&mut rig, &["a", "b"]);
    rig.run(1_000);
    rig.hold_progress = true;
    looked_up(&mut rig, &["c"]);
    super::renewing::begin_anew(&mut rig);
    rig.hold_progress = false;
    assert_eq!(looked_up(&mut rig, &["a", "b", "c", "d"]), 4);
    let scheduled = |rig: &Rig| {
        let scheduled = rig.events.iter().filter(|row| row.decision == Decision::Scheduled);
        scheduled.map(|row| (row.version.generation().0, row.key.id.as_str().to_owned())).collect::<Vec<_>>()
    };
    let wanted_of = [(0, "a"), (0, "b"), (0, "c"), (1, "d")].map(|(n, id)| (n, id.to_owned()));
    assert_eq!(scheduled(&rig), wanted_of);
    for owner in 7..9 {
        let progress = rig.progress.clone().expect("one is there");
        assert_eq!(
            (progress.ends, progress.ids_are_all),
            (vec![Version(2)], false),
            "nobody lists what came after it"
        );
        rig.run(1_000);
        rig.take_over(owner);
        assert_eq!(looked_up(&mut rig, &["d", "b", "c"]), 3);
    }
    assert_eq!(scheduled(&rig).len(), 4);
    let chunks = |rig: &Rig| rig.ids.keys().map(|(chunk, _)| *chunk).collect::<Vec<_>>();
    assert!(chunks(&rig).contains(&0));
    ["a", "b", "c"].iter().for_each(|id| forget(&mut rig, id));
    for id in ["x", "y"] {
        looked_up(&mut rig, &[id]);
        rig.run(1_000);
    }
    assert!(!chunks(&rig).contains(&0), "nothing of it is packed any more: {:?}", rig.ids);
}

#[derive(Clone, Debug)]
enum Step {
    Schedule(u8),
    /// So many with ids of their own.
    Others(usize),
    Forget(u8),
    Pass(u64),
    /// Progress rows are not written any more.
    HoldProgress,
    FailProgress,
    TakeOver(usize),
    /// So many ids may be known from now on.
    Budget(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..40u8).prop_map(Step::Schedule),
        2 => (0..40u8).prop_map(Step::Forget),
        2 => (1..400usize).prop_map(Step::Others),
        2 => (1..1_000u64).prop_map(Step::Pass),
        1 => Just(Step::HoldProgress),
        1 => Just(Step::FailProgress),
        1 => prop_oneof![Just(100_000), 0..3_000usize].prop_map(Step::TakeOver),
        1 => prop_oneof![Just(100_000), 0..3_000usize].prop_map(Step::Budget),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Tasks are due in hours, so an id is scheduled once until its events are forgotten.
    #[test]
    fn no_id_with_events_is_taken_for_new(steps in proptest::collection::vec(step(), 1..120)) {
        let mut rig = Rig::running();
        let (mut owner, mut others) = (1, 0);
        for step in steps {
            match step {
                Step::Schedule(id) => rig.schedule("q", &format!("t-{id}"), 36_000_000),
                Step::Others(count) => {
                    let verb = rig.due_in(36_000_000, content());
                    let event = |n| super::rig::event("q", &format!("o-{n}"), verb.clone(), n as u128);
                    rig.append_all((others..others + count).map(event));
                    others += count;
                }
                // Retention forgets what a progress row says is applied.
                Step::Forget(id) => {
                    let applied = rig.progress.as_ref().map_or(0, |progress| progress.next_offset);
                    if rig.events.first().is_some_and(|_| !rig.hold_progress)
                        && applied == rig.log.len() as u64
                    {
                        forget(&mut rig, &format!("t-{id}"));
                    }
                }
                Step::Pass(ms) => rig.run(ms),
                Step::HoldProgress => rig.hold_progress = true,
                Step::FailProgress => rig.fail_progress = Some(1),
                Step::Budget(ids) => {
                    rig.give(Input::Budget(crate::engine::Budget { ids, ..crate::engine::Budget::default() }));
                }
                Step::TakeOver(ids_max) => {
                    owner += 1;
                    (rig.hold_progress, rig.fail_progress, rig.ids_max) = (false, None, ids_max);
                    rig.take_over(owner);
                }
            }
        }
        rig.run(1_000);
        let mut accepted: BTreeMap<TaskKey, Version> = BTreeMap::new();
        for row in rig.events.iter().filter(|row| row.decision == Decision::Scheduled) {
            let first = *accepted.entry(row.key.clone()).or_insert(row.version);
            prop_assert_eq!(first, row.version, "{:?} was accepted twice", row.key);
        }
    }
}
