//! From values to the typed configuration: values worked out at start, files with secrets, and rules between keys.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use super::file::Tables;
use super::kind::Value;
use super::section::{Origin, Section};
use super::{
    Cassandra, Config, Hidden, Http, Instance, Kafka, Limits, Log, LogFormat, Problem, Properties, Protocol,
    Retention, SECRET_FILE_BYTES_MAX, Tls, Topics, access, collection, handler, otlp, queue,
};

/// Builds the configuration, first filling in what is worked out at start. Everything that is wrong between the values goes to the problems.
pub(super) fn config(main: &mut Section, tables: &Tables, problems: &mut Vec<Problem>) -> Config {
    compute(main);
    let config = Config {
        instance: Instance {
            name: main.text("instance.name"),
            dc: main.text("instance.dc"),
            stop_wait_ms: main.ms("instance.stop_wait"),
        },
        kafka: kafka(main, problems),
        topics: topics(main, problems),
        cassandra: cassandra(main, problems),
        lease_ms: main.ms("ownership.lease"),
        limits: Limits {
            tasks_in_memory: size(main, "limits.tasks_in_memory"),
            intake_bytes: size(main, "limits.intake_bytes"),
            events_bytes: size(main, "limits.events_bytes"),
            ids_in_memory: size(main, "limits.ids_in_memory"),
            payload_bytes: size(main, "limits.payload_bytes"),
        },
        retention: Retention {
            history_ms: main.ms("retention.history"),
            repeat_window_ms: main.ms("retention.repeat_window"),
            topics_ms: main.ms("retention.topics"),
            topic_records: u64::try_from(main.integer("retention.topic_records")).unwrap_or(u64::MAX),
        },
        http: Http {
            listen: listen(main),
            advertise: main.text("http.advertise"),
            hosts: main.list("http.hosts"),
            access: access::access(main, &tables.tokens, problems),
            is_open_on_purpose: main.text("http.access") == "open",
        },
        log: Log {
            filter: main.text("log.filter"),
            format: match main.text("log.format").as_str() {
                "text" => LogFormat::Text,
                "json" => LogFormat::Json,
                _ => LogFormat::Auto,
            },
        },
        otlp: otlp::otlp(main, problems),
        handlers: handler::routes(&tables.handlers, &main.text("topics.prefix"), problems),
        collections: collection::limits(&tables.collections, problems),
        queues: queue::policies(&tables.queues, problems),
        embedded: None,
        is_dev: false,
    };
    retention_rule(&config.retention, main, problems);
    config
}

fn compute(main: &mut Section) {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let host = if host.is_empty() || host.contains(char::is_control) { "dueline".to_owned() } else { host };
    put_if_unset(main, "instance.name", Value::Text(host));
    let dc = main.text("instance.dc");
    put_if_unset(main, "cassandra.local_dc", Value::Text(dc));
    PUBLISHED.into_iter().for_each(|path| put_if_unset(main, path, Value::Bool(true)));
    let listen = listen(main);
    let advertise = if listen.ip().is_unspecified() {
        format!("http://{}:{}", main.text("instance.name"), listen.port())
    } else {
        format!("http://{listen}")
    };
    put_if_unset(main, "http.advertise", Value::Text(advertise));
}

/// What is published of tasks.
pub(super) const PUBLISHED: [&str; 2] = ["topics.task_events", "topics.dead_letters"];

pub(super) fn put_if_unset(main: &mut Section, path: &str, value: Value) {
    if !main.is_set(path) {
        let key = main.key(path).expect("a key of the table");
        main.put(key, "", value, Origin::Default);
    }
}

fn listen(main: &Section) -> SocketAddr {
    main.text("http.listen").parse().expect("an address was read as one")
}

fn size(main: &Section, path: &str) -> usize {
    usize::try_from(main.integer(path)).expect("bounds of sizes are positive")
}

fn count(main: &Section, path: &str) -> u32 {
    u32::try_from(main.integer(path)).expect("bounds of counts fit")
}

