//! The table of all keys: loading, `config show`, the environment and docs/configuration.md are made from it.
//!
//! A key is added here and read in `build.rs`; nothing else knows about single keys.

use super::kind::Kind;

/// One key.
#[derive(Debug)]
pub(super) struct Key {
    /// Section and name: `kafka.session_timeout`; within `[[handler]]` the name alone.
    pub path: &'static str,
    /// What it takes.
    pub kind: Kind,
    /// What it is when nobody says.
    pub default: Otherwise,
    /// What it does, for people.
    pub meaning: &'static str,
}

/// What a key is when nobody says.
#[derive(Clone, Copy, Debug)]
pub(super) enum Otherwise {
    /// This text, read as from the environment.
    Text(&'static str),
    /// Worked out at start; in words.
    Computed(&'static str),
    /// Nothing.
    Unset,
}

const fn key(path: &'static str, kind: Kind, default: Otherwise, meaning: &'static str) -> Key {
    Key { path, kind, default, meaning }
}

const SECOND: u64 = 1_000;
const MINUTE: u64 = 60 * SECOND;
const DAY: u64 = 24 * 60 * MINUTE;

use Kind::*;
use Otherwise::{Computed, Text, Unset};

/// All keys outside of `[[handler]]`, sections in the order they are shown in.
pub(super) static KEYS: &[Key] = &[
    key(
        "instance.name",
        Line,
        Computed("the host name"),
        "Name of this instance, for people and as Kafka client id",
    ),
    key("instance.dc", Line, Text("dc1"), "Data centre this instance runs in"),
    key(
        "instance.stop_wait",
        Duration { min: 0, max: DAY },
        Text("35s"),
        "A stop waits so long for calls that run; what takes longer is broken off and tried again. Whatever ends the process by force (systemd, Kubernetes) has to give it 25 s more",
    ),
    key(
        "kafka.brokers",
        Line,
        Unset,
        "Brokers to begin with, `host:port` with commas between; needed by `serve`",
    ),
    key("kafka.group", Line, Text("dueline"), "Consumer group; all instances of an installation share it"),
    key(
        "kafka.group_instance",
        Line,
        Unset,
        "Static membership under this id, another one for each instance (see docs/operations.md, membership)",
    ),
    key("kafka.rack", Line, Unset, "Rack of this instance, for brokers that let followers serve reads"),
    key(
        "kafka.session_timeout",
        Duration { min: SECOND, max: 30 * MINUTE },
        Text("6s"),
        "Without a heartbeat for this long an instance is dead to the group (protocol `classic` only; brokers allow 6 s to 30 m unless told otherwise)",
    ),
    key(
        "kafka.protocol",
        Choice(&["classic", "consumer"]),
        Text("classic"),
        "Group protocol: `classic` with cooperative-sticky assignment, or `consumer` (KIP-848)",
    ),
    key(
        "kafka.message_timeout",
        Duration { min: SECOND, max: 10 * MINUTE },
        Text("30s"),
        "A record that is not durable after this long counts as failed and is sent again",
    ),
    key(
        "kafka.buffer_bytes",
        Integer { min: 1 << 20, max: 8 << 30 },
        Text("33554432"),
        "Records fetched ahead, for all shards of the instance together",
    ),
    key(
        "kafka.librdkafka",
        TextMap,
        Unset,
        "librdkafka properties for all clients, passed through; `\"<name>_file\"` reads the value from a file",
    ),
    key("kafka.producer", TextMap, Unset, "librdkafka properties for the producer alone"),
    key("kafka.consumer", TextMap, Unset, "librdkafka properties for the consumer alone"),
    key("topics.prefix", TopicPrefix, Text("dueline"), "Prefix of the names of Dueline's own topics"),
    key(
        "topics.partitions",
        Integer { min: 1, max: 10_000 },
        Text("64"),
        "Shards: partitions of the schedule topic; fixed when the installation is made",
    ),
    key("topics.replication_factor", Integer { min: 1, max: 15 }, Text("3"), "Replicas of each topic"),
    key(
        "topics.min_insync_replicas",
        Integer { min: 1, max: 15 },
        Text("2"),
        "Replicas that must have a record before it counts",
    ),
    key(
        "topics.task_events",
        Bool,
        Computed("`true` with Kafka, `false` embedded"),
        "Publish what becomes of tasks on the events topic",
    ),
    key(
        "topics.dead_letters",
        Bool,
        Computed("`true` with Kafka, `false` embedded"),
        "Put a copy of each dead letter on the dead topic",
    ),
    key(
        "cassandra.nodes",
        List,
        Unset,
        "Nodes to begin with, `host:port`; the others are found; needed by `serve`",
    ),
    key("cassandra.keyspace", Keyspace, Text("dueline"), "Keyspace of all tables"),
    key("cassandra.local_dc", Line, Computed("`instance.dc`"), "Data centre whose nodes coordinate requests"),
    key("cassandra.username", Line, Unset, "User; with it a password is needed"),
    key("cassandra.password_file", Path, Unset, "File with the user's password"),
    key("cassandra.password", Secret, Unset, "The user's password; from the environment only"),
    key(
        "cassandra.request_timeout",
        Duration { min: 100, max: MINUTE },
        Text("5s"),
        "One request, tries on other nodes included",
    ),
    key(
        "cassandra.require_dc_loss_survival",
        Bool,
        Text("false"),
        "Refuse to start when the keyspace, as it is replicated, cannot lose a data centre",
    ),
    key(
        "cassandra.tls.ca_file",
        Path,
        Unset,
        "PEM file of the authorities that sign node certificates; turns TLS on",
    ),
    key(
        "cassandra.tls.cert_file",
        Path,
        Unset,
        "PEM file of this client's certificate chain, where nodes ask for one",
    ),
    key("cassandra.tls.key_file", Path, Unset, "PEM file of this client's key"),
    key(
        "cassandra.replication",
        IntegerMap { min: 1, max: 15 },
        Unset,
        "Replication factor of each data centre (NetworkTopologyStrategy); used when the keyspace is made, compared afterwards",
    ),
    key(
        "ownership.lease",
        Duration { min: 3 * SECOND, max: 5 * MINUTE },
        Text("6s"),
        "Lease of a shard's owner: the longest pause after its loss, and what its clock may drift against",
    ),
    key(
        "limits.tasks_in_memory",
        Integer { min: 1_000, max: 50_000_000 },
        Text("500000"),
        "Tasks this instance holds in memory; a payload counts as one more per KiB",
    ),
    key(
        "limits.intake_bytes",
        Integer { min: 1_048_576, max: 17_179_869_184 },
        Text("33554432"),
        "Memory for schedule events fetched and not stored yet, shared evenly by this instance's shards; an event counts 3 KiB and three times its bytes",
    ),
    key(
        "limits.ids_in_memory",
        Integer { min: 0, max: 4_294_967_296 },
        Text("16777216"),
        "Ids with events on record that this instance knows of in memory, some 13 bytes each, shared evenly by its shards: an id that is in none of them is not looked up. A shard with more looks up each, and packs no first events any more",
    ),
    key(
        "limits.events_bytes",
        Integer { min: 1_048_576, max: 17_179_869_184 },
        Text("134217728"),
        "Memory for task events that are not published yet, shared evenly by this instance's shards; an event counts 512 bytes and its result, error or reason. At half of it no schedule events are taken in, at all of it no task starts",
    ),
    key(
        "limits.payload_bytes",
        Integer { min: 1_024, max: 262_144 },
        Text("262144"),
        "Largest payload of a task",
    ),
    key(
        "retention.history",
        Duration { min: 60_000, max: 3_650 * DAY },
        Text("30d"),
        "What is finished is kept at least this long: tasks with their attempts and events, and dead letters",
    ),
    key(
        "retention.repeat_window",
        Duration { min: 0, max: 7 * DAY },
        Text("24h"),
        "The same id with the same content within this time is a repeat and changes nothing",
    ),
    key(
        "retention.topics",
        Duration { min: SECOND, max: 3_650 * DAY },
        Text("7d"),
        "Embedded only, as Kafka's topics have their own: records are kept so long on all topics but the schedule topic",
    ),
    key(
        "retention.topic_records",
        Integer { min: 1, max: 1_000_000_000 },
        Text("100000"),
        "Embedded only: so many records are kept of each partition of such a topic",
    ),
    key("http.listen", Address, Text("127.0.0.1:7420"), "Where the HTTP interface listens"),
    key(
        "http.advertise",
        Url,
        Computed("`http.listen` as URL, with `instance.name` as host when it listens everywhere"),
        "Where other instances reach this one",
    ),
    key(
        "http.hosts",
        List,
        Unset,
        "Names that requests may have as host, without port, beside that of `http.advertise`, `localhost` and any IP \
         address: the names of a service or proxy in front",
    ),
    key(
        "http.access",
        Choice(&["tokens", "open"]),
        Computed(
            "`tokens` with a `[[http.token]]`; without one `open` on a loopback address with no further names, and elsewhere `serve` refuses to start",
        ),
        "Who may ask: who has a token, or whoever reaches it",
    ),
    key(
        "log.filter",
        Filter,
        Text("info,scylla=warn"),
        "What is logged: a level, or `target=level` with commas between",
    ),
    key(
        "log.format",
        Choice(&["auto", "text", "json"]),
        Text("auto"),
        "`text`, `json` (one object a line), or `auto`: text on a terminal, else json",
    ),
    key(
        "otlp.endpoint",
        Url,
        Unset,
        "Collector that gets a span of each attempt: OTLP over HTTP, `/v1/traces` is appended to a URL without a path; nothing is exported unless set",
    ),
    key(
        "otlp.headers",
        Headers,
        Unset,
        "Headers of requests to the collector, all of them secrets; `\"<name>_file\"` reads the value from a file",
    ),
    key(
        "otlp.sample_percent",
        Number { min: 0, max: 100 },
        Text("100"),
        "Of tasks without a `traceparent` so many get spans; the others follow its sampled flag",
    ),
];

/// The keys of a `[[handler]]`.
pub(super) static HANDLER_KEYS: &[Key] = &[
    key("name", Line, Unset, "What schedule events call it; needed"),
    key(
        "kind",
        Choice(&["http", "topic", "log", "in-process", "grpc"]),
        Unset,
        "How it is called; needed. `grpc` is not there yet and refused",
    ),
    key("url", Url, Unset, "http: where the callback goes; needed"),
    key(
        "secrets_file",
        Path,
        Unset,
        "http: file with signing secrets, one a line, `whsec_…` or raw; all of them sign",
    ),
    key("secrets", Secret, Unset, "http: signing secrets with spaces between; from the environment only"),
    key("succeeded", List, Unset, "http: statuses that are a success, instead of `[\"2xx\"]`"),
    key(
        "retryable",
        List,
        Unset,
        "http: statuses worth another attempt, instead of `[\"408\", \"425\", \"429\", \"5xx\"]`",
    ),
    key(
        "open_attempts",
        Choice(&["wait", "rerun"]),
        Unset,
        "http: after a connection broke during a call, or the owner of an attempt was lost, wait for the attempt's deadline (the default), or rerun at once",
    ),
    key("topic", Line, Unset, "topic: where the payload is produced to; needed"),
    key(
        "show_payload",
        Bool,
        Unset,
        "log: whether the first 200 bytes of the payload are in the line; false unless set",
    ),
    key(
        "concurrency",
        Integer { min: 1, max: 100_000 },
        Text("64"),
        "Attempts under way at once, over all instances: each has the part that its shards are of all, rounded up",
    ),
    key(
        "rate",
        Line,
        Unset,
        "Attempts that begin, over all instances together: `100/s`, `30/m`, `1000/h`; as many as come unless set",
    ),
    key(
        "catch_up",
        Line,
        Unset,
        "Attempts of late tasks that begin, over all instances together: of those that come in line more than a minute after they could first run. Others are not held up by them; as the others unless set",
    ),
    key(
        "intake",
        Line,
        Unset,
        "Schedule events that are taken in, over all shards together; more are rejected as `over_quota`. As many as come unless set",
    ),
    key(
        "timeout",
        Duration { min: 100, max: DAY },
        Text("30s"),
        "Time for one attempt, where the task does not say",
    ),
    key(
        "reserve.priority",
        Integer { min: 1, max: 9 },
        Text("8"),
        "Tasks of this priority and above may take all slots, those below it not the ones that are kept",
    ),
    key(
        "reserve.slots",
        Integer { min: 0, max: 99_999 },
        Text("0"),
        "Slots of `concurrency` that are kept for them, less than that; each instance keeps its part, rounded down",
    ),
    key(
        "retry.max_attempts",
        Integer { min: 1, max: 1_000 },
        Text("10"),
        "Attempts in all, where the task does not say",
    ),
    key("retry.initial", Duration { min: 1, max: DAY }, Text("1s"), "Wait after the first failure"),
    key("retry.factor", Number { min: 1, max: 100 }, Text("2"), "Each further wait is this times the last"),
    key("retry.max", Duration { min: 1, max: 30 * DAY }, Text("10m"), "Longest wait"),
    key("retry.jitter", Number { min: 0, max: 1 }, Text("0.2"), "Part of the wait that is drawn at random"),
    key(
        "retry.max_age",
        Duration { min: 0, max: 3_653 * DAY },
        Text("0s"),
        "No further try later than this after the task could first run; 0s = no such bound",
    ),
    key(
        "breaker.failures",
        Integer { min: 0, max: 100_000 },
        Text("0"),
        "After so many failures in a row, of all its tasks on one instance, the handler is left alone for breaker.pause; 0 = never",
    ),
    key(
        "breaker.pause",
        Duration { min: 10, max: DAY },
        Text("10s"),
        "How long it is left alone; then one call at a time until one does not fail",
    ),
    key(
        "on_failure",
        Choice(ON_FAILURE),
        Unset,
        "What its tasks that fail do to their queue until their next try, where neither task nor `[[queue]]` says: `block` (unless set) or `park`. It is part of a task from when its event is taken in",
    ),
    key(
        "on_dead",
        Choice(ON_DEAD),
        Unset,
        "The same of tasks that are dead: `continue` (unless set) or `stop`",
    ),
];

/// What a failed task does to its queue, in words.
const ON_FAILURE: &[&str] = &["block", "park"];
/// What a dead one does.
const ON_DEAD: &[&str] = &["continue", "stop"];

/// The keys of a `[[queue]]` table.
pub(super) static QUEUE_KEYS: &[Key] = &[
    key("name", Line, Unset, "The queue as tasks name it; needed"),
    key(
        "on_failure",
        Choice(ON_FAILURE),
        Unset,
        "What its tasks that fail do to it until their next try, where the task does not say: `block` or `park`; as the handler says unless set",
    ),
    key(
        "on_dead",
        Choice(ON_DEAD),
        Unset,
        "What its tasks that are dead do to it, where the task does not say: `continue` or `stop`; as the handler says unless set",
    ),
];

/// The keys of a `[[collection]]` table.
pub(super) static COLLECTION_KEYS: &[Key] = &[
    key(
        "name",
        Line,
        Unset,
        "The collection as tasks name it; `*` = each that has no table of its own, on its own; needed",
    ),
    key(
        "concurrency",
        Integer { min: 1, max: 100_000 },
        Unset,
        "Attempts under way at once, over all handlers and instances, in parts like those of a handler; as many as these allow unless set",
    ),
    key(
        "rate",
        Line,
        Unset,
        "Attempts that begin, over all instances and handlers together: `100/s`, `30/m`, `1000/h`; as many as come unless set",
    ),
    key(
        "weight",
        Integer { min: 1, max: 1_000 },
        Text("1"),
        "Its part of a handler's slots when they do not suffice: those of weight 3 get three times those of weight 1. Tasks of no such collection have 1 together",
    ),
    key(
        "intake",
        Line,
        Unset,
        "Schedule events that are taken in, over all shards together; more are rejected as `over_quota`. As many as come unless set",
    ),
];

/// The keys of a `[[http.token]]` table.
pub(super) static TOKEN_KEYS: &[Key] = &[
    key(
        "name",
        Line,
        Unset,
        "Who has it, in logs and operations; needed. Two tables may have one name and role, so that one token follows another",
    ),
    key(
        "role",
        Choice(&["viewer", "operator", "admin"]),
        Unset,
        "What it is good for: looking, daily work, everything (docs/roles.md); needed",
    ),
    key(
        "token_file",
        Path,
        Unset,
        "File with the token, 24 characters or more on one line; read again when it changes; needed unless the environment has the token",
    ),
    key("token", Secret, Unset, "The token; from the environment only"),
];

/// Variables of the environment that are not keys, with what reads them.
pub(super) const OTHER_VARIABLES: &[(&str, &str)] = &[
    ("DUELINE_CONFIG", "the config file, as `--config`"),
    ("DUELINE_SERVER", "the server that client verbs talk to, as `--server`"),
    ("DUELINE_TOKEN_FILE", "file with the token of client verbs, as `--token-file`"),
    ("DUELINE_TOKEN", "the token of client verbs itself"),
];

/// The variable that sets a key: `kafka.session_timeout` is DUELINE_KAFKA_SESSION_TIMEOUT.
pub(super) fn variable(key: &Key) -> String {
    match key.path {
        "log.filter" => "DUELINE_LOG".to_owned(),
        path => format!("DUELINE_{}", shouted(path)),
    }
}

/// The variable with the signing secrets of a handler: for `notify-eu` DUELINE_HANDLER_NOTIFY_EU_SECRETS.
pub(super) fn secrets_variable(handler: &str) -> String {
    format!("DUELINE_HANDLER_{}_SECRETS", shouted(handler))
}

/// The variable with the token of a name: for `ci` DUELINE_HTTP_TOKEN_CI.
pub(super) fn token_variable(name: &str) -> String {
    format!("DUELINE_HTTP_TOKEN_{}", shouted(name))
}

fn shouted(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' }).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{COLLECTION_KEYS, HANDLER_KEYS, KEYS, QUEUE_KEYS, TOKEN_KEYS, variable};

    #[test]
    fn no_two_keys_share_a_path_or_a_variable() {
        let variables: BTreeSet<String> = KEYS.iter().map(variable).collect();
        assert_eq!(variables.len(), KEYS.len());
        for keys in [KEYS, HANDLER_KEYS, COLLECTION_KEYS, QUEUE_KEYS, TOKEN_KEYS] {
            let paths: BTreeSet<&str> = keys.iter().map(|key| key.path).collect();
            assert_eq!(paths.len(), keys.len());
        }
    }

    #[test]
    fn every_key_has_a_meaning_of_one_line() {
        for key in KEYS.iter().chain(HANDLER_KEYS).chain(COLLECTION_KEYS).chain(TOKEN_KEYS) {
            assert!(key.meaning.len() > 10 && !key.meaning.contains(['\n', '|']), "{}", key.path);
        }
    }
}
