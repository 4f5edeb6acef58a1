//! Why a client does not reach its brokers, and what to do about it: librdkafka says the first in its log alone.

use std::sync::{Mutex, PoisonError};

/// What to do, by a part of what librdkafka says; the first that fits.
const TODO: [(&str, &str); 6] = [
    (
        "certificate verify failed",
        "compare its authority with ssl.ca.location, its names with kafka.brokers, and its dates: openssl s_client \
         -connect HOST:PORT -showcerts",
    ),
    ("security.protocol", "check kafka.brokers and security.protocol: the listener speaks another"),
    (
        "SSL handshake failed",
        "check kafka.brokers and security.protocol: TLS is spoken by one of the two alone",
    ),
    ("SASL", "check sasl.username, sasl.password and sasl.mechanism, and that the brokers have this user"),
    // Closed before the first answer.
    ("APIVERSION_QUERY", "check kafka.brokers and security.protocol: the listener speaks another"),
    ("", "check kafka.brokers, the network and security.protocol"),
];

/// What librdkafka says of any connection that is closed before the first answer.
const CLOSED_EARLY: [&str; 2] = ["security.protocol", "APIVERSION_QUERY"];

/// The last failure of a client's connections.
#[derive(Debug, Default)]
pub(super) struct Reason(Mutex<Option<String>>);

impl Reason {
    /// Looks at what librdkafka says of a connection. What says more than that there is nobody is not replaced by what does
    /// not: a broker that refused a client may be away a moment later.
    pub(super) fn note(&self, text: &str) {
        if text.ends_with("brokers are down") {
            return;
        }
        let text = text.split_once("]: ").map_or(text, |(_thread, said)| said);
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if last.as_ref().is_none_or(|last| is_telling(text) || !is_telling(last)) {
            *last = Some(text.to_owned());
        }
    }

    /// Whether a broker is there and does not let the client in, as far as is known. A connection that is closed before the
    /// first answer may be that, or a broker that starts.
    pub(super) fn is_refusal(&self) -> bool {
        let last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.as_ref()
            .is_some_and(|last| is_telling(last) && !CLOSED_EARLY.iter().any(|part| last.contains(part)))
    }

    /// A broker was reached: what was said before is no reason of what comes.
    pub(super) fn clear(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// What went wrong, with the reason where there is one, and what to do.
    pub(super) fn explain(&self, error: &str) -> String {
        match &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            None => error.to_owned(),
            Some(said) => {
                let todo = TODO.iter().find(|(part, _)| said.contains(part)).map_or("", |(_, todo)| todo);
                format!("{error}: {said}: {todo}")
            }
        }
    }
}

/// Whether a failure is that of TLS, of a password or of a protocol.
fn is_telling(text: &str) -> bool {
    TODO[..TODO.len() - 1].iter().any(|(part, _)| text.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_failure_that_tells_most_is_given_with_what_to_do() {
        let reason = Reason::default();
        assert_eq!(reason.explain("timed out"), "timed out");
        reason.note("[thrd:a]: a:9092/bootstrap: Connect to a failed: refused");
        assert!(reason.explain("timed out").starts_with("timed out: a:9092/bootstrap: Connect to a failed"));
        assert!(!reason.is_refusal());
        reason.note("[thrd:a]: a:9092: SASL authentication error: no such user");
        reason.note("[thrd:a]: 1/1 brokers are down");
        assert!(reason.is_refusal());
        let said = reason.explain("timed out");
        assert!(said.contains("no such user") && said.contains("sasl.username"), "{said}");
        reason.clear();
        reason.note(
            "[thrd:a]: a:9092: Disconnected: verify that security.protocol is correctly configured, broker might require \
             SASL authentication",
        );
        let said = reason.explain("timed out");
        assert!(said.contains("speaks another") && !said.contains("sasl.username"), "{said}");
        assert!(!reason.is_refusal());
    }
}
