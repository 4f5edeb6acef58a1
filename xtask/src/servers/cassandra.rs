//! One Cassandra node, its only seed.

use super::ports::Ports;
use super::process::{self, Launch, Site};
use super::secured::Secured;
use super::state;
use anyhow::{Context, Result, ensure};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

const FRAME_BYTES_MAX: u32 = 1 << 20;

const LOGGING: &str = r#"<configuration>
  <appender name="out" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%date{ISO8601} %level [%thread] %logger{1} %msg%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="out"/></root>
</configuration>
"#;

/// Packages of the JDK that Cassandra reaches into, as module and package.
const OPENS: [(&str, &str); 28] = [
    ("java.base", "java.io"),
    ("java.base", "java.lang"),
    ("java.base", "java.lang.module"),
    ("java.base", "java.lang.ref"),
    ("java.base", "java.lang.reflect"),
    ("java.base", "java.math"),
    ("java.base", "java.net"),
    ("java.base", "java.nio"),
    ("java.base", "java.util"),
    ("java.base", "java.util.concurrent"),
    ("java.base", "java.util.concurrent.atomic"),
    ("java.base", "jdk.internal.math"),
    ("java.base", "jdk.internal.misc"),
    ("java.base", "jdk.internal.module"),
    ("java.base", "jdk.internal.ref"),
    ("java.base", "jdk.internal.util.jar"),
    ("java.base", "jdk.internal.vm"),
    ("java.base", "sun.nio.ch"),
    ("java.rmi", "sun.rmi.registry"),
    ("java.rmi", "sun.rmi.server"),
    ("java.rmi", "sun.rmi.transport"),
    ("java.rmi", "sun.rmi.transport.tcp"),
    ("java.management", "com.sun.jmx.remote.security"),
    ("java.sql", "java.sql"),
    ("jdk.attach", "sun.tools.attach"),
    ("jdk.compiler", "com.sun.tools.javac.file"),
    ("jdk.management", "com.sun.management.internal"),
    ("jdk.management.agent", "jdk.internal.agent"),
];

/// Nothing to wait for in a ring of one; all nodes of a larger one start together.
const QUICK_START: [&str; 4] = [
    "-Dcassandra-foreground=yes",
    "-Dcassandra.superuser_setup_delay_ms=100",
    "-Dcassandra.skip_wait_for_gossip_to_settle=0",
    "-Dcassandra.ring_delay_ms=1000",
];

/// Idle workers of Cassandra look for work every ten microseconds for a while before they sleep. Five nodes on two cores spent
/// more on that than on all else, 70,000 changes of thread a second; one node beside a few thousand tasks a second a fifth of
/// its processor time.
const TIMER_SLACK: Duration = Duration::from_millis(1);

/// For a node that is one of many, or has little to do: threads and compilers of the JVM cost more than they gain.
pub(crate) const SMALL: [&str; 4] = ["-Xms400m", "-Xmx400m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"];

/// For the only node. What outlives a young collection lies in a memtable until that is flushed, so it is moved once and not up to
/// fifteen times; and a heap of this size, left alone, is marked before every second collection, which is two stops more.
const ALONE: [&str; 7] = [
    "-Xms1g",
    "-Xmx1g",
    "-XX:+UseG1GC",
    "-XX:MaxTenuringThreshold=0",
    "-XX:-G1UseAdaptiveIHOP",
    "-XX:InitiatingHeapOccupancyPercent=50",
    "-XX:G1HeapRegionSize=4m",
];

/// One node of a Cassandra.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) cluster: &'static str,
    pub(crate) address: Ipv4Addr,
    pub(crate) ports: Ports,
    /// Those it asks first, `HOST:PORT` with commas between.
    pub(crate) seeds: String,
    pub(crate) dc: String,
    pub(crate) rack: String,
    pub(crate) jvm: &'static [&'static str],
    pub(crate) access: Access,
    pub(crate) commit_log: CommitLog,
    pub(crate) memtables: Memtables,
    /// Ranges of the ring that it begins.
    pub(crate) tokens: u32,
}

/// When a write is on disk.
#[derive(Debug, Clone, Copy)]
pub(crate) enum CommitLog {
    /// Within ten seconds, as Cassandra has it by default. A killed process forgets what it acknowledged within
    /// about a tenth of a second: the log is replayed up to a marker that moves that often (CASSANDRA-13987).
    Periodic,
    /// Before it is acknowledged.
    Batch,
}

