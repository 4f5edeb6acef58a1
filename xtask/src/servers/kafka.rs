//! One Kafka node in KRaft mode, broker and controller in one process.

use super::ports::Ports;
use super::process::{self, Launch, Site};
use super::secured::Secured;
use super::state;
use crate::say;
use anyhow::{Context, Result, bail};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// Any 16 bytes in base64: these read "dueline-servers!".
const CLUSTER_ID: &str = "ZHVlbGluZS1zZXJ2ZXJzIQ";
const IPV4: &str = "-Djava.net.preferIPv4Stack=true";
const FRAME_BYTES_MAX: i32 = 1 << 20;

const LOGGING: &str = r#"<Configuration status="WARN">
  <Appenders>
    <Console name="out"><PatternLayout pattern="%d{ISO8601} %p %c{1} %m%n"/></Console>
  </Appenders>
  <Loggers><Root level="INFO"><AppenderRef ref="out"/></Root></Loggers>
</Configuration>
"#;

/// One node of a Kafka.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) id: u32,
    pub(crate) address: Ipv4Addr,
    pub(crate) ports: Ports,
    /// All controllers as `ID@HOST:PORT`, commas between; whether it is one of them.
    pub(crate) voters: String,
    pub(crate) is_controller: bool,
    pub(crate) rack: Option<String>,
    /// Copies of topics that say nothing, and how many of them must have a record.
    pub(crate) copies: u32,
    pub(crate) copies_min: u32,
    /// Without a heartbeat for this long it is dead to the controllers.
    pub(crate) session_ms: u32,
    pub(crate) heap_mb: u32,
    pub(crate) access: Access,
}

/// How clients come in.
#[derive(Debug)]
pub(crate) enum Access {
    /// Whoever asks is answered.
    Open,
    /// The same, and a second way in.
    Also(Secure),
    /// With TLS, passwords and rights only.
    Only(Secured),
}

/// A second way in for clients, by TLS and a password (SCRAM-SHA-512), without rights.
#[derive(Debug)]
pub(crate) struct Secure {
    pub(crate) port: u16,
    /// A key and its certificates, as PEM in one file.
    pub(crate) keystore: PathBuf,
    /// Names with their passwords. They are made with the data folder.
    pub(crate) users: Vec<(String, String)>,
}

impl Secure {
    const MECHANISM: &str = "SCRAM-SHA-512";

    fn properties(&self) -> String {
        let Secure { keystore, .. } = self;
        format!(
            "sasl.enabled.mechanisms={mechanism}
listener.name.secure.{name}.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.secure.ssl.keystore.type=PEM
listener.name.secure.ssl.keystore.location={keystore}
",
            mechanism = Secure::MECHANISM,
            name = Secure::MECHANISM.to_lowercase(),
            keystore = keystore.display()
        )
    }

    /// What makes the users when the data folder is made.
    fn arguments(&self) -> Vec<String> {
        self.users.iter().flat_map(|(name, password)| scram(name, password)).collect()
    }
}

/// What makes a user when the data folder is made.
pub(super) fn scram(name: &str, password: &str) -> [String; 2] {
    ["--add-scram".to_owned(), format!("{}=[name={name},password={password}]", Secure::MECHANISM)]
}

impl Node {
    /// The only one.
    pub(crate) fn alone(ports: Ports) -> Node {
        Node {
            id: 1,
            address: Ipv4Addr::LOCALHOST,
            ports,
            voters: format!("1@127.0.0.1:{}", ports.inner),
            is_controller: true,
            rack: None,
            copies: 1,
            copies_min: 1,
            // A killed broker may come back once the controller has given up on it: within 3 s, not 9.
            session_ms: 3_000,
            heap_mb: 512,
            access: Access::Open,
        }
    }
}

/// Writes the configuration, formats an empty data folder, and says how to start.
pub(crate) fn prepare(site: &Site, node: &Node) -> Result<Launch> {
    let data = site.dir.join("data");
    state::make_dir(&data)?;
    let properties = site.configure("server.properties", &server_properties(&data, node))?;
    site.configure("log4j2.xml", LOGGING)?;
    if !data.join("meta.properties").exists() {
        format_storage(site, &properties, node)?;
    }
    let heap = [format!("-Xms{}m", node.heap_mb / 2), format!("-Xmx{}m", node.heap_mb)];
    // One of many on a machine: threads and compilers of the JVM cost more than they gain.
    let small = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"];
    let small = if node.copies > 1 { &small[..] } else { &[] };
    let jvm: Vec<&str> = heap.iter().map(String::as_str).chain([IPV4]).chain(small.iter().copied()).collect();
    Ok(site.launch(&jvm, &["kafka.Kafka", &properties]))
}

/// Whether the broker answers a metadata request and lists itself, which it does once the
/// controller lets clients in.
pub(crate) fn answers(at: SocketAddr) -> Result<bool> {
    let mut stream = process::connect(at)?;
    stream.write_all(&metadata_request())?;
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = i32::from_be_bytes(length);
    if !(0..=FRAME_BYTES_MAX).contains(&length) {
        bail!("{at} does not speak Kafka's protocol");
    }
    let mut body = vec![0; usize::try_from(length)?];
    stream.read_exact(&mut body)?;
    Ok(brokers_listed(&body) > 0)
}

