//! Logs that lost records: what a person accepts, and what not.

use std::sync::Arc;

use super::rig::Rig;
use crate::engine::{CallEnd, Input};
use crate::model::{Decision, Epoch, Generation, Outcome, Reset, Shard, Version};

/// The reset of what the shard says that it lost.
fn loss(rig: &Rig) -> Reset {
    let view = rig.engine.shard_view(rig.now().boot);
    let loss = view.stopped.expect("it is stopped");
    Reset {
        shard: Shard(0),
        generation: view.generation,
        next_offset: view.next_offset,
        first: loss.first,
        topic_id: loss.topic_id.clone(),
    }
}

fn accept(rig: &mut Rig, reset: &Reset) {
    rig.give(Input::Reset(Arc::new(reset.clone())));
}

fn phase(rig: &Rig) -> &'static str {
    rig.engine.shard_view(rig.now().boot).phase
}

/// Phase, generation, and the next offset.
fn state(rig: &Rig) -> (&'static str, Generation, u64) {
    (phase(rig), rig.engine.generation(), rig.engine.next_offset())
}

/// The loss of records is seen.
fn until_stopped(rig: &mut Rig) {
    rig.stopped = false;
    rig.run(31_000);
    assert!(rig.stopped);
    assert_eq!(phase(rig), "stopped");
}

/// The topic is made anew, and that is seen.
fn lose_log(rig: &mut Rig, topic: &'static str) {
    rig.log.clear();
    rig.topic = topic;
    until_stopped(rig);
}

/// The topic is made anew, and what was lost is accepted.
pub(super) fn begin_anew(rig: &mut Rig) {
    lose_log(rig, "u");
    let loss = loss(rig);
    accept(rig, &loss);
    rig.run(100);
    assert_eq!(state(rig), ("running", Generation(1), 0));
}

/// A task that ran at once.
fn ran(rig: &mut Rig, id: &str) {
    rig.schedule("q", id, 0);
    assert_eq!(rig.called(), [id]);
    rig.end_call(CallEnd::of(Outcome::Succeeded));
}

/// One task ran, one is due in a while; then the topic was made anew.
fn stopped() -> Rig {
    let mut rig = Rig::running();
    ran(&mut rig, "ran");
    rig.schedule("q", "later", 50_000);
    rig.run(1_000);
    lose_log(&mut rig, "u");
    rig
}

#[test]
fn a_stopped_shard_says_why_and_starts_nothing() {
    let mut rig = stopped();
    let loss = rig.engine.shard_view(rig.now().boot).stopped.expect("a reason");
    assert_eq!((&*loss.why, loss.first), ("the topic was created anew: t became u", 0));
    rig.run(60_000);
    assert!(rig.calls.is_empty());
}

#[test]
fn what_was_taken_in_stays_and_what_comes_then_is_of_the_next_generation() {
    let mut rig = stopped();
    let loss = loss(&rig);
    assert_eq!((loss.generation, loss.next_offset), (Generation(0), 2));
    accept(&mut rig, &loss);
    rig.run(100);
    assert_eq!(state(&rig), ("running", Generation(1), 0));
    assert_eq!(rig.engine.shard_view(rig.now().boot).stopped, None);
    // Of one offset there are two records now, and both count.
    rig.schedule("q", "new", 0);
    assert_eq!(rig.called(), ["new"]);
    let token = rig.end_call(CallEnd::of(Outcome::Succeeded)).token;
    assert_eq!((token.generation, token.epoch), (Generation(1), Epoch(2)));
    rig.run(20_000);
    assert_eq!(rig.called(), ["later"], "and what ran before does not run again");
    let progress = rig.progress.as_ref().expect("progress");
    assert_eq!((progress.generation, progress.next_offset, &*progress.topic_id), (Generation(1), 1, "u"));
}

#[test]
fn an_accepted_loss_is_not_the_next_one() {
    let mut rig = stopped();
    let first = loss(&rig);
    accept(&mut rig, &first);
    rig.run(100);
    ran(&mut rig, "new");
    rig.run(1_000);
    lose_log(&mut rig, "v");
    accept(&mut rig, &first);
    rig.run(1_000);
    assert_eq!(phase(&rig), "stopped", "told again, as it is every second");
    let second = loss(&rig);
    accept(&mut rig, &second);
    rig.run(100);
    assert_eq!((phase(&rig), rig.engine.generation()), ("running", Generation(2)));
}