fn kafka(main: &Section, problems: &mut Vec<Problem>) -> Kafka {
    Kafka {
        brokers: main.text_if_set("kafka.brokers"),
        group: main.text("kafka.group"),
        group_instance: main.text_if_set("kafka.group_instance"),
        rack: main.text_if_set("kafka.rack"),
        session_timeout_ms: main.ms("kafka.session_timeout"),
        protocol: if main.text("kafka.protocol") == "consumer" {
            Protocol::Consumer
        } else {
            Protocol::Classic
        },
        message_timeout_ms: main.ms("kafka.message_timeout"),
        buffer_bytes: size(main, "kafka.buffer_bytes"),
        librdkafka: properties(main, "kafka.librdkafka", problems),
        producer: properties(main, "kafka.producer", problems),
        consumer: properties(main, "kafka.consumer", problems),
    }
}

/// librdkafka properties that Dueline sets itself, and what to set instead.
const OWN_PROPERTIES: &[(&str, &str)] = &[
    ("acks", ""),
    ("allow.auto.create.topics", ""),
    ("auto.commit.enable", ""),
    ("auto.offset.reset", ""),
    ("bootstrap.servers", "kafka.brokers"),
    ("client.id", "instance.name"),
    ("client.rack", "kafka.rack"),
    ("delivery.report.only.error", ""),
    ("delivery.timeout.ms", "kafka.message_timeout"),
    ("enable.auto.commit", ""),
    ("enable.auto.offset.store", ""),
    ("enable.gapless.guarantee", ""),
    ("enable.idempotence", ""),
    ("enable.partition.eof", ""),
    ("group.id", "kafka.group"),
    ("group.instance.id", "kafka.group_instance"),
    ("group.protocol", "kafka.protocol"),
    ("heartbeat.interval.ms", "kafka.session_timeout"),
    ("isolation.level", ""),
    ("message.timeout.ms", "kafka.message_timeout"),
    ("metadata.broker.list", "kafka.brokers"),
    ("partition.assignment.strategy", ""),
    ("partitioner", ""),
    ("request.required.acks", ""),
    ("session.timeout.ms", "kafka.session_timeout"),
    ("transactional.id", ""),
];

fn properties(main: &Section, path: &str, problems: &mut Vec<Problem>) -> Properties {
    let mut properties = BTreeMap::new();
    for (name, found) in main.entries(path) {
        let key = format!("{path}.{name}");
        let Value::Text(text) = &found.value else { continue };
        let (name, text) = match name.strip_suffix("_file") {
            None => (name, text.clone()),
            Some(name) => match read_secret(Path::new(text)) {
                Ok(secret) => (name, secret),
                Err(problem) => {
                    problems.push(Problem::new(&found.origin, key, problem));
                    continue;
                }
            },
        };
        if let Some((_, instead)) = OWN_PROPERTIES.iter().find(|(own, _)| *own == name) {
            let advice =
                if instead.is_empty() { "remove it".to_owned() } else { format!("set {instead} instead") };
            let text = format!("is set by Dueline itself, as its promises rest on it: {advice}");
            problems.push(Problem::new(&found.origin, key, text));
        } else if properties.insert(name.to_owned(), text).is_some() {
            let text = format!("is set twice, as {name:?} and as \"{name}_file\": remove one");
            problems.push(Problem::new(&found.origin, key, text));
        }
    }
    Properties(properties)
}

fn topics(main: &Section, problems: &mut Vec<Problem>) -> Topics {
    let topics = Topics {
        prefix: main.text("topics.prefix"),
        partitions: count(main, "topics.partitions"),
        replication_factor: count(main, "topics.replication_factor"),
        min_insync_replicas: count(main, "topics.min_insync_replicas"),
        task_events: main.bool("topics.task_events"),
        dead_letters: main.bool("topics.dead_letters"),
    };
    if topics.min_insync_replicas > topics.replication_factor {
        let text = format!(
            "is {}, but there are only {} replicas (topics.replication_factor): nothing could be written",
            topics.min_insync_replicas, topics.replication_factor
        );
        let path = "topics.min_insync_replicas";
        problems.push(Problem::new(&main.origin_of(path), path, text));
    }
    topics
}