/// Metadata, version 4, of no topics: header (key 3, version, correlation id, client id), an empty
/// topic array, no auto-creation; all behind its length.
fn metadata_request() -> Vec<u8> {
    let mut body = Vec::new();
    body.extend(3_i16.to_be_bytes());
    body.extend(4_i16.to_be_bytes());
    body.extend(1_i32.to_be_bytes());
    body.extend(5_i16.to_be_bytes());
    body.extend(b"xtask");
    body.extend(0_i32.to_be_bytes());
    body.push(0);
    let length = u32::try_from(body.len()).unwrap_or_default();
    [length.to_be_bytes().as_slice(), &body].concat()
}

/// The length of the broker array, behind correlation id and throttle time.
fn brokers_listed(body: &[u8]) -> i32 {
    body.get(8..12).and_then(|count| count.try_into().ok()).map_or(0, i32::from_be_bytes)
}

fn server_properties(data: &Path, node: &Node) -> String {
    let Node { id, address, ports: Ports { client, inner }, voters, .. } = node;
    let Node { copies, copies_min, session_ms, .. } = node;
    let (roles, controller) = match node.is_controller {
        true => ("broker,controller", format!(",CONTROLLER://{address}:{inner}")),
        false => ("broker", String::new()),
    };
    let rack = node.rack.as_ref().map(|rack| format!("broker.rack={rack}\n")).unwrap_or_default();
    let (listener, second, access) = match &node.access {
        Access::Open => ("PLAINTEXT", String::new(), String::new()),
        Access::Also(secure) => {
            ("PLAINTEXT", format!(",SECURE://{address}:{}", secure.port), secure.properties())
        }
        Access::Only(secured) => (Secured::LISTENER, String::new(), secured.kafka_properties()),
    };
    format!(
        "process.roles={roles}
node.id={id}
{rack}controller.quorum.voters={voters}
controller.listener.names=CONTROLLER
inter.broker.listener.name={listener}
listeners={listener}://{address}:{client}{second}{controller}
advertised.listeners={listener}://{address}:{client}{second}
listener.security.protocol.map={listener}:{listener},CONTROLLER:PLAINTEXT,SECURE:SASL_SSL
log.dirs={data}

# Topics are created with their settings, by name, or not at all.
auto.create.topics.enable=false
unclean.leader.election.enable=false

# Few partitions of internal topics, so that a start is quick.
default.replication.factor={copies}
min.insync.replicas={copies_min}
offsets.topic.replication.factor={copies}
offsets.topic.num.partitions=8
transaction.state.log.replication.factor={copies}
transaction.state.log.min.isr={copies_min}
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor={copies}
share.coordinator.state.topic.min.isr={copies_min}

broker.session.timeout.ms={session_ms}
broker.heartbeat.interval.ms=500

# Groups form at once and may notice a dead member within seconds.
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
group.consumer.min.session.timeout.ms=1000
group.consumer.min.heartbeat.interval.ms=500
{access}",
        data = data.display()
    )
}

fn format_storage(site: &Site, properties: &str, node: &Node) -> Result<()> {
    say::line("formatting Kafka's data folder");
    let users = match &node.access {
        Access::Open => Vec::new(),
        Access::Also(secure) => secure.arguments(),
        Access::Only(_) => Secured::kafka_users().to_vec(),
    };
    let mut main =
        vec!["kafka.tools.StorageTool", "format", "--cluster-id", CLUSTER_ID, "--config", properties];
    main.extend(users.iter().map(String::as_str));
    let output = site
        .launch(&["-XX:TieredStopAtLevel=1"], &main)
        .command()
        .stdin(Stdio::null())
        .output()
        .context("running Kafka's StorageTool")?;
    if !output.status.success() {
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        bail!("Kafka's StorageTool ended with {}:\n{out}{err}", output.status);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metadata_answer_without_brokers_is_no_answer() {
        let answer = |brokers: i32| [[0; 8].as_slice(), &brokers.to_be_bytes()].concat();
        assert_eq!(brokers_listed(&answer(0)), 0);
        assert_eq!(brokers_listed(&answer(1)), 1);
        assert_eq!(brokers_listed(&[0; 7]), 0);
    }

    #[test]
    fn a_secure_way_in_is_a_listener_of_its_own() {
        let ports = Ports::at(19_092).unwrap();
        let plain = server_properties(Path::new("/d"), &Node::alone(ports));
        assert!(!plain.contains("SECURE://") && !plain.contains("keystore"));
        let users = vec![("a".to_owned(), "b".to_owned())];
        let secure = Secure { port: 9_093, keystore: "/k.pem".into(), users };
        assert_eq!(secure.arguments(), ["--add-scram", "SCRAM-SHA-512=[name=a,password=b]"]);
        let text =
            server_properties(Path::new("/d"), &Node { access: Access::Also(secure), ..Node::alone(ports) });
        for wanted in
            ["listeners=PLAINTEXT://127.0.0.1:19092,SECURE://127.0.0.1:9093,CONTROLLER", "=/k.pem\n"]
        {
            assert!(text.contains(wanted), "{text}");
        }
    }

    #[test]
    fn a_request_begins_with_the_length_of_the_rest() {
        let request = metadata_request();
        assert_eq!(request[..4], u32::try_from(request.len() - 4).unwrap().to_be_bytes());
    }
}