impl CommitLog {
    fn yaml(self) -> &'static str {
        match self {
            CommitLog::Periodic => "commitlog_sync: periodic\ncommitlog_sync_period: 10000ms",
            CommitLog::Batch => "commitlog_sync: batch",
        }
    }
}

/// Where rows lie until they are flushed.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Memtables {
    /// In a quarter of the heap, as Cassandra has it by default.
    OnHeap,
    /// Beside the heap: fewer flushes, so that fewer files are looked through for an id that is in none.
    OffHeap { mib: u32 },
}

impl Memtables {
    fn yaml(self) -> String {
        match self {
            Memtables::OnHeap => String::new(),
            Memtables::OffHeap { mib } => {
                format!("memtable_allocation_type: offheap_objects\nmemtable_offheap_space: {mib}MiB\n")
            }
        }
    }
}

/// How clients come in.
#[derive(Debug)]
pub(crate) enum Access {
    /// Whoever asks is answered.
    Open,
    /// Clients have to say who they are, and may do what they were granted.
    Passwords,
    /// The same, by TLS only.
    Secured(Secured),
}

impl Node {
    /// The only one.
    pub(crate) fn alone(ports: Ports) -> Node {
        Node {
            cluster: "dueline-servers",
            address: Ipv4Addr::LOCALHOST,
            ports,
            seeds: format!("127.0.0.1:{}", ports.inner),
            dc: "dc1".to_owned(),
            rack: "r1".to_owned(),
            jvm: &ALONE,
            access: Access::Open,
            commit_log: CommitLog::Periodic,
            memtables: Memtables::OffHeap { mib: 1024 },
            tokens: 16,
        }
    }
}

/// Writes the configuration and says how to start.
pub(crate) fn prepare(site: &Site, node: &Node) -> Result<Launch> {
    let data = site.dir.join("data");
    state::make_dir(&data)?;
    let yaml = site.configure("cassandra.yaml", &cassandra_yaml(node))?;
    let rack = format!("dc={}\nrack={}\n", node.dc, node.rack);
    site.configure("cassandra-rackdc.properties", &rack)?;
    site.configure("logback.xml", LOGGING)?;
    let mut jvm: Vec<String> =
        node.jvm.iter().chain(&QUICK_START).map(|option| (*option).to_owned()).collect();
    jvm.push(format!("-javaagent:{}", agent(&site.jars)));
    jvm.push(format!("-Dcassandra.config=file://{}", yaml.replace(' ', "%20")));
    jvm.push(format!("-Dcassandra.storagedir={}", data.display()));
    jvm.extend(opens());
    let jvm: Vec<&str> = jvm.iter().map(String::as_str).collect();
    let launch = site.launch(&jvm, &["org.apache.cassandra.service.CassandraDaemon"]);
    Ok(launch.timer_slack(TIMER_SLACK))
}

/// What Cassandra's programs need of the JDK, as options of the Java machine.
pub(crate) fn opens() -> impl Iterator<Item = String> {
    let option =
        |way: &'static str| move |(module, package)| format!("--add-{way}={module}/{package}=ALL-UNNAMED");
    OPENS.into_iter().map(option("opens")).chain(OPENS.into_iter().map(option("exports")))
}

/// Whether the native transport, the last thing to start, answers OPTIONS with SUPPORTED.
pub(crate) fn answers(at: SocketAddr) -> Result<bool> {
    const OPTIONS: [u8; 9] = [4, 0, 0, 0, 5, 0, 0, 0, 0];
    const SUPPORTED: (u8, u8) = (0x84, 6);
    let mut stream = process::connect(at)?;
    stream.write_all(&OPTIONS)?;
    let mut header = [0; 9];
    stream.read_exact(&mut header)?;
    Ok((header[0], header[4]) == SUPPORTED)
}

/// How many other nodes a node knows of, by its own table.
pub(crate) fn peers(at: SocketAddr) -> Result<u64> {
    let mut stream = process::connect(at)?;
    ensure!(startup(&mut stream)? == READY, "{at} does not let clients in");
    let (kind, rows) = query(&mut stream, "SELECT COUNT(*) FROM system.peers_v2")?;
    // One row with one value, a bigint: the last eight bytes.
    let count = rows
        .last_chunk()
        .filter(|_| kind == RESULT)
        .with_context(|| format!("{at} does not count its peers"))?;
    Ok(u64::from_be_bytes(*count))
}

