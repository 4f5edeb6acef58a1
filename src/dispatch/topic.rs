//! Handlers that are Kafka topics: the payload is produced there, keyed by the queue, and the task has succeeded when
//! the record is durable. A call that is broken off takes back what was not sent yet, of other calls too: those are made
//! again. At its deadline as in a lapse: the next attempt's record must not come before the one that was given up.
//!
//! The topic is never made here, and never one of Dueline's own.

use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;

use super::{Call, Dispatch, Ending, headers, one_line};
use crate::log::{self, Header, Message, Producer, Target};
use crate::model::Outcome;

/// Longest topic name, as Kafka has it.
pub const TOPIC_BYTES_MAX: usize = 249;

/// How one topic handler is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The topic's name.
    pub topic: String,
}

/// Whether Kafka takes the text as a topic name.
pub fn is_topic_name(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=TOPIC_BYTES_MAX).contains(&text.len()) && text.bytes().all(allowed) && !matches!(text, "." | "..")
}

/// Produces to a topic.
pub struct ToTopic {
    producer: Arc<dyn Producer>,
    options: Options,
}

impl ToTopic {
    /// A dispatcher over a producer.
    pub fn new(producer: Arc<dyn Producer>, options: Options) -> ToTopic {
        ToTopic { producer, options }
    }
}

impl Dispatch for ToTopic {
    fn call(&self, call: Call) -> BoxFuture<'static, Ending> {
        let sending = Sending { producer: self.producer.clone(), is_answered: false };
        let answer = self.producer.produce(message(&self.options.topic, &call));
        Box::pin(async move {
            let answer = answer.await;
            sending.end();
            match answer {
                Ok(_) => Ending::of(Outcome::Succeeded),
                Err(error) => ending(&error),
            }
        })
    }
}

/// A log that is away is no failure of the task.
fn ending(error: &log::Error) -> Ending {
    let outcome = match error {
        log::Error::Refused(_) | log::Error::TooLarge(_) => Outcome::Fatal,
        log::Error::Unavailable(_)
        | log::Error::Unknown(_)
        | log::Error::NotAssigned(_)
        | log::Error::OffsetGone { .. }
        | log::Error::Fatal(_) => Outcome::Aborted,
    };
    let lost = matches!(error, log::Error::Unknown(_));
    Ending { lost, ..Ending::failed(outcome, one_line(&error.to_string())) }
}

/// A record on its way. Broken off, it is not to be sent any more.
struct Sending {
    producer: Arc<dyn Producer>,
    is_answered: bool,
}

impl Sending {
    fn end(mut self) {
        self.is_answered = true;
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        if !self.is_answered {
            self.producer.purge();
        }
    }
}

fn message(topic: &str, call: &Call) -> Message {
    let text = |(name, value): (&'static str, String)| -> Header { (name.into(), Some(Bytes::from(value))) };
    let content_type: Header = ("content-type".into(), Some(Bytes::from_static(b"application/json")));
    Message {
        target: Target::Named(topic.to_owned()),
        partition: None,
        key: Some(Bytes::copy_from_slice(call.key.queue.as_str().as_bytes())),
        headers: [content_type].into_iter().chain(headers::of_call(call).into_iter().map(text)).collect(),
        value: Some(Bytes::from_owner(call.payload.clone())),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Mutex};

    use futures::future::BoxFuture;

    use super::{Options, ToTopic, is_topic_name};
    use crate::dispatch::Dispatch;
    use crate::dispatch::tests::call;
    use crate::log::{Answer, Error, Message, Producer, Target, Written};
    use crate::model::Outcome;

    struct Topics {
        answer: Result<Written, Error>,
        sent: Mutex<Vec<Message>>,
        purged: AtomicUsize,
    }

    impl Producer for Topics {
        fn produce(&self, message: Message) -> Answer<Written> {
            self.sent.lock().expect("not poisoned").push(message);
            let answer = self.answer.clone();
            Box::pin(async move { answer })
        }

        fn purge(&self) {
            self.purged.fetch_add(1, Ordering::Relaxed);
        }

        fn flush(&self, _wait_ms: u64) -> BoxFuture<'static, ()> {
            Box::pin(async {})
        }
    }

    fn topics(answer: Result<Written, Error>) -> Arc<Topics> {
        Arc::new(Topics { answer, sent: Mutex::new(Vec::new()), purged: AtomicUsize::new(0) })
    }

    #[tokio::test]
    async fn the_record_is_keyed_by_the_queue_and_carries_the_headers() {
        let topics = topics(Ok(Written { partition: 0, offset: Some(7), appended: None }));
        let ending = ToTopic::new(topics.clone(), Options { topic: "orders".into() }).call(call()).await;
        assert_eq!(ending.outcome, Outcome::Succeeded);
        let sent = topics.sent.lock().expect("not poisoned").pop().expect("a record");
        assert_eq!(sent.target, Target::Named("orders".into()));
        assert_eq!((sent.partition, sent.key.as_deref()), (None, Some(b"incident 42".as_slice())));
        assert_eq!(sent.value.as_deref(), Some(br#"{"user":7}"#.as_slice()));
        let header = |name: &str| {
            let found = sent.headers.iter().find(|(known, _)| known == name);
            found
                .and_then(|(_, value)| value.clone())
                .map(|value| String::from_utf8_lossy(&value).into_owned())
        };
        assert_eq!(header("Dueline-Queue").as_deref(), Some("incident%2042"));
        assert_eq!(header("Dueline-Fencing-Token").as_deref(), Some("0.3.41"));
        assert_eq!(header("content-type").as_deref(), Some("application/json"));
    }

    #[tokio::test]
    async fn a_refused_record_is_fatal_and_a_log_that_is_away_no_failure() {
        let cases = [
            (Error::Refused("too large".into()), Outcome::Fatal, false),
            (Error::Unavailable("timed out".into()), Outcome::Aborted, false),
            (Error::Unknown("timed out".into()), Outcome::Aborted, true),
            (Error::Fatal("client is gone".into()), Outcome::Aborted, false),
        ];
        for (error, outcome, lost) in cases {
            let topics = topics(Err(error.clone()));
            let ending = ToTopic::new(topics.clone(), Options { topic: "orders".into() }).call(call()).await;
            assert_eq!((ending.outcome, ending.lost, ending.error), (outcome, lost, Some(error.to_string())));
            assert_eq!(topics.purged.load(Ordering::Relaxed), 0);
        }
    }

    #[test]
    fn a_call_that_is_broken_off_takes_back_what_was_not_sent() {
        let topics = topics(Err(Error::Unavailable("away".into())));
        drop(ToTopic::new(topics.clone(), Options { topic: "orders".into() }).call(call()));
        assert_eq!(topics.purged.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn topic_names_are_as_kafka_takes_them() {
        assert!(is_topic_name("orders.v1_a-b") && is_topic_name(&"x".repeat(249)));
        for text in ["", ".", "..", "a b", "a/b", "é", &"x".repeat(250)] {
            assert!(!is_topic_name(text), "{text}");
        }
    }
}
