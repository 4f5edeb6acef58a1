//! Facts about how answers are taken.

use super::*;

const WITHIN: Duration = Duration::from_secs(15);
const STORE: &str = r#"{"type":"about:blank","title":"Service Unavailable","status":503,"code":"store_unavailable",
    "detail":"the store is not answering: not enough nodes are alive","retry_after":1}"#;
const LOG: &str = r#"{"status":503,"code":"log_unavailable","retry_after":1,
    "detail":"the log is not answering: timed out; the event may have been written: send the same again"}"#;

fn after_5_s(status: u16, body: &str) -> Verdict {
    without(Away::Quorum, status, body)
}

fn without(away: Away, status: u16, body: &str) -> Verdict {
    verdict(&Ok((status, body.to_owned())), away, Duration::from_secs(5), WITHIN)
}

fn is_unclear(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Unclear(_))
}

#[test]
fn a_refusal_is_clear_when_it_says_what_is_away_and_when_to_come_again() {
    assert_eq!(without(Away::Quorum, 503, STORE), Verdict::Refused);
    assert_eq!(without(Away::Brokers, 503, LOG), Verdict::Refused);
    let wrong = [without(Away::Quorum, 503, LOG), without(Away::Brokers, 503, STORE)];
    assert!(wrong.iter().all(is_unclear), "what is there is not what is away");
    let without = |left_out: &str| after_5_s(503, &STORE.replace(left_out, "x"));
    for left_out in ["store_unavailable", "the store", "detail", "code", "retry_after"] {
        assert!(is_unclear(&without(left_out)), "without {left_out}");
    }
    assert!(is_unclear(&after_5_s(503, &STORE.replace("not enough", "panicked at"))));
    for status in [404, 500, 504] {
        assert!(is_unclear(&after_5_s(status, STORE)), "{status}");
    }
}

#[test]
fn what_is_done_is_answered_with_an_object() {
    assert_eq!(after_5_s(202, r#"{"queue":"q"}"#), Verdict::Done);
    for body in ["", "ok", "[]"] {
        assert!(is_unclear(&after_5_s(200, body)) && is_unclear(&after_5_s(503, body)), "{body:?}");
    }
}

#[test]
fn what_comes_late_or_breaks_off_is_no_answer() {
    let said = Ok((503, STORE.to_owned()));
    let before = WITHIN - Duration::from_millis(1);
    let verdict = |said: &_, took| verdict(said, Away::Quorum, took, WITHIN);
    assert_eq!(verdict(&said, before), Verdict::Refused);
    assert_eq!(verdict(&said, WITHIN), Verdict::Unclear("no answer within 15s".to_owned()));
    let broken = verdict(&Err("connection reset".to_owned()), before);
    assert_eq!(broken, Verdict::Unclear("no answer: connection reset".to_owned()));
}

#[test]
fn answers_are_counted_by_how_they_were_taken() {
    let one = |verdict| Answered {
        instance: "i-1".to_owned(),
        question: Question { kind: Kind::Show, queue: "q".to_owned(), id: "t".to_owned() },
        verdict,
        took: WITHIN,
    };
    let all = [Verdict::Done, Verdict::Refused, Verdict::Refused, Verdict::Unclear(String::new())].map(one);
    assert_eq!(counted(&all).to_string(), "4 asked, 1 done, 2 refused with a clear error, 1 neither");
}