/// Runs statements as a user of a node that asks for passwords.
pub(crate) fn run(at: SocketAddr, user: &str, password: &str, statements: &[String]) -> Result<()> {
    let mut stream = process::connect(at)?;
    ensure!(startup(&mut stream)? == AUTHENTICATE, "{at} does not ask who one is");
    let told = format!("\0{user}\0{password}");
    let body = [&u32::try_from(told.len())?.to_be_bytes(), told.as_bytes()].concat();
    ensure!(exchange(&mut stream, AUTH_RESPONSE, &body)?.0 == AUTH_SUCCESS, "{at} does not let {user} in");
    for statement in statements {
        let (kind, said) = query(&mut stream, statement)?;
        ensure!(kind == RESULT, "{statement}: {}", String::from_utf8_lossy(&said));
    }
    Ok(())
}

const STARTUP: u8 = 1;
const READY: u8 = 2;
const AUTHENTICATE: u8 = 3;
const QUERY: u8 = 7;
const RESULT: u8 = 8;
const AUTH_RESPONSE: u8 = 15;
const AUTH_SUCCESS: u8 = 16;

/// The kind of the answer: whether the node wants to know who one is.
fn startup(stream: &mut TcpStream) -> Result<u8> {
    let text =
        |of: &str| [&u16::try_from(of.len()).unwrap_or_default().to_be_bytes(), of.as_bytes()].concat();
    let options = [vec![0, 1], text("CQL_VERSION"), text("3.0.0")].concat();
    Ok(exchange(stream, STARTUP, &options)?.0)
}

fn query(stream: &mut TcpStream, text: &str) -> Result<(u8, Vec<u8>)> {
    const CONSISTENCY_ONE: [u8; 3] = [0, 1, 0];
    let length = u32::try_from(text.len())?.to_be_bytes();
    exchange(stream, QUERY, &[&length[..], text.as_bytes(), &CONSISTENCY_ONE].concat())
}

/// One request and its answer: version 4, one stream. The answer's kind and body.
fn exchange(stream: &mut TcpStream, kind: u8, body: &[u8]) -> Result<(u8, Vec<u8>)> {
    let length = u32::try_from(body.len())?.to_be_bytes();
    stream.write_all(&[&[4, 0, 0, 0, kind], &length[..], body].concat())?;
    let mut header = [0; 9];
    stream.read_exact(&mut header)?;
    let [_, _, _, _, kind, length @ ..] = header;
    let length = u32::from_be_bytes(length);
    ensure!(length <= FRAME_BYTES_MAX, "an answer of {length} bytes");
    let mut answer = vec![0; usize::try_from(length)?];
    stream.read_exact(&mut answer)?;
    Ok((kind, answer))
}

fn agent(jars: &Path) -> String {
    jars.join("jamm-0.4.0.jar").display().to_string()
}

fn cassandra_yaml(node: &Node) -> String {
    let Node { cluster, address, ports: Ports { client, inner }, seeds, tokens, .. } = node;
    let passwords = match node.access {
        Access::Open => "",
        Access::Passwords | Access::Secured(_) => {
            "authenticator: PasswordAuthenticator\nauthorizer: CassandraAuthorizer\n"
        }
    };
    let secured = match &node.access {
        Access::Open | Access::Passwords => String::new(),
        Access::Secured(secured) => secured.cassandra_yaml(),
    };
    let commit_log = node.commit_log.yaml();
    let memtables = node.memtables.yaml();
    format!(
        "cluster_name: {cluster}
listen_address: {address}
rpc_address: {address}
auto_bootstrap: false
native_transport_port: {client}
storage_port: {inner}
ssl_storage_port: {inner}
seed_provider:
  - class_name: org.apache.cassandra.locator.SimpleSeedProvider
    parameters:
      - seeds: \"{seeds}\"
endpoint_snitch: GossipingPropertyFileSnitch
partitioner: org.apache.cassandra.dht.Murmur3Partitioner
num_tokens: {tokens}

# Expiry dates past 2038 and the current table format.
storage_compatibility_mode: NONE
sstable:
  selected_format: bti
memtable:
  configurations:
    trie:
      class_name: TrieMemtable
    default:
      inherits: trie
{memtables}paxos_variant: v2

{commit_log}
# Tests drop what they make: nothing is worth a snapshot.
auto_snapshot: false
# A test machine's disk may be nearly full.
commitlog_total_space: 512MiB
{passwords}{secured}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_address_is_loopback() {
        let yaml = cassandra_yaml(&Node::alone(Ports { client: 7, inner: 8 }));
        for line in yaml.lines().filter(|line| line.contains("address:") || line.contains("seeds:")) {
            assert!(line.contains("127.0.0.1"), "{line}");
        }
    }
}
