//! What is outside of Kubernetes: one Kafka, by TLS and password, and one Cassandra, by password, on the shared address.

use crate::k8s::cluster::keys::Authority;
use crate::k8s::cluster::plan::SHARED;
use crate::k8s::cluster::{Up, part};
use crate::servers::ports::Ports;
use crate::servers::process::{Identity, Launch, Site, tail};
use crate::servers::state::{self, Cache};
use crate::servers::{cassandra, jars, kafka};
use crate::{packages, say};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The port that network policies let pods reach with TLS.
pub(super) const KAFKA_PORT: u16 = 9_093;
pub(super) const CASSANDRA_PORT: u16 = 9_042;
/// For brokers and this check, without TLS.
const KAFKA_PLAIN: Ports = Ports { client: 19_092, inner: 19_093 };
const CASSANDRA_PORTS: Ports = Ports { client: CASSANDRA_PORT, inner: 7_000 };
const CASSANDRA: SocketAddr = SocketAddr::new(IpAddr::V4(SHARED), CASSANDRA_PORT);
/// The data centre of the only node.
pub(super) const CASSANDRA_DC: &str = "dc1";
const READY_WAIT_MAX: Duration = Duration::from_secs(180);
const READY_POLL_INTERVAL: Duration = Duration::from_millis(100);
const LOG_TAIL_LINES: usize = 20;

/// Both, and how the broker is started again.
#[derive(Debug)]
pub(super) struct Backing {
    kafka: Identity,
    kafka_launch: Launch,
    kafka_site: Site,
    /// Who signs the broker's certificate.
    pub(super) authority: PathBuf,
}

/// The superuser of a Cassandra that was just made, and its password.
const SUPERUSER: &str = "cassandra";

/// What the components of the overlay want in Secrets, one each.
#[derive(Debug)]
pub(super) struct Passwords {
    pub(super) kafka: String,
    pub(super) kafka_setup: String,
    pub(super) cassandra: String,
    pub(super) cassandra_setup: String,
}

impl Backing {
    /// Starts both with empty data.
    pub(super) fn start(up: &Up, cache: &Cache, passwords: &Passwords) -> Result<Backing> {
        let dir = part(up, "backing")?;
        let authority = Authority::make(&dir, "dueline-test-kafka")?;
        let signed = authority.sign("kafka", &format!("/CN={SHARED}"), Some(SHARED))?;
        let keystore = dir.join("kafka.pem");
        let text = [&signed.key, &signed.certificate]
            .map(|path| fs::read_to_string(path).unwrap_or_default())
            .concat();
        fs::write(&keystore, text).with_context(|| format!("writing {}", keystore.display()))?;
        let (kafka_site, cassandra_site) = {
            let _held = cache.lock()?;
            (site(cache, &dir, "kafka", &jars::KAFKA)?, site(cache, &dir, "cassandra", &jars::CASSANDRA)?)
        };
        let cassandra_node = cassandra::Node {
            address: SHARED,
            seeds: format!("{SHARED}:{}", CASSANDRA_PORTS.inner),
            dc: CASSANDRA_DC.to_owned(),
            jvm: &["-Xms512m", "-Xmx512m", "-XX:+UseSerialGC"],
            access: cassandra::Access::Passwords,
            ..cassandra::Node::alone(CASSANDRA_PORTS)
        };
        let cassandra =
            cassandra::prepare(&cassandra_site, &cassandra_node)?.start(&marker(&cassandra_site))?;
        let users = [("dueline", &passwords.kafka), ("dueline-setup", &passwords.kafka_setup)];
        let users = users.map(|(name, password)| (name.to_owned(), password.clone())).to_vec();
        let kafka_node = kafka::Node {
            address: SHARED,
            voters: format!("1@{SHARED}:{}", KAFKA_PLAIN.inner),
            access: kafka::Access::Also(kafka::Secure { port: KAFKA_PORT, keystore, users }),
            ..kafka::Node::alone(KAFKA_PLAIN)
        };
        let kafka_launch = kafka::prepare(&kafka_site, &kafka_node)?;
        let kafka = kafka_launch.start(&marker(&kafka_site))?;
        let backing = Backing { kafka, kafka_launch, kafka_site, authority: authority.certificate() };
        backing.wait_kafka()?;
        // The superuser is there some time after the node answers.
        let is_superuser_in = || cassandra::run(CASSANDRA, SUPERUSER, SUPERUSER, &[]).is_ok();
        wait(&cassandra, &cassandra_site, is_superuser_in)?;
        backing.let_setup_in(passwords)?;
        say::line(format_args!("Kafka and Cassandra answer on {SHARED}"));
        Ok(backing)
    }

    /// The role of the Jobs, as the README has it made.
    fn let_setup_in(&self, passwords: &Passwords) -> Result<()> {
        let password = &passwords.cassandra_setup;
        as_superuser(&[
            format!("CREATE ROLE dueline_setup WITH LOGIN = true AND PASSWORD = '{password}'"),
            "GRANT CREATE ON ALL KEYSPACES TO dueline_setup".to_owned(),
        ])
    }

    /// The role of instances, which may come in when the keyspace is there.
    pub(super) fn let_instances_in(&self, passwords: &Passwords) -> Result<()> {
        let password = &passwords.cassandra;
        as_superuser(&[
            format!("CREATE ROLE dueline WITH LOGIN = true AND PASSWORD = '{password}'"),
            "GRANT SELECT ON KEYSPACE dueline TO dueline".to_owned(),
            "GRANT MODIFY ON KEYSPACE dueline TO dueline".to_owned(),
            "GRANT SELECT ON TABLE system_views.settings TO dueline".to_owned(),
            "GRANT SELECT ON TABLE system.available_ranges_v2 TO dueline".to_owned(),
            "GRANT SELECT ON TABLE system_distributed.parent_repair_history TO dueline".to_owned(),
        ])
    }

    /// SIGKILL.
    pub(super) fn kill_kafka(&self) -> Result<()> {
        self.kafka.kill()
    }

    /// Starts the broker again with its data.
    pub(super) fn start_kafka(&mut self) -> Result<()> {
        self.kafka = self.kafka_launch.start(&marker(&self.kafka_site))?;
        self.wait_kafka()
    }

    fn wait_kafka(&self) -> Result<()> {
        wait(&self.kafka, &self.kafka_site, || {
            kafka::answers((SHARED, KAFKA_PLAIN.client).into()).unwrap_or(false)
        })
    }
}

fn as_superuser(statements: &[String]) -> Result<()> {
    cassandra::run(CASSANDRA, SUPERUSER, SUPERUSER, statements).context("making roles in Cassandra")
}

fn site(cache: &Cache, dir: &Path, name: &str, bundle: &jars::Bundle) -> Result<Site> {
    let dir = dir.join(name);
    state::remove_dir(&dir)?;
    state::make_dir(&dir)?;
    Ok(Site { java: packages::java()?, jars: jars::ensure(cache, bundle)?, dir })
}

/// By which it is known, and ended with the cluster.
fn marker(site: &Site) -> String {
    format!("-Ddueline.k8s.run={}", site.dir.display())
}

fn wait(process: &Identity, site: &Site, answers: impl Fn() -> bool) -> Result<()> {
    let begun = Instant::now();
    while !answers() {
        let log = site.log();
        ensure!(process.alive(), "it ended while starting:\n{}", tail(&log, LOG_TAIL_LINES));
        ensure!(begun.elapsed() < READY_WAIT_MAX, "it does not answer:\n{}", tail(&log, LOG_TAIL_LINES));
        std::thread::sleep(READY_POLL_INTERVAL);
    }
    Ok(())
}
