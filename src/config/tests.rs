//! The configuration as its users meet it: layers, secrets, what is shown.

mod access;
mod refused;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::{
    Config, EMBEDDED_SHARDS, Embedded, Flag, Loaded, Problems, Protocol, Sources, load, load_dev,
    load_embedded,
};
use crate::dispatch::registry::Kind;

/// The file of the interface description.
const FULL: &str = r#"
[instance]
name = "dl-1"
dc = "dc1"
[kafka]
brokers = "k1:9092,k2:9092"
group = "dueline"
session_timeout = "6s"
protocol = "classic"
[kafka.librdkafka]
"security.protocol" = "PLAINTEXT"
"socket.keepalive.enable" = true
[topics]
prefix = "dueline"
partitions = 64
replication_factor = 3
min_insync_replicas = 2
[cassandra]
nodes = ["c1:9042"]
keyspace = "dueline"
local_dc = "dc1"
tls = { ca_file = "/etc/ca.pem" }
[cassandra.replication]
dc1 = 2
dc2 = 2
dc3 = 1
[ownership]
lease = "6s"
[limits]
tasks_in_memory = 500000
intake_bytes = 33554432
ids_in_memory = 1_000_000
payload_bytes = 262_144
[retention]
history = "30d"
[http]
listen = "127.0.0.1:7420"
advertise = "http://dl-1:7420"
[[handler]]
name = "notify"
kind = "http"
url = "http://127.0.0.1:9000/notify"
concurrency = 64
timeout = "30s"
retry = { max_attempts = 3, factor = 1.5 }
[[handler]]
name = "orders"
kind = "topic"
topic = "orders"
"#;

struct Setup {
    dir: TempDir,
    sources: Sources,
}

impl Setup {
    fn new(toml: &str) -> Setup {
        let dir = TempDir::new().expect("a directory");
        let file = dir.path().join("dueline.toml");
        std::fs::write(&file, toml).expect("a file");
        Setup { dir, sources: Sources { file: Some(file), ..Sources::default() } }
    }

    fn environment(mut self, variables: &[(&str, &str)]) -> Setup {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        self.sources.environment = variables.iter().map(owned).collect();
        self
    }

    fn secret(&self, name: &str, text: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        std::fs::write(&path, text).expect("a file");
        path
    }

    fn load(&self) -> Result<Loaded, Problems> {
        load(self.sources.clone())
    }

    fn loaded(&self) -> Loaded {
        self.load().unwrap_or_else(|problems| panic!("{problems}"))
    }

    /// The problems, each line without the directory of the test.
    fn problems(&self) -> Vec<String> {
        let problems = self.load().err().unwrap_or_else(|| panic!("nothing is wrong"));
        let dir = format!("{}/", self.dir.path().display());
        problems.to_string().replace(&dir, "").lines().map(str::to_owned).collect()
    }
}

#[test]
fn the_file_of_the_interface_is_read() {
    let loaded = Setup::new(FULL).loaded();
    let config = &loaded.config;
    assert_eq!(config.kafka.brokers.as_deref(), Some("k1:9092,k2:9092"));
    assert_eq!((config.kafka.session_timeout_ms, config.kafka.protocol), (6_000, Protocol::Classic));
    assert_eq!(config.kafka.librdkafka.0["socket.keepalive.enable"], "true");
    assert_eq!(
        config.cassandra.replication,
        BTreeMap::from([("dc1", 2), ("dc2", 2), ("dc3", 1)].map(|(dc, n)| (dc.to_owned(), n)))
    );
    assert_eq!(
        config.cassandra.tls.as_ref().map(|tls| tls.ca_file.as_path()),
        Some(Path::new("/etc/ca.pem"))
    );
    assert_eq!(config.retention.history_ms, 30 * 86_400_000);
    let [notify, orders] = config.handlers.as_slice() else { panic!("two handlers") };
    assert_eq!(
        (notify.name.as_str(), notify.policy.timeout_ms, notify.policy.concurrency),
        ("notify", 30_000, 64)
    );
    assert_eq!(
        (notify.policy.retry.max_attempts, notify.policy.retry.factor, notify.policy.retry.max_ms),
        (3, 1.5, 600_000)
    );
    assert!(matches!(&notify.kind, Kind::Http(options) if options.url.path() == "/notify"));
    assert!(matches!(&orders.kind, Kind::Topic(options) if options.topic == "orders"));
    let problems = loaded.require_servers().expect_err("a file that is not there").to_string();
    assert!(problems.contains("cassandra.tls.ca_file names /etc/ca.pem, which cannot be read"), "{problems}");
    assert_eq!(problems.lines().count(), 1, "{problems}");
}

