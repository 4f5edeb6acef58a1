//! Errors of the client library as errors of the port: by what the caller can do.

use rdkafka::error::KafkaError;
use rdkafka::types::RDKafkaErrorCode as Code;

use super::options::is_secret;
use crate::log::Error;

/// An error in making a client: its settings are wrong. No value of a secret setting is repeated.
pub(super) fn creation(error: KafkaError) -> Error {
    match error {
        KafkaError::ClientConfig(_, _, name, _) if is_secret(&name) => {
            Error::Fatal(format!("librdkafka does not accept the value of {name:?}"))
        }
        KafkaError::ClientConfig(_, text, _, _) => Error::Fatal(text),
        other => Error::Fatal(other.to_string()),
    }
}

/// An error in writing a record.
pub(super) fn production(error: &KafkaError) -> Error {
    match error.rdkafka_error_code() {
        Some(code) => by_code(code, &error.to_string()),
        None => Error::Refused(error.to_string()),
    }
}

/// An error known by its code.
pub(super) fn by_code(code: Code, text: &str) -> Error {
    match code {
        Code::Fatal | Code::GaplessGuarantee | Code::Fenced | Code::ProducerFenced => {
            Error::Fatal(text.into())
        }
        Code::MessageSizeTooLarge => Error::TooLarge(text.into()),
        Code::InvalidMessageSize
        | Code::InvalidMessage
        | Code::InvalidRecord
        | Code::InvalidTimestamp
        | Code::InvalidTopic
        | Code::InvalidPartitions
        | Code::UnknownTopic
        | Code::UnknownPartition
        | Code::UnknownTopicOrPartition
        | Code::InvalidArgument
        | Code::PolicyViolation
        | Code::UnsupportedForMessageFormat
        | Code::TopicAuthorizationFailed
        | Code::ClusterAuthorizationFailed => Error::Refused(text.into()),
        _ => Error::Unavailable(text.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_what_the_caller_can_do() {
        let refused = [Code::UnknownTopicOrPartition, Code::UnknownTopic, Code::TopicAuthorizationFailed];
        for code in refused {
            assert!(matches!(by_code(code, "x"), Error::Refused(_)), "{code:?}");
        }
        for code in
            [Code::MessageTimedOut, Code::BrokerTransportFailure, Code::NotEnoughReplicas, Code::PurgeQueue]
        {
            assert!(matches!(by_code(code, "x"), Error::Unavailable(_)), "{code:?}");
        }
        assert!(matches!(by_code(Code::MessageSizeTooLarge, "x"), Error::TooLarge(_)));
        assert!(matches!(by_code(Code::Fatal, "x"), Error::Fatal(_)));
    }

    #[test]
    fn a_refused_secret_is_not_repeated() {
        let mut options = super::super::Options::new("k:9092", "g", "i");
        options.librdkafka.insert("sasl.oauthbearer.client.secretx".into(), "hush".into());
        let made: Result<rdkafka::producer::BaseProducer, _> = options.producer_config().create();
        let error = made.err().map(creation).expect("no such setting");
        assert!(!error.to_string().contains("hush"), "{error}");
    }
}
