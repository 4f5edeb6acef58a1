//! One Cassandra node, its only seed.

use super::ports::Ports;
use super::process::{Launch, Site};
use super::state;
use anyhow::Result;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::time::Duration;

const PROBE_TIMEOUT: Duration = Duration::from_secs(2);

const RACK: &str = "dc=dc1\nrack=r1\n";

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

const HEAP: [&str; 3] = ["-Xms1g", "-Xmx1g", "-XX:+UseG1GC"];

/// Nothing to wait for in a ring of one.
const QUICK_START: [&str; 4] = [
    "-Dcassandra-foreground=yes",
    "-Dcassandra.superuser_setup_delay_ms=0",
    "-Dcassandra.skip_wait_for_gossip_to_settle=0",
    "-Dcassandra.ring_delay_ms=1000",
];

/// Writes the configuration and says how to start.
pub(super) fn prepare(site: &Site, ports: Ports) -> Result<Launch> {
    let data = site.dir.join("data");
    state::make_dir(&data)?;
    let yaml = site.configure("cassandra.yaml", &cassandra_yaml(ports))?;
    site.configure("cassandra-rackdc.properties", RACK)?;
    site.configure("logback.xml", LOGGING)?;
    let mut jvm: Vec<String> = HEAP.iter().chain(&QUICK_START).map(|option| (*option).to_owned()).collect();
    jvm.push(format!("-javaagent:{}", agent(&site.jars)));
    jvm.push(format!("-Dcassandra.config=file://{}", yaml.replace(' ', "%20")));
    jvm.push(format!("-Dcassandra.storagedir={}", data.display()));
    for (module, package) in OPENS {
        jvm.push(format!("--add-opens={module}/{package}=ALL-UNNAMED"));
        jvm.push(format!("--add-exports={module}/{package}=ALL-UNNAMED"));
    }
    let jvm: Vec<&str> = jvm.iter().map(String::as_str).collect();
    Ok(site.launch(&jvm, &["org.apache.cassandra.service.CassandraDaemon"]))
}

/// Whether the native transport, the last thing to start, answers OPTIONS with SUPPORTED.
pub(super) fn answers(port: u16) -> Result<bool> {
    const OPTIONS: [u8; 9] = [4, 0, 0, 0, 5, 0, 0, 0, 0];
    const SUPPORTED: (u8, u8) = (0x84, 6);
    let mut stream = TcpStream::connect_timeout(&(Ipv4Addr::LOCALHOST, port).into(), PROBE_TIMEOUT)?;
    stream.set_read_timeout(Some(PROBE_TIMEOUT))?;
    stream.set_write_timeout(Some(PROBE_TIMEOUT))?;
    stream.write_all(&OPTIONS)?;
    let mut header = [0; 9];
    stream.read_exact(&mut header)?;
    Ok((header[0], header[4]) == SUPPORTED)
}

fn agent(jars: &Path) -> String {
    jars.join("jamm-0.4.0.jar").display().to_string()
}

fn cassandra_yaml(Ports { client, inner }: Ports) -> String {
    format!(
        "cluster_name: dueline-servers
listen_address: 127.0.0.1
rpc_address: 127.0.0.1
native_transport_port: {client}
storage_port: {inner}
ssl_storage_port: {inner}
seed_provider:
  - class_name: org.apache.cassandra.locator.SimpleSeedProvider
    parameters:
      - seeds: 127.0.0.1:{inner}
endpoint_snitch: GossipingPropertyFileSnitch
partitioner: org.apache.cassandra.dht.Murmur3Partitioner
num_tokens: 16

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
paxos_variant: v2

commitlog_sync: periodic
commitlog_sync_period: 10000ms
# Tests drop what they make: nothing is worth a snapshot.
auto_snapshot: false
# A test machine's disk may be nearly full.
commitlog_total_space: 512MiB
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_address_is_loopback() {
        let yaml = cassandra_yaml(Ports { client: 7, inner: 8 });
        for line in yaml.lines().filter(|line| line.contains("address:") || line.contains("seeds:")) {
            assert!(line.contains("127.0.0.1"), "{line}");
        }
    }
}