#[test]
fn a_flag_wins_over_the_environment_and_that_over_the_file() {
    let toml = "[http]\nlisten = \"127.0.0.1:1\"\n[kafka]\ngroup = \"file\"\nrack = \"r1\"\n";
    let mut setup = Setup::new(toml).environment(&[
        ("DUELINE_HTTP_LISTEN", "127.0.0.1:2"),
        ("DUELINE_KAFKA_GROUP", "env"),
        ("DUELINE_CASSANDRA_NODES", "c1:9042, c2:9042"),
        ("DUELINE_CASSANDRA_REPLICATION", "dc1=3, dc2=2"),
        ("DUELINE_KAFKA_LIBRDKAFKA_SECURITY_PROTOCOL", "SSL"),
        ("DUELINE_LOG", "debug,rdkafka=warn"),
        ("HOME", "/root"),
    ]);
    setup.sources.flags =
        vec![Flag { flag: "--listen", key: "http.listen", value: "127.0.0.1:3".to_owned() }];
    let loaded = setup.loaded();
    let config = &loaded.config;
    assert_eq!((config.http.listen.port(), config.http.advertise.as_str()), (3, "http://127.0.0.1:3"));
    assert_eq!((config.kafka.group.as_str(), config.kafka.rack.as_deref()), ("env", Some("r1")));
    assert_eq!(config.cassandra.nodes, ["c1:9042", "c2:9042"]);
    assert_eq!((config.cassandra.replication["dc1"], config.cassandra.replication["dc2"]), (3, 2));
    assert_eq!(config.kafka.librdkafka.0["security.protocol"], "SSL");
    let origin = |key: &str| {
        let entry = loaded.entries().into_iter().find(|entry| entry.key == key);
        entry.map(|entry| entry.origin.replace(&format!("{}/", setup.dir.path().display()), ""))
    };
    assert_eq!(origin("http.listen").as_deref(), Some("flag --listen"));
    assert_eq!(origin("kafka.group").as_deref(), Some("environment DUELINE_KAFKA_GROUP"));
    assert_eq!(origin("kafka.rack").as_deref(), Some("dueline.toml:5"));
    assert_eq!(origin("topics.prefix").as_deref(), Some("default"));
}

#[test]
fn secrets_come_from_files_and_the_environment_and_are_shown_nowhere() {
    let setup = Setup::new("");
    let (password, signing) = (
        setup.secret("pw", "hunter2-file\n"),
        setup.secret("signing", "hunter2-first-secret\nhunter2-second-secret\n"),
    );
    let toml = format!(
        "[kafka.librdkafka]\n\"sasl.password_file\" = {password:?}\n\"ssl.key.password\" = \"hunter2-inline\"\n\
         [cassandra]\nusername = \"u\"\n\
         [[handler]]\nname = \"a\"\nkind = \"http\"\nurl = \"http://x/\"\nsecrets_file = {signing:?}\n\
         [[handler]]\nname = \"b-c\"\nkind = \"http\"\nurl = \"http://x/\"\n"
    );
    let variables = [
        ("DUELINE_CASSANDRA_PASSWORD", "hunter2-env"),
        ("DUELINE_HANDLER_B_C_SECRETS", "hunter2-third-secret"),
    ];
    let setup = Setup::new(&toml).environment(&variables);
    let loaded = setup.loaded();
    let config = &loaded.config;
    assert_eq!(config.kafka.librdkafka.0["sasl.password"], "hunter2-file");
    assert_eq!(
        config.cassandra.credentials.as_ref().map(|(_, password)| password.expose()),
        Some("hunter2-env")
    );
    let secrets: Vec<usize> = config
        .handlers
        .iter()
        .map(|handler| match &handler.kind {
            Kind::Http(options) => options.secrets.len(),
            _ => 0,
        })
        .collect();
    assert_eq!(secrets, [2, 1]);
    for shown in [loaded.show(), format!("{config:?}"), format!("{:?}", loaded.entries())] {
        assert!(!shown.contains("hunter2"), "{shown}");
    }
    assert!(
        loaded.show().contains("# password is set and not shown # environment DUELINE_CASSANDRA_PASSWORD")
    );
}

