//! Facts about the ledgers.

use super::*;

fn ask(sent: &Sent, id: &str, asks: Asks) -> usize {
    sent.send("q", id, &asks, || Ok::<_, ()>(())).expect("it is handed over").0
}

fn schedule() -> Asks {
    Asks::Schedule { due: None, payload: "{}".to_owned(), may_lapse: false }
}

fn ack(offset: u64) -> Ack {
    Ack { shard: 3, offset: Some(offset), appended: Some(500) }
}

fn call(id: &str, token: [u64; 3]) -> Called {
    Called {
        shard: 3,
        version: None,
        decided: None,
        sent: None,
        arrived: 0,
        ended: None,
        queue: "q".to_owned(),
        id: id.to_owned(),
        due: 0,
        ready: None,
        deadline: i64::MAX,
        token,
        attempt: 1,
        max_attempts: None,
        previous: None,
        payload: "{}".to_owned(),
        refused: false,
        broken_off: false,
        parks: false,
    }
}

#[test]
fn only_what_was_acknowledged_counts_as_asked() {
    let sent = Sent::default();
    let (first, second, third) =
        (ask(&sent, "a", schedule()), ask(&sent, "b", schedule()), ask(&sent, "c", schedule()));
    assert!(sent.send("q", "d", &schedule(), || Err::<(), _>("full")).is_err());
    sent.acked(second, ack(8));
    sent.failed(third, "timed out".to_owned());
    assert_eq!((sent.under_way(3), sent.under_way(0), sent.count()), (1, 0, 3));
    assert_eq!(sent.failure().as_deref(), Some("timed out"));
    sent.acked(first, ack(9));
    let asked = sent.asked();
    assert_eq!(asked.iter().filter_map(|line| line.id.as_deref()).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!((asked[0].appended, asked[0].shard, asked[0].offset), (500, Some(3), Some(9)));
    assert_eq!(sent.last_offsets(), [(3, 9)].into());
}

#[test]
fn what_lies_in_a_topic_that_was_made_anew_comes_after_all_before() {
    let sent = Sent::default();
    let first = ask(&sent, "a", schedule());
    sent.acked(first, ack(9));
    sent.begin_generation();
    assert_eq!(sent.last_offsets(), [].into(), "nothing is in it yet");
    let second = ask(&sent, "b", schedule());
    sent.acked(second, ack(2));
    assert_eq!(sent.last_offsets(), [(3, 2)].into());
    let asked = sent.asked();
    assert!(asked[0].offset < asked[1].offset, "{asked:?}");
}

#[test]
fn what_is_cancelled_last_need_not_run() {
    let sent = Sent::default();
    let all = [("a", schedule()), ("b", schedule()), ("b", Asks::Reschedule { due: 5 }), ("a", Asks::Cancel)];
    for (offset, (id, asks)) in all.into_iter().enumerate() {
        let number = ask(&sent, id, asks);
        sent.acked(number, ack(offset as u64));
    }
    assert_eq!(sent.wanted(), [("q".to_owned(), "b".to_owned())].into());
}

#[test]
fn a_lower_token_is_refused_and_an_equal_or_higher_one_taken() {
    let calls = Calls::default();
    let taken = |token| matches!(calls.arrived(call("a", token), "i-1"), Taken::Open(_));
    assert!(taken([0, 2, 1]) && taken([0, 2, 1]) && taken([0, 2, 7]));
    assert!(!taken([0, 1, 9]) && !taken([0, 2, 6]));
    assert!(taken([0, 3, 1]));
    assert_eq!(calls.all().iter().filter(|call| call.called.refused).count(), 2);
}

#[test]
fn a_call_that_nobody_ended_was_broken_off_and_one_that_succeeded_is_done() {
    let calls = Calls::default();
    let Taken::Open(mut open) = calls.arrived(call("a", [0, 1, 1]), "i-1") else { panic!("taken") };
    open.end(End::Succeeded);
    drop(open);
    drop(calls.arrived(call("b", [0, 1, 2]), "i-2"));
    let ends: Vec<_> = calls.all().iter().filter_map(|call| Some(call.called.ended?.1)).collect();
    assert_eq!(ends, [End::Succeeded, End::BrokenOff]);
    let key = |id: &str| ("q".to_owned(), id.to_owned());
    assert_eq!(calls.missing(&[key("a")].into()), 0);
    assert_eq!(calls.missing(&[key("a"), key("b"), key("c")].into()), 2);
    assert_eq!(calls.all()[1].by, "i-2");
}
