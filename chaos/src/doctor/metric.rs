//! Whether a running instance exports what doctor would say about data centres.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tokio::time::Instant;

use super::{HTTP, Patient};
use crate::cluster;
use crate::instance::{Instance, Start};
use crate::site::port_of;

/// An instance asks once a minute, and a broker that comes back catches up.
const PATIENCE: Duration = Duration::from_secs(150);
const POLL: Duration = Duration::from_millis(500);
/// One broker and one node: without them no data centre more can be lost.
const SERVERS: [&str; 2] = ["kafka-6", "cassandra-5"];

/// Runs an instance on the whole cluster, takes a broker and a node away, and brings them back. To be called from the thread
/// that the instance ends with.
pub(super) async fn follows(patient: &Patient) -> Result<()> {
    let log = patient.dir.join("instance.log");
    let instance = Instance::start(Start {
        name: "doctor",
        port: port_of(HTTP)?,
        program: &patient.program,
        config: &patient.config,
        log: &log,
        network: None,
        env: &[],
    })?;
    let both = |value: &str| ["kafka", "cassandra"].map(|layer| format!("{{layer=\"{layer}\"}} {value}"));
    until(&both("1"), &log).await.context("the whole cluster")?;
    cluster::act(&[&["kill"], &SERVERS[..]].concat()).await?;
    until(&both("0"), &log).await.context("without a broker and a node")?;
    cluster::act(&[&["start"], &SERVERS[..]].concat()).await?;
    until(&both("1"), &log).await.context("with all of them again")?;
    instance.kill()
}

/// Polls the metrics until they have lines.
async fn until(endings: &[String], log: &Path) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let answer = reqwest::get(format!("http://{HTTP}/metrics")).await;
        let text = match answer {
            Ok(answer) => answer.text().await.unwrap_or_default(),
            Err(_) => String::new(),
        };
        let lines: Vec<&str> =
            text.lines().filter(|line| line.starts_with("dueline_dc_loss_survivable{")).collect();
        if endings.iter().all(|ending| lines.iter().any(|line| line.ends_with(ending.as_str()))) {
            return Ok(());
        }
        ensure!(
            Instant::now() < deadline,
            "an instance says {lines:?}, not {endings:?}; its log is {}",
            log.display()
        );
        tokio::time::sleep(POLL).await;
    }
}
