//! What a user may set about Kafka, and the settings of librdkafka made from it.
//!
//! Settings that the promises rest on are fixed here and refused in the passthrough. Secrets never reach `Debug` nor an
//! error text.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::config::RDKafkaLogLevel;

use crate::log::Error;

/// Settings that no passthrough may change: promises rest on them, or they have an option of their own.
const FIXED: [&str; 22] = [
    "acks",
    "allow.auto.create.topics",
    "auto.offset.reset",
    "bootstrap.servers",
    "client.id",
    "client.rack",
    "delivery.report.only.error",
    "enable.auto.commit",
    "enable.auto.offset.store",
    "enable.gapless.guarantee",
    "enable.idempotence",
    "enable.partition.eof",
    "group.id",
    "group.instance.id",
    "group.protocol",
    "heartbeat.interval.ms",
    "isolation.level",
    "message.timeout.ms",
    "partition.assignment.strategy",
    "partitioner",
    "session.timeout.ms",
    "transactional.id",
];
/// Other names that librdkafka knows for settings in [`FIXED`].
const FIXED_ALIASES: [&str; 4] =
    ["metadata.broker.list", "request.required.acks", "delivery.timeout.ms", "auto.commit.enable"];
/// A setting whose name has one of these words keeps its value to itself.
const SECRET_WORDS: [&str; 7] = ["password", "secret", "pem", "key", "token", "jaas", "oauthbearer.config"];
/// Settings with a secret word that are no secrets.
const NOT_SECRET: [&str; 3] =
    ["ssl.key.location", "ssl.keystore.location", "enable.sasl.oauthbearer.unsecure.jwt"];

/// Members hear at their next heartbeat that others come and go, so the time between two, in milliseconds, is part of every
/// hand-over.
const HEARTBEAT_MS_MAX: u128 = 500;

/// How the group is coordinated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// Classic protocol with cooperative-sticky assignment.
    #[default]
    Classic,
    /// KIP-848: assignment by the broker, which also sets the session timeout (45 s by default).
    Consumer,
}

/// Options of the Kafka adapter.
#[derive(Clone)]
pub struct Options {
    /// Brokers to begin with, `host:port` with commas between.
    pub brokers: String,
    /// The consumer group.
    pub group: String,
    /// This instance's name: the client id.
    pub instance: String,
    /// Static membership under this id; `None` = dynamic. Two members with one id fence each other.
    pub group_instance: Option<String>,
    /// This instance's rack, for brokers that let followers serve reads. Leaders serve them when `None`.
    pub rack: Option<String>,
    /// After this long without a heartbeat a member is dead (classic protocol only).
    pub session_timeout: Duration,
    /// How the group is coordinated.
    pub protocol: Protocol,
    /// Prefix of the topics' names.
    pub prefix: String,
    /// A record not durable after this long is answered [`Error::Unavailable`].
    pub message_timeout: Duration,
    /// Records buffered for all assigned shards together, in bytes.
    pub buffer_bytes: usize,
    /// librdkafka settings for every client.
    pub librdkafka: BTreeMap<String, String>,
    /// librdkafka settings for the producer.
    pub producer: BTreeMap<String, String>,
    /// librdkafka settings for the consumer.
    pub consumer: BTreeMap<String, String>,
}

impl Options {
    /// Options with every default.
    pub fn new(brokers: impl Into<String>, group: impl Into<String>, instance: impl Into<String>) -> Options {
        Options {
            brokers: brokers.into(),
            group: group.into(),
            instance: instance.into(),
            group_instance: None,
            rack: None,
            session_timeout: Duration::from_secs(6),
            protocol: Protocol::Classic,
            prefix: "dueline".into(),
            message_timeout: Duration::from_secs(30),
            buffer_bytes: 32 << 20,
            librdkafka: BTreeMap::new(),
            producer: BTreeMap::new(),
            consumer: BTreeMap::new(),
        }
    }