fn cassandra(main: &Section, problems: &mut Vec<Problem>) -> Cassandra {
    let replication = main.entries("cassandra.replication").map(|(dc, found)| match found.value {
        Value::Integer(factor) => (dc.to_owned(), u32::try_from(factor).expect("bounds of counts fit")),
        _ => (dc.to_owned(), 0),
    });
    Cassandra {
        nodes: main.list("cassandra.nodes"),
        keyspace: main.text("cassandra.keyspace"),
        local_dc: main.text("cassandra.local_dc"),
        credentials: credentials(main, problems),
        tls: tls(main, problems),
        request_timeout_ms: main.ms("cassandra.request_timeout"),
        replication: replication.collect(),
        require_dc_loss_survival: main.bool("cassandra.require_dc_loss_survival"),
    }
}

fn credentials(main: &Section, problems: &mut Vec<Problem>) -> Option<(String, Hidden)> {
    let (user, file) = (main.text_if_set("cassandra.username"), main.text_if_set("cassandra.password_file"));
    let password = main.text_if_set("cassandra.password");
    let mut problem = |path: &str, text: String| {
        problems.push(Problem::new(&main.origin_of(path), path, text));
        None
    };
    match (user, file, password) {
        (None, None, None) => None,
        (_, Some(_), Some(_)) => problem(
            "cassandra.password_file",
            "is set, and so is DUELINE_CASSANDRA_PASSWORD: remove one".to_owned(),
        ),
        (None, _, _) => problem("cassandra.username", "is not set, but a password is: set it too".to_owned()),
        (Some(_), None, None) => {
            let text = "needs a password: set cassandra.password_file or DUELINE_CASSANDRA_PASSWORD";
            problem("cassandra.username", text.to_owned())
        }
        (Some(user), None, Some(password)) => Some((user, Hidden(password))),
        (Some(user), Some(file), None) => match read_secret(Path::new(&file)) {
            Ok(password) => Some((user, Hidden(password))),
            Err(text) => problem("cassandra.password_file", text),
        },
    }
}

fn tls(main: &Section, problems: &mut Vec<Problem>) -> Option<Tls> {
    let path = |path: &str| main.text_if_set(path).map(PathBuf::from);
    let (ca, cert, key) =
        (path("cassandra.tls.ca_file"), path("cassandra.tls.cert_file"), path("cassandra.tls.key_file"));
    let mut problem = |path: &str, text: &str| problems.push(Problem::new(&main.origin_of(path), path, text));
    match (&cert, &key) {
        (Some(_), None) => {
            problem("cassandra.tls.cert_file", "needs its key: set cassandra.tls.key_file too")
        }
        (None, Some(_)) => {
            problem("cassandra.tls.key_file", "needs its certificate: set cassandra.tls.cert_file too")
        }
        (Some(_), Some(_)) if ca.is_none() => {
            problem("cassandra.tls.cert_file", "needs the nodes' authorities: set cassandra.tls.ca_file too");
        }
        _ => {}
    }
    ca.map(|ca_file| Tls { ca_file, client_files: cert.zip(key) })
}

fn retention_rule(retention: &Retention, main: &Section, problems: &mut Vec<Problem>) {
    if retention.repeat_window_ms >= retention.history_ms {
        let text = "must be shorter than retention.history: a repeat is known by the history";
        let path = "retention.repeat_window";
        problems.push(Problem::new(&main.origin_of(path), path, text));
    }
}

/// The text of a file with a secret, without the line ends after it.
///
/// # Errors
/// What is wrong with the file, never what is in it.
pub(crate) fn read_secret(path: &Path) -> Result<String, String> {
    let name = path.display();
    let size = std::fs::metadata(path)
        .map_err(|error| format!("names {name}, which cannot be read: {error}"))?
        .len();
    if size > SECRET_FILE_BYTES_MAX {
        return Err(format!("names {name}, which has more than {SECRET_FILE_BYTES_MAX} bytes"));
    }
    let text = std::fs::read_to_string(path)
        .map_err(|error| format!("names {name}, which cannot be read: {error}"))?;
    match text.trim_end_matches(['\r', '\n']) {
        "" => Err(format!("names {name}, which is empty")),
        secret => Ok(secret.to_owned()),
    }
}