#[test]
fn headers_for_the_collector_are_secrets_and_its_url_gets_a_path() {
    let setup = Setup::new("");
    let file = setup.secret("token", "Bearer hunter2-file\n");
    let toml = format!(
        "[otlp]\nendpoint = \"http://otel:4318\"\nsample_percent = 12.5\n\
         [otlp.headers]\nX-Team = \"hunter2-team\"\nauthorization_file = {file:?}\n"
    );
    let setup = Setup::new(&toml).environment(&[("DUELINE_OTLP_HEADERS_X_API_KEY", "hunter2-env")]);
    let loaded = setup.loaded();
    let otlp = &loaded.config.otlp;
    assert_eq!(otlp.endpoint.as_ref().map(|url| url.as_str()), Some("http://otel:4318/v1/traces"));
    assert_eq!(otlp.sample_percent, 12.5);
    let headers: Vec<_> = otlp.headers.iter().map(|(name, value)| (name.as_str(), value.expose())).collect();
    let wanted =
        [("authorization", "Bearer hunter2-file"), ("x-api-key", "hunter2-env"), ("x-team", "hunter2-team")];
    assert_eq!(headers, wanted);
    for shown in [loaded.show(), format!("{:?}", loaded.config), format!("{:?}", loaded.entries())] {
        assert!(!shown.contains("hunter2"), "{shown}");
    }
    assert!(loaded.show().contains(&format!("authorization_file = {file:?} # ")), "{}", loaded.show());

    let none = Setup::new("").environment(&[("DUELINE_OTLP_ENDPOINT", "https://otel/my/traces")]).loaded();
    let endpoint = none.config.otlp.endpoint.as_ref().map(|url| url.as_str());
    assert_eq!((endpoint, none.config.otlp.sample_percent), (Some("https://otel/my/traces"), 100.0));
    assert_eq!(Setup::new("").loaded().config.otlp.endpoint, None);
}