    /// Checks the passthrough.
    ///
    /// # Errors
    /// [`Error::Refused`] naming the first setting that may not be passed through, [`Error::Fatal`] one that
    /// librdkafka does not take.
    pub fn check(&self) -> Result<(), Error> {
        let names = self.librdkafka.keys().chain(self.producer.keys()).chain(self.consumer.keys());
        for name in names {
            if FIXED.contains(&name.as_str()) || FIXED_ALIASES.contains(&name.as_str()) {
                return Err(Error::Refused(format!(
                    "librdkafka setting {name:?} is fixed or has its own option"
                )));
            }
        }
        for config in [self.admin_config(), self.producer_config(), self.consumer_config()] {
            config.create_native_config().map_err(super::error::creation)?;
        }
        Ok(())
    }

    /// Settings for an administrative client.
    pub(super) fn admin_config(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        let base = [
            ("bootstrap.servers", self.brokers.as_str()),
            ("client.id", &self.instance),
            ("allow.auto.create.topics", "false"),
            ("socket.keepalive.enable", "true"),
            // A broker that vanished with its network answers nothing and resets nothing. Who leads in its place is heard of
            // by asking others, and what it was asked is given up long before the default of a minute.
            ("topic.metadata.refresh.interval.ms", "5000"),
            ("socket.timeout.ms", "6000"),
            ("socket.connection.setup.timeout.ms", "5000"),
            ("reconnect.backoff.ms", "100"),
            ("reconnect.backoff.max.ms", "2000"),
        ];
        set_all(&mut config, base);
        set_all(&mut config, pairs(&self.librdkafka));
        config.set_log_level(RDKafkaLogLevel::Warning);
        config
    }

    /// Settings for the client in the group.
    pub(super) fn consumer_config(&self) -> ClientConfig {
        let mut config = self.reading_config();
        self.set_membership(&mut config);
        config
    }

    /// Settings for the client that reads, which joins no group: the name is there because librdkafka assigns nothing without one.
    /// What users set for the membership would contradict its defaults.
    pub(super) fn reader_config(&self) -> ClientConfig {
        let mut config = self.reading_config();
        for name in ["max.poll.interval.ms", "group.remote.assignor"] {
            config.remove(name);
        }
        config
    }

    fn reading_config(&self) -> ClientConfig {
        let mut config = self.admin_config();
        let tunable = [
            ("check.crcs", "true"),
            ("queued.min.messages", "10000"),
            ("queued.max.messages.kbytes", "16384"),
            ("fetch.message.max.bytes", "262144"),
            ("fetch.max.bytes", "8388608"),
            ("fetch.wait.max.ms", "100"),
            ("fetch.queue.backoff.ms", "20"),
            ("fetch.error.backoff.ms", "200"),
        ];
        set_all(&mut config, tunable);
        set_all(&mut config, pairs(&self.librdkafka));
        set_all(&mut config, pairs(&self.consumer));
        let fixed = [
            ("group.id", self.group.as_str()),
            ("enable.auto.commit", "false"),
            ("enable.auto.offset.store", "false"),
            ("auto.offset.reset", "error"),
            ("isolation.level", "read_committed"),
            ("enable.partition.eof", "false"),
        ];
        set_all(&mut config, fixed);
        if let Some(rack) = &self.rack {
            config.set("client.rack", rack);
        }
        config
    }

    fn set_membership(&self, config: &mut ClientConfig) {
        if let Some(id) = &self.group_instance {
            config.set("group.instance.id", id);
        }
        let session_ms = self.session_timeout.as_millis();
        if config.get("max.poll.interval.ms").is_none() {
            config.set("max.poll.interval.ms", (session_ms * 3).max(30_000).to_string());
        }
        match self.protocol {
            Protocol::Classic => {
                config.set("partition.assignment.strategy", "cooperative-sticky");
                config.set("session.timeout.ms", session_ms.to_string());
                let heartbeat_ms = (session_ms / 4).clamp(1, HEARTBEAT_MS_MAX);
                config.set("heartbeat.interval.ms", heartbeat_ms.to_string());
            }
            Protocol::Consumer => {
                config.set("group.protocol", "consumer");
            }
        }
    }

