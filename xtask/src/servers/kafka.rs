//! One Kafka node in KRaft mode, broker and controller in one process.

use super::ports::Ports;
use super::process::{Launch, Site};
use super::state;
use crate::say;
use anyhow::{Context, Result, bail};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

/// Any 16 bytes in base64: these read "dueline-servers!".
const CLUSTER_ID: &str = "ZHVlbGluZS1zZXJ2ZXJzIQ";
const IPV4: &str = "-Djava.net.preferIPv4Stack=true";
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);
const FRAME_BYTES_MAX: i32 = 1 << 20;

const LOGGING: &str = r#"<Configuration status="WARN">
  <Appenders>
    <Console name="out"><PatternLayout pattern="%d{ISO8601} %p %c{1} %m%n"/></Console>
  </Appenders>
  <Loggers><Root level="INFO"><AppenderRef ref="out"/></Root></Loggers>
</Configuration>
"#;

/// Writes the configuration, formats an empty data folder, and says how to start.
pub(super) fn prepare(site: &Site, ports: Ports) -> Result<Launch> {
    let data = site.dir.join("data");
    state::make_dir(&data)?;
    let properties = site.configure("server.properties", &server_properties(&data, ports))?;
    site.configure("log4j2.xml", LOGGING)?;
    if !data.join("meta.properties").exists() {
        format_storage(site, &properties)?;
    }
    Ok(site.launch(&["-Xms256m", "-Xmx512m", IPV4], &["kafka.Kafka", &properties]))
}

/// Whether the broker answers a metadata request and lists itself, which it does once the
/// controller lets clients in.
pub(super) fn answers(port: u16) -> Result<bool> {
    let mut stream = TcpStream::connect_timeout(&(Ipv4Addr::LOCALHOST, port).into(), PROBE_TIMEOUT)?;
    stream.set_read_timeout(Some(PROBE_TIMEOUT))?;
    stream.set_write_timeout(Some(PROBE_TIMEOUT))?;
    stream.write_all(&metadata_request())?;
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = i32::from_be_bytes(length);
    if !(0..=FRAME_BYTES_MAX).contains(&length) {
        bail!("port {port} does not speak Kafka's protocol");
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

fn server_properties(data: &Path, Ports { client, inner }: Ports) -> String {
    format!(
        "process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{inner}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listeners=PLAINTEXT://127.0.0.1:{client},CONTROLLER://127.0.0.1:{inner}
advertised.listeners=PLAINTEXT://127.0.0.1:{client}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={data}

# Topics are created with their settings, by name, or not at all.
auto.create.topics.enable=false
unclean.leader.election.enable=false

# One broker: internal topics have one copy, and few partitions so that a start is quick.
default.replication.factor=1
offsets.topic.replication.factor=1
offsets.topic.num.partitions=8
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1

# A killed broker may come back once the controller has given up on it: within 3 s, not 9.
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=500

# Groups form at once and may notice a dead member within seconds.
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
group.consumer.min.session.timeout.ms=1000
group.consumer.min.heartbeat.interval.ms=500
",
        data = data.display()
    )
}

fn format_storage(site: &Site, properties: &str) -> Result<()> {
    say::line("formatting Kafka's data folder");
    let main = ["kafka.tools.StorageTool", "format", "--cluster-id", CLUSTER_ID, "--config", properties];
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
    fn a_request_begins_with_the_length_of_the_rest() {
        let request = metadata_request();
        assert_eq!(request[..4], u32::try_from(request.len() - 4).unwrap().to_be_bytes());
    }
}
