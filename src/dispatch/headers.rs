//! What a handler outside this process is told of a task: the `Dueline-*` headers, the same over HTTP and on a topic.
//!
//! Names are percent-encoded as a URL path segment is, so that any name fits into a header.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::Call;
use crate::wire::time::format_time;

/// Everything but the unreserved characters of RFC 3986.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A name, percent-encoded as in a URL path segment.
pub fn encode_name(name: &str) -> String {
    utf8_percent_encode(name, ENCODED).to_string()
}

/// The headers of a call, in a fixed order; every value is printable ASCII.
pub fn of_call(call: &Call) -> Vec<(&'static str, String)> {
    let id = encode_name(&call.call_id);
    let mut headers = vec![
        ("webhook-id", id.clone()),
        ("Idempotency-Key", id),
        ("Dueline-Queue", encode_name(call.key.queue.as_str())),
        ("Dueline-Task-Id", encode_name(call.key.id.as_str())),
        ("Dueline-Attempt", call.attempt.to_string()),
        ("Dueline-Max-Attempts", call.max_attempts.to_string()),
        ("Dueline-Due-At", format_time(call.due_at)),
        ("Dueline-Deadline", format_time(call.deadline)),
        ("Dueline-Shard", call.shard.0.to_string()),
        ("Dueline-Fencing-Token", call.token.to_string()),
    ];
    if let Some(outcome) = call.previous_outcome {
        headers.push(("Dueline-Previous-Outcome", outcome.word().to_owned()));
    }
    if let Some(traceparent) = call.traceparent.as_deref().filter(|text| is_visible_ascii(text)) {
        headers.push(("traceparent", traceparent.to_owned()));
    }
    headers
}

fn is_visible_ascii(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::{encode_name, of_call};
    use crate::dispatch::tests::call;
    use crate::model::Outcome;

    #[test]
    fn names_are_percent_encoded() {
        assert_eq!(encode_name("incident-42_a.b~c"), "incident-42_a.b~c");
        assert_eq!(encode_name("a/b c%é"), "a%2Fb%20c%25%C3%A9");
    }

    #[test]
    fn headers_hold_nothing_but_printable_ascii() {
        let mut call = call();
        call.call_id = "é\r\nx: y".into();
        call.traceparent = Some("bad\r\nx: y".into());
        call.previous_outcome = Some(Outcome::Interrupted);
        let headers = of_call(&call);
        assert!(headers.iter().all(|(_, value)| value.bytes().all(|b| b.is_ascii_graphic())), "{headers:?}");
        assert!(headers.contains(&("Dueline-Previous-Outcome", "interrupted".to_owned())));
        assert!(!headers.iter().any(|(name, _)| *name == "traceparent"));
    }
}