    /// Settings for the producer.
    pub(super) fn producer_config(&self) -> ClientConfig {
        let mut config = self.admin_config();
        let tunable = [
            ("compression.type", "lz4"),
            ("linger.ms", "2"),
            // A leader waits for a lost follower until the controller gives it up: 9 s with the defaults of brokers.
            ("socket.timeout.ms", "15000"),
            ("batch.size", "262144"),
            // The topics say what is too large: whatever the schedule topic lets in has to reach the rejected one.
            ("message.max.bytes", "67108864"),
            ("queue.buffering.max.messages", "100000"),
            ("queue.buffering.max.kbytes", "65536"),
            ("topic.metadata.propagation.max.ms", "10000"),
        ];
        set_all(&mut config, tunable);
        set_all(&mut config, pairs(&self.librdkafka));
        set_all(&mut config, pairs(&self.producer));
        let fixed = [("enable.idempotence", "true"), ("acks", "all"), ("partitioner", "murmur2_random")];
        set_all(&mut config, fixed);
        config.set("message.timeout.ms", self.message_timeout.as_millis().max(1_000).to_string());
        config
    }
}

fn pairs(settings: &BTreeMap<String, String>) -> impl Iterator<Item = (&str, &str)> {
    settings.iter().map(|(name, value)| (name.as_str(), value.as_str()))
}

fn set_all<'a>(config: &mut ClientConfig, settings: impl IntoIterator<Item = (&'a str, &'a str)>) {
    for (name, value) in settings {
        config.set(name, value);
    }
}

/// Whether the value of a setting must not be shown.
pub(super) fn is_secret(name: &str) -> bool {
    !NOT_SECRET.contains(&name) && SECRET_WORDS.iter().any(|word| name.contains(word))
}

/// Settings with the values of secrets left out.
struct Shown<'a>(&'a BTreeMap<String, String>);

impl fmt::Debug for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.0.iter().map(|(name, value)| (name, if is_secret(name) { "***" } else { value }));
        f.debug_map().entries(shown).finish()
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("brokers", &self.brokers)
            .field("group", &self.group)
            .field("instance", &self.instance)
            .field("group_instance", &self.group_instance)
            .field("rack", &self.rack)
            .field("session_timeout", &self.session_timeout)
            .field("protocol", &self.protocol)
            .field("prefix", &self.prefix)
            .field("message_timeout", &self.message_timeout)
            .field("buffer_bytes", &self.buffer_bytes)
            .field("librdkafka", &Shown(&self.librdkafka))
            .field("producer", &Shown(&self.producer))
            .field("consumer", &Shown(&self.consumer))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_not_shown() {
        let mut options = Options::new("k:9092", "g", "i");
        for name in ["sasl.password", "ssl.key.pem", "ssl.key.password", "sasl.oauthbearer.client.secret"] {
            options.librdkafka.insert(name.into(), "hush".into());
        }
        options.librdkafka.insert("security.protocol".into(), "SASL_SSL".into());
        let shown = format!("{options:?}");
        assert!(!shown.contains("hush"), "{shown}");
        assert!(shown.contains("SASL_SSL"));
    }

    #[test]
    fn a_fixed_setting_cannot_be_passed_through() {
        let mut options = Options::new("k:9092", "g", "i");
        assert!(options.check().is_ok());
        options.producer.insert("request.required.acks".into(), "1".into());
        assert!(
            matches!(options.check(), Err(Error::Refused(text)) if text.contains("request.required.acks"))
        );
    }

    #[test]
    fn librdkafka_accepts_the_settings_of_every_client() {
        let mut options = Options::new("k:9092", "g", "i");
        for protocol in [Protocol::Classic, Protocol::Consumer] {
            options.protocol = protocol;
            let made: Result<rdkafka::consumer::BaseConsumer, _> = options.consumer_config().create();
            assert!(made.is_ok(), "{protocol:?}: {:?}", made.err());
        }
        for (name, value) in [("max.poll.interval.ms", "30000"), ("group.remote.assignor", "range")] {
            options.consumer.insert(name.into(), value.into());
        }
        for config in [options.consumer_config(), options.reader_config()] {
            let made: Result<rdkafka::consumer::BaseConsumer, _> = config.create();
            assert!(made.is_ok(), "{:?}", made.err());
        }
        let made: Result<rdkafka::producer::BaseProducer, _> = options.producer_config().create();
        assert!(made.is_ok(), "{:?}", made.err());
    }
}
