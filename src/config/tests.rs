//! The configuration as its users meet it: layers, problems, secrets.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::{Config, Flag, Loaded, Problems, Protocol, Sources, load};
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

/// Checks that a file has just this problem.
fn check_problem(toml: &str, problem: &str) {
    assert_eq!(Setup::new(toml).problems(), [problem], "{toml}");
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
    assert!(loaded.require_servers().is_ok());
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
fn an_unknown_key_is_refused_with_its_line_and_the_nearest_known_one() {
    check_problem(
        "[kafka]\nbrokers = \"k:9092\"\nsession_timout = \"6s\"\n",
        "dueline.toml:3: kafka.session_timout is not a key; did you mean kafka.session_timeout?",
    );
    check_problem("[kafak]\n", "dueline.toml:1: kafak is not a key; did you mean kafka?");
    check_problem("[[handlers]]\n", "dueline.toml:1: handlers is not a key; did you mean handler?");
    check_problem(
        "[[handler]]\nname = \"a\"\nkind = \"log\"\nretry.max_atempts = 3\n",
        "dueline.toml:4: retry.max_atempts is not a key; did you mean retry.max_attempts?",
    );
    check_problem("zzz = 1", "dueline.toml:1: zzz is not a key; docs/configuration.md has them all");
    let setup = Setup::new("").environment(&[
        ("DUELINE_KAFKA_BROKER", "k:9092"),
        ("DUELINE_SERVICE_HOST", "10.0.0.1"),
        ("DUELINE_TEST_KAFKA", "k:9092"),
        ("DUELINE_CONFIG", "x.toml"),
    ]);
    let problem = "environment DUELINE_KAFKA_BROKER: DUELINE_KAFKA_BROKER is not a variable of Dueline; did you mean DUELINE_KAFKA_BROKERS?";
    assert_eq!(setup.problems(), [problem]);
}

#[test]
fn a_value_out_of_bounds_or_of_another_type_is_refused_in_words() {
    for (toml, problem) in [
        (
            "[ownership]\nlease = 6",
            "ownership.lease must be a duration in quotes from \"3s\" to \"5m\"; found 6 without quotes",
        ),
        (
            "[ownership]\nlease = \"6\"",
            "ownership.lease must be a duration in quotes from \"3s\" to \"5m\"; found \"6\", which is not a duration; write one like \"500ms\", \"10s\", \"1h30m\" or \"PT10M\"",
        ),
        (
            "[ownership]\nlease = \"1s\"",
            "ownership.lease must be a duration in quotes from \"3s\" to \"5m\"; found \"1s\"",
        ),
        ("[topics]\npartitions = 0", "topics.partitions must be a whole number from 1 to 10000; found 0"),
        (
            "[topics]\npartitions = \"64\"",
            "topics.partitions must be a whole number from 1 to 10000; found \"64\"",
        ),
        (
            "[topics]\nprefix = \"a b\"",
            "topics.prefix must be 1 to 200 letters, digits, \".\", \"_\" and \"-\"; found \"a b\"",
        ),
        (
            "[kafka]\nprotocol = \"share\"",
            "kafka.protocol must be one of \"classic\", \"consumer\"; found \"share\"",
        ),
        (
            "[kafka]\nbrokers = [\"k\"]",
            "kafka.brokers must be a text of one line, up to 4096 bytes; found a array",
        ),
        (
            "[cassandra]\nnodes = []",
            "cassandra.nodes must be a list of 1 to 256 texts, none empty; found 0 of them",
        ),
        (
            "[cassandra]\nnodes = \"c1\"",
            "cassandra.nodes must be a list of 1 to 256 texts, none empty; found \"c1\"",
        ),
        (
            "[cassandra]\nkeyspace = \"Due\"",
            "cassandra.keyspace must be up to 48 small letters, digits and \"_\", a letter first; found \"Due\"",
        ),
        (
            "[cassandra.replication]\ndc1 = 0",
            "cassandra.replication.dc1 must be a whole number from 1 to 15; found 0",
        ),
        (
            "[http]\nlisten = \"7420\"",
            "http.listen must be an address and a port like \"127.0.0.1:7420\"; found \"7420\"",
        ),
        (
            "[http]\nadvertise = \"dl-1:7420\"",
            "http.advertise must be an http or https URL; found \"dl-1:7420\", which has the scheme \"dl-1\"; only http and https are called",
        ),
        (
            "[cassandra]\nrequire_dc_loss_survival = \"yes\"",
            "cassandra.require_dc_loss_survival must be true or false; found \"yes\"",
        ),
    ] {
        check_problem(toml, &format!("dueline.toml:2: {problem}"));
    }
    check_problem("kafka = 1", "dueline.toml:1: kafka must be a table: write [kafka] and its keys below");
    check_problem(
        "[kafka.librdkafka]\nsecurity.protocol = \"SSL\"",
        "dueline.toml:2: kafka.librdkafka.security must be one value: a name with dots needs quotes, as in \"security.protocol\" = \"SSL\"",
    );
}

#[test]
fn what_is_not_toml_is_refused_with_its_line() {
    let problems = Setup::new("[kafka]\nbrokers = \"k\n").problems();
    assert!(problems[0].starts_with("dueline.toml:2: is not TOML: "), "{problems:?}");
    let missing = load(Sources { file: Some("/nowhere/dueline.toml".into()), ..Sources::default() });
    let text = missing.err().expect("no such file").to_string();
    assert!(text.starts_with("config file /nowhere/dueline.toml cannot be read: "), "{text}");
}

#[test]
fn everything_wrong_is_found_at_once() {
    let problems = Setup::new("[kafka]\nx = 1\nprotocol = 2\n[limits]\npayload_bytes = 1\n").problems();
    assert_eq!(problems.len(), 3, "{problems:?}");
}

#[test]
fn rules_between_keys_are_kept() {
    for (toml, problem) in [
        (
            "[topics]\nreplication_factor = 1",
            "topics.min_insync_replicas is 2, but there are only 1 replicas (topics.replication_factor): nothing could be written",
        ),
        (
            "[cassandra]\nusername = \"u\"",
            "dueline.toml:2: cassandra.username needs a password: set cassandra.password_file or DUELINE_CASSANDRA_PASSWORD",
        ),
        (
            "[cassandra.tls]\nkey_file = \"k\"",
            "dueline.toml:2: cassandra.tls.key_file needs its certificate: set cassandra.tls.cert_file too",
        ),
        (
            "[retention]\nhistory = \"2d\"\nrepeat_window = \"2d\"",
            "dueline.toml:3: retention.repeat_window must be shorter than retention.history: a repeat is known by the history",
        ),
        (
            "[kafka.producer]\nacks = 1",
            "dueline.toml:2: kafka.producer.acks is set by Dueline itself, as its promises rest on it: remove it",
        ),
        (
            "[kafka.librdkafka]\n\"group.id\" = \"g\"",
            "dueline.toml:2: kafka.librdkafka.group.id is set by Dueline itself, as its promises rest on it: set kafka.group instead",
        ),
    ] {
        check_problem(toml, problem);
    }
}

#[test]
fn handlers_are_checked() {
    for (handler, problem) in [
        ("kind = \"log\"", "1: handler.name is missing: write name = …, the name that schedule events use"),
        (
            "name = \"a\"",
            "1: handler.kind is missing: write kind = …, one of \"http\", \"topic\", \"log\", \"in-process\"",
        ),
        (
            "name = \"a\"\nkind = \"grpc\"",
            "3: handler.kind \"grpc\" is not there yet: use \"http\", \"topic\", \"log\" or \"in-process\"",
        ),
        (
            "name = \"a\"\nkind = \"http\"",
            "1: handler.url is missing: write url = …, where the callback goes",
        ),
        (
            "name = \"a\"\nkind = \"log\"\nurl = \"http://x/\"",
            "4: handler.url is only for handlers of kind \"http\", and this one is of kind \"log\": remove it",
        ),
        (
            "name = \"http://x/\"\nkind = \"log\"",
            "2: handler.name looks like a URL: give the handler a name and put the URL into `url`",
        ),
        (
            "name = \"a\"\nkind = \"topic\"\ntopic = \"dueline.schedule\"",
            "4: handler.topic \"dueline.schedule\" is one of Dueline's own topics: produce to another",
        ),
        (
            "name = \"a\"\nkind = \"http\"\nurl = \"http://x/\"\nretryable = [\"302\"]",
            "5: handler.retryable \"302\" must lie in 200 to 299 or 400 to 599: redirects are never followed and always fatal",
        ),
        (
            "name = \"a\"\nkind = \"http\"\nurl = \"http://x/\"\nsucceeded = [\"2xx\", \"503\"]",
            "5: handler.succeeded makes 503 both a success and retryable: keep one",
        ),
        (
            "name = \"a\"\nkind = \"log\"\nretry.initial = \"1h\"",
            "4: handler.retry.initial is longer than retry.max, the longest wait",
        ),
        (
            "name = \"a\"\nkind = \"log\"\nretry.jitter = 1.5",
            "4: retry.jitter must be a number from 0 to 1; found \"1.5\"",
        ),
    ] {
        check_problem(&format!("[[handler]]\n{handler}"), &format!("dueline.toml:{problem}"));
    }
    let twice = "[[handler]]\nname = \"a\"\nkind = \"log\"\n[[handler]]\nname = \"a\"\nkind = \"log\"\n";
    check_problem(twice, "dueline.toml:5: handler.name is \"a\" again: each handler has a name of its own");
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
fn a_secret_that_is_wrong_is_not_shown_either() {
    let shown = |setup: &Setup| setup.problems().join("\n");
    let text = shown(&Setup::new("[cassandra]\npassword = \"hunter2\"\n"));
    assert_eq!(
        text,
        "dueline.toml:2: cassandra.password is a secret and does not belong in this file: name a file with it, or set it in the environment"
    );
    let handler = "[[handler]]\nname = \"a\"\nkind = \"http\"\nurl = \"http://x/\"\n";
    let text = shown(&Setup::new(handler).environment(&[("DUELINE_HANDLER_A_SECRETS", "hunter2")]));
    assert_eq!(
        text,
        "environment DUELINE_HANDLER_A_SECRETS: handler.secrets secret 1 must have 16 to 512 bytes"
    );
    let text = shown(&Setup::new("").environment(&[("DUELINE_CASSANDRA_PASSWORD", "hunter2\n")]));
    assert_eq!(
        text,
        "environment DUELINE_CASSANDRA_PASSWORD: cassandra.password must be a text of one line; found another"
    );
    let text = shown(&Setup::new("[cassandra]\nusername = \"u\"\npassword_file = \"/nowhere/pw\"\n"));
    assert!(
        text.starts_with("dueline.toml:3: cassandra.password_file names /nowhere/pw, which cannot be read: "),
        "{text}"
    );
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
        assert_eq!(loaded.require_servers().is_ok(), survives, "{replication}");
    }
}

#[test]
fn dev_needs_no_config() {
    let config = Config::dev(Path::new("/tmp/dueline-data"), "127.0.0.1:0".parse().expect("an address"));
    assert_eq!(config.handlers.iter().map(|route| route.name.as_str()).collect::<Vec<_>>(), ["log"]);
    assert!(config.loopback_urls().is_some());
    assert_eq!(config.dev.map(|dev| dev.data_dir), Some(PathBuf::from("/tmp/dueline-data")));
}