#[test]
fn a_loss_is_accepted_for_the_topic_that_was_seen() {
    let mut rig = stopped();
    let loss = loss(&rig);
    // Made anew once more, before the owner reads of it.
    rig.topic = "w";
    accept(&mut rig, &loss);
    rig.run(1_000);
    assert_eq!((phase(&rig), rig.engine.generation()), ("stopped", Generation(0)));
    let epoch = rig.owner.epoch;
    for _ in 0..10 {
        accept(&mut rig, &loss);
        rig.run(500);
    }
    assert_eq!((rig.owner.epoch, phase(&rig)), (epoch, "stopped"), "it is not taken over again and again");
}

#[test]
fn a_topic_that_is_back_is_gone_on_with_as_it_was() {
    let mut rig = Rig::running();
    ran(&mut rig, "ran");
    rig.run(1_000);
    let log = rig.log.clone();
    lose_log(&mut rig, "u");
    let loss = loss(&rig);
    (rig.log, rig.topic) = (log, "t");
    accept(&mut rig, &loss);
    rig.run(100);
    assert_eq!(state(&rig), ("running", Generation(0), 1));
    assert!(rig.calls.is_empty(), "nothing is taken in twice");
}

#[test]
fn a_log_that_lost_its_end_is_gone_on_with_behind_what_is_left_of_it() {
    for grows in [0, 5] {
        let mut rig = Rig::running();
        ["a", "b", "c"].into_iter().for_each(|id| ran(&mut rig, id));
        rig.run(1_000);
        rig.log.truncate(2);
        until_stopped(&mut rig);
        let loss = loss(&rig);
        assert_eq!((loss.next_offset, loss.first), (3, 2));
        // Producers do not wait for a person: the log may be longer than it ever was by then.
        (0..grows).for_each(|n| rig.schedule(&format!("q{n}"), "new", 0));
        accept(&mut rig, &loss);
        rig.run(100);
        assert_eq!(state(&rig), ("running", Generation(1), 2 + grows));
        assert_eq!(rig.calls.len(), grows as usize, "all that is new, and nothing else");
        let first =
            rig.events.iter().map(|row| row.version).filter(|version| version.generation() > Generation(0));
        assert_eq!(first.min(), (grows > 0).then(|| Version::new(Generation(1), 2)));
    }
}

#[test]
fn a_log_whose_beginning_went_too_far_is_gone_on_with_where_it_begins() {
    let mut rig = Rig::running();
    ran(&mut rig, "a");
    rig.fetch_to = 1;
    ["b", "c", "d"].into_iter().for_each(|id| rig.schedule("q", id, 0));
    rig.first = 3;
    until_stopped(&mut rig);
    let loss = loss(&rig);
    assert_eq!((loss.next_offset, loss.first), (1, 3));
    rig.fetch_to = usize::MAX;
    accept(&mut rig, &loss);
    rig.run(100);
    assert_eq!((state(&rig), rig.called()), (("running", Generation(1), 4), vec!["d"]));
}

#[test]
fn what_was_fetched_is_applied_before_the_shard_stops() {
    let mut rig = Rig::running();
    rig.held_writes = Some(Vec::new());
    rig.schedule("q", "a", 600_000);
    rig.log.clear();
    rig.topic = "u";
    rig.run(31_000);
    assert!(!rig.stopped, "rows of the event may be on record: it is decided to the end");
    rig.release_writes();
    rig.run(100);
    assert_eq!((phase(&rig), rig.decisions()), ("stopped", vec![Decision::Scheduled]));
    let loss = loss(&rig);
    assert_eq!(loss.next_offset, 1);
    accept(&mut rig, &loss);
    rig.run(100);
    assert_eq!(state(&rig), ("running", Generation(1), 0));
}

#[test]
fn the_next_owner_goes_on_with_what_was_accepted_whenever_it_hears_of_it() {
    for hears_first in [true, false] {
        let mut rig = stopped();
        let loss = loss(&rig);
        rig.stopped = false;
        rig.take_over_for(2, 100);
        if hears_first {
            accept(&mut rig, &loss);
        }
        rig.run(7_000);
        assert_eq!(rig.stopped, !hears_first);
        accept(&mut rig, &loss);
        rig.run(100);
        assert_eq!((phase(&rig), rig.engine.generation()), ("running", Generation(1)));
    }
}

#[test]
fn a_call_that_is_under_way_holds_its_queue_until_it_ends() {
    let mut rig = Rig::running();
    rig.schedule("q", "a", 28_000);
    rig.schedule("q", "b", 28_500);
    rig.run(1_000);
    lose_log(&mut rig, "u");
    assert_eq!(rig.called(), ["a"], "three seconds ago");
    let loss = loss(&rig);
    accept(&mut rig, &loss);
    rig.run(2_000);
    assert_eq!((phase(&rig), rig.called()), ("running", vec!["a"]));
    rig.end_call(CallEnd::of(Outcome::Succeeded));
    rig.run(3_000);
    assert_eq!(rig.called(), ["b"]);
}