#[test]
fn what_is_shown_loads_back_to_the_same() {
    let loaded = Setup::new(FULL).loaded();
    let shown = loaded.show();
    let again = Setup::new(&shown).loaded();
    let without_origins = |text: &str| {
        text.lines().map(|line| line.split(" # ").next().unwrap_or_default().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(without_origins(&again.show()), without_origins(&shown));
    assert_eq!(format!("{:?}", again.config), format!("{:?}", loaded.config));
    assert!(shown.contains("session_timeout = \"6s\" # "), "{shown}");
    assert!(shown.contains("\n[handler.retry]\nmax_attempts = 3 # "), "{shown}");
    assert!(shown.contains("message_timeout = \"30s\" # default\n"), "{shown}");
}

#[test]
fn an_installation_with_servers_needs_their_names() {
    let loaded = Setup::new("").loaded();
    let missing = loaded.require_servers().expect_err("no servers").to_string();
    assert_eq!(
        missing,
        "kafka.brokers is not set: set it in the config file or by DUELINE_KAFKA_BROKERS\ncassandra.nodes is not set: set it in the config file or by DUELINE_CASSANDRA_NODES"
    );
}

#[test]
fn what_serve_would_refuse_without_a_connection_is_told_at_once() {
    let toml = "[kafka]\nbrokers = \"k1:9092,k2:0\"\n[cassandra]\nnodes = [\"c1\", \"c2:99999\", \"[::1]:9042\", \"c3:\"]\n\
        [[handler]]\nname = \"code\"\nkind = \"in-process\"\n";
    let loaded = Setup::new(toml).loaded();
    let problems = loaded.require_servers().expect_err("ports").to_string();
    let wrong: Vec<&str> =
        ["k2:0", "c2:99999", "c3:"].into_iter().filter(|word| problems.contains(word)).collect();
    assert_eq!((wrong.len(), problems.lines().count()), (3, 3), "{problems}");
    let problems = loaded.refuse_in_process().expect_err("no code").to_string();
    assert!(problems.contains("dueline.toml:7: handler.kind of code is \"in-process\""), "{problems}");
}

#[test]
fn dev_reads_its_file_and_environment_and_sets_servers_aside() {
    let toml = "[limits]\npayload_bytes = 4096\n[kafka]\nbrokers = \"k:9092\"\n[topics]\npartitions = 12\n\
        [cassandra]\npassword_file = \"/nowhere/password\"\n[[handler]]\nname = \"notify\"\nkind = \"log\"\n";
    let setup = Setup::new(toml).environment(&[("DUELINE_LOG", "debug")]);
    let (config, ignored) = load_dev(setup.sources.clone(), Path::new("/tmp/d")).expect("in order");
    assert_eq!((config.limits.payload_bytes, config.log.filter.as_str()), (4096, "debug"));
    assert_eq!((config.topics.partitions, config.kafka.brokers), (EMBEDDED_SHARDS, None));
    let names: Vec<&str> = config.handlers.iter().map(|route| route.name.as_str()).collect();
    assert_eq!(names, ["notify", "log"]);
    assert_eq!(ignored, ["cassandra.password_file", "kafka.brokers", "topics.partitions"]);
}

#[test]
fn an_embedded_serve_sets_servers_aside_and_keeps_the_rules_of_serve() {
    let toml = "[topics]\npartitions = 12\n[http]\nlisten = \"0.0.0.0:7420\"\n\
        [[handler]]\nname = \"notify\"\nkind = \"http\"\nurl = \"http://127.0.0.1:9000/\"\n";
    let setup = Setup::new(toml)
        .environment(&[("DUELINE_KAFKA_BROKERS", "k:9092"), ("DUELINE_CASSANDRA_NODES", "c:9042")]);
    let (loaded, ignored) = load_embedded(setup.sources.clone(), Path::new("/tmp/d")).expect("in order");
    assert_eq!(ignored, ["cassandra.nodes", "kafka.brokers", "topics.partitions"]);
    let config = &loaded.config;
    assert_eq!((config.topics.partitions, config.kafka.brokers.as_ref()), (EMBEDDED_SHARDS, None));
    assert_eq!(config.embedded, Some(Embedded { data_dir: PathBuf::from("/tmp/d") }));
    let names: Vec<&str> = config.handlers.iter().map(|route| route.name.as_str()).collect();
    assert_eq!(names, ["notify"], "what is configured and nothing else");
    assert!(!config.is_dev && config.loopback_urls().is_none());
    let problems = config.require_access().expect_err("everyone would be let in").to_string();
    assert!(problems.contains("http.access is not set"), "{problems}");
}

#[test]
fn what_becomes_of_tasks_is_published_embedded_only_when_asked_for() {
    for (toml, variable, embedded, on_servers) in [
        ("", "", (false, false), (true, true)),
        ("[topics]\ntask_events = true\n", "", (true, false), (true, true)),
        ("[topics]\ntask_events = false\n", "", (false, false), (false, true)),
        ("", "DUELINE_TOPICS_TASK_EVENTS", (true, false), (true, true)),
        ("[topics]\npartitions = 9\n", "DUELINE_TOPICS_DEAD_LETTERS", (false, true), (true, true)),
    ] {
        let variables: &[(&str, &str)] = if variable.is_empty() { &[] } else { &[(variable, "true")] };
        let setup = Setup::new(toml).environment(variables);
        let published = |config: &Config| (config.topics.task_events, config.topics.dead_letters);
        let folder = Path::new("/tmp/d");
        let served = load_embedded(setup.sources.clone(), folder).expect("in order");
        let dev = load_dev(setup.sources.clone(), folder).expect("in order");
        assert_eq!(
            (published(&served.0.config), published(&dev.0)),
            (embedded, embedded),
            "{toml} {variable}"
        );
        assert!(dev.1.iter().chain(&served.1).all(|ignored| ignored == "topics.partitions"), "{:?}", dev.1);
        assert_eq!(published(&setup.loaded().config), on_servers, "{toml} {variable}");
    }
    assert!(!Config::dev(Path::new("/tmp/d"), "127.0.0.1:0".parse().expect("an address")).topics.task_events);
}

#[test]
fn a_replication_survives_a_data_centre_only_with_a_quorum_elsewhere() {
    for (replication, survives) in [
        ("dc1=2,dc2=2,dc3=1", true),
        ("dc1=1,dc2=1,dc3=1", true),
        ("dc1=3", false),
        ("dc1=3,dc2=2", false),
        ("dc1=2,dc2=2", false),
    ] {
        let setup = Setup::new(
            "[cassandra]\nnodes = [\"c\"]\nrequire_dc_loss_survival = true\n[kafka]\nbrokers = \"k\"\n",
        )
        .environment(&[("DUELINE_CASSANDRA_REPLICATION", replication)]);
        let loaded = setup.loaded();
        assert_eq!(loaded.config.cassandra.survives_dc_loss(), survives, "{replication}");
        assert!(loaded.require_servers().is_ok(), "what counts is the keyspace: {replication}");
    }
}

#[test]
fn dev_needs_no_config() {
    let config = Config::dev(Path::new("/tmp/dueline-data"), "127.0.0.1:0".parse().expect("an address"));
    assert_eq!(config.handlers.iter().map(|route| route.name.as_str()).collect::<Vec<_>>(), ["log"]);
    assert!(config.loopback_urls().is_some());
    let data_dir = PathBuf::from("/tmp/dueline-data");
    assert_eq!((config.is_dev, config.embedded), (true, Some(Embedded { data_dir })));
}
