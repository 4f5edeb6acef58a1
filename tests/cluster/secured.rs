//! A Kafka and a Cassandra that ask for TLS, passwords and rights (`cargo xtask servers --secured up`): one installation on
//! them, with the very users, rights and roles that deploy/k8s says, and what people meet who are refused.
//!
//! The tests use it one at a time. Every password and token has [`SENTINEL`] in it, so that none can be printed unseen.

mod certificates;
mod refused;
mod rights;
mod secrets;
mod users;

use std::future::Future;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::{Mutex, OnceCell};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use crate::instance::{self, Instance};
use crate::setup;
use crate::sink::Sink;

/// Part of every secret of these tests, and of nothing else.
pub(crate) const SENTINEL: &str = "hush5e7tin3l";

static TURN: Mutex<()> = Mutex::const_new(());
static MADE: OnceCell<()> = OnceCell::const_new();

/// The servers, and a folder for one test.
pub(crate) struct Secured {
    pub(crate) kafka: String,
    pub(crate) cassandra: String,
    /// Folder with the authorities.
    pub(crate) tls: PathBuf,
    pub(crate) dir: PathBuf,
    pub(crate) sink: Sink,
    /// Whether the servers were given another certificate.
    certified: AtomicBool,
}

/// What a process says to the servers of itself, and believes of them.
#[derive(Clone)]
pub(crate) struct Login {
    pub(crate) protocol: &'static str,
    pub(crate) kafka: (&'static str, String),
    pub(crate) kafka_ca: PathBuf,
    pub(crate) cassandra: Option<(&'static str, String)>,
    pub(crate) cassandra_ca: Option<PathBuf>,
}

/// The password of a user of these tests.
pub(crate) fn password(user: &str) -> String {
    format!("{SENTINEL}-of-{user}")
}

/// Runs a test when it is its turn. Without the servers it says so loudly and does nothing.
pub(crate) async fn on_secured<F: Future<Output = ()>>(name: &str, test: impl FnOnce(Secured) -> F) {
    let said = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let (Some(kafka), Some(cassandra), Some(tls)) = (
        said("DUELINE_TEST_SECURED_KAFKA"),
        said("DUELINE_TEST_SECURED_CASSANDRA"),
        said("DUELINE_TEST_SECURED_TLS"),
    ) else {
        let said =
            "DUELINE_TEST_SECURED_KAFKA, _CASSANDRA and _TLS are not set; `cargo xtask test` sets them";
        writeln!(std::io::stderr(), "SKIPPED: {name}: {said}").expect("stderr");
        return;
    };
    let _turn = TURN.lock().await;
    let dir = tempfile::Builder::new().prefix("dueline-secured-").tempdir().expect("a folder");
    let sink = Sink::start().await;
    let certified = AtomicBool::new(false);
    let secured = Secured { kafka, cassandra, tls: tls.into(), dir: dir.path().to_owned(), sink, certified };
    MADE.get_or_init(|| users::make(&secured)).await;
    test(secured).await;
}

impl Secured {
    /// What an instance says: the users `dueline`.
    pub(crate) fn instance(&self) -> Login {
        self.login("dueline", "dueline")
    }

    /// What the Jobs say that make topics and tables.
    pub(crate) fn setup(&self) -> Login {
        self.login("dueline-setup", "dueline_setup")
    }

    fn login(&self, kafka: &'static str, cassandra: &'static str) -> Login {
        Login {
            protocol: "SASL_SSL",
            kafka: (kafka, password(kafka)),
            kafka_ca: self.tls.join("ca.crt"),
            cassandra: Some((cassandra, password(cassandra))),
            cassandra_ca: Some(self.tls.join("ca.crt")),
        }
    }

    /// A file in the folder of the test.
    pub(crate) fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.dir.join(name);
        std::fs::write(&path, text).expect("a file");
        path
    }

    /// The configuration of `name`, with what is said in `more` at its end.
    pub(crate) fn config(&self, name: &str, login: &Login, port: u16, more: &str) -> PathBuf {
        let secret = |of: &str, text: &str| self.file(&format!("{name}.{of}"), text).display().to_string();
        let Login { protocol, kafka: (user, password), kafka_ca, .. } = login;
        let (kafka, cassandra, sink) = (&self.kafka, &self.cassandra, &self.sink.url);
        let (password, ca) = (secret("kafka", password), kafka_ca.display());
        let credentials = login.cassandra.as_ref().map(|(user, password)| {
            format!("username = \"{user}\"\npassword_file = \"{}\"", secret("cassandra", password))
        });
        let tls = login.cassandra_ca.as_ref().map(|ca| format!("tls = {{ ca_file = \"{}\" }}", ca.display()));
        let (credentials, tls) = (credentials.unwrap_or_default(), tls.unwrap_or_default());
        let text = format!(
            r#"
[instance]
name = "{name}"
[kafka]
brokers = "{kafka}"
[kafka.librdkafka]
"security.protocol" = "{protocol}"
"sasl.mechanism" = "SCRAM-SHA-512"
"sasl.username" = "{user}"
"sasl.password_file" = "{password}"
"ssl.ca.location" = "{ca}"
[topics]
partitions = 8
replication_factor = 1
min_insync_replicas = 1
[cassandra]
nodes = ["{cassandra}"]
replication = {{ dc1 = 1 }}
{credentials}
{tls}
[http]
listen = "127.0.0.1:{port}"
[log]
format = "text"
[[handler]]
name = "sink"
kind = "http"
url = "{sink}"
{more}
"#
        );
        self.file(&format!("{name}.toml"), &text)
    }

    /// Starts an instance as `name`.
    pub(crate) fn start(&self, name: &str, login: &Login) -> Instance {
        let port = instance::free_port();
        let config = self.config(name, login, port, "");
        Instance::of(name, instance::dueline(&["serve"], &config), &self.dir, port)
    }

    /// Runs a command of the product as `name`.
    pub(crate) async fn run(&self, name: &str, login: &Login, arguments: &[&str]) -> Said {
        let config = self.config(name, login, 1, "");
        Said::of(setup::output(instance::dueline(arguments, &config)).await)
    }

    /// An event of `queue` for the sink, produced by the user that deploy/k8s has as an example.
    pub(crate) async fn schedule(&self, queue: &str, id: &str) {
        self.schedule_trusting(queue, id, "ca.crt").await;
    }

    /// The same from a client that trusts another authority.
    pub(crate) async fn schedule_trusting(&self, queue: &str, id: &str, ca: &str) {
        let event = format!(r#"{{"queue":"{queue}","id":"{id}","handler":"sink","payload":{{}}}}"#);
        let (key, value) = (STANDARD.encode(queue), STANDARD.encode(event));
        let record = json!({"n": 0, "at": 0, "key": key, "value": value}).to_string();
        let user = "dueline-producer";
        let settings = json!({
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": user,
            "sasl.password": password(user),
            "ssl.ca.location": self.tls.join(ca),
            "message.timeout.ms": 30_000,
        });
        let python = std::env::var_os("DUELINE_TEST_PYTHON").expect("DUELINE_TEST_PYTHON is set");
        let mut command = Command::new(python);
        command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cluster/produce.py"));
        command.args(["confluent-murmur2", &self.kafka, "dueline.schedule"]);
        command.arg(self.file(&format!("{queue}-{id}.event"), &record)).arg(settings.to_string());
        let said = Said::of(setup::output(command).await);
        let told: serde_json::Value = serde_json::from_str(&said.out).unwrap_or_default();
        assert!(said.succeeded && told["error"].is_null() && told["n"] == 0, "{}", said.all());
    }

    /// Gives the servers another certificate, which restarts them. They have the good one again when the test is over.
    pub(crate) async fn certify(&self, certificate: &'static str) {
        self.certified.store(true, Ordering::Relaxed);
        tokio::task::spawn_blocking(move || servers_certify(certificate)).await.expect("they are back");
    }
}

impl Drop for Secured {
    fn drop(&mut self) {
        if self.certified.load(Ordering::Relaxed) {
            servers_certify("good");
        }
    }
}

fn servers_certify(certificate: &str) {
    let program = std::env::var_os("DUELINE_TEST_XTASK").expect("the program that runs the servers");
    let mut command = Command::new(program);
    let output = command.args(["servers", "--secured", "certify", certificate]).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "servers certify {certificate}: {said}");
}

/// What a command said.
pub(crate) struct Said {
    pub(crate) succeeded: bool,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Said {
    fn of(output: Output) -> Said {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
        Said { succeeded: output.status.success(), out: text(output.stdout), err: text(output.stderr) }
    }

    pub(crate) fn all(&self) -> String {
        format!("{}{}", self.out, self.err)
    }

    /// Says the same as `words`, each of them somewhere, and no secret.
    #[track_caller]
    pub(crate) fn says(&self, words: &[&str]) {
        let all = self.all();
        for word in words {
            assert!(all.contains(word), "{word:?} is not in:\n{all}");
        }
        assert!(!all.contains(SENTINEL), "a secret is in:\n{all}");
    }
}

/// What a file has; empty when there is none.
pub(crate) fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}
