//! The brokers' shares of all partitions, dealt anew by Kafka's own tools, as an operator does it who has added brokers.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

use super::plan::{self, Place};
use super::state::{Cluster, State};
use crate::servers::jars;
use crate::servers::process::Site;
use crate::servers::state as files;
use crate::{packages, say};

const TOPICS: &str = "org.apache.kafka.tools.TopicCommand";
const REASSIGN: &str = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand";
/// Between two looks whether all copies are where they are to be, and how often at most.
const LOOK_EVERY: Duration = Duration::from_secs(2);
const LOOKS_MAX: u32 = 60;
/// A tool needs little, and ends soon.
const SMALL: [&str; 3] = ["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"];

/// Has Kafka propose a placement over all brokers that were started, and carry it out; returns when all copies are in place.
pub(super) fn deal(cluster: &Cluster, state: &State) -> Result<()> {
    let brokers: Vec<String> = state
        .servers
        .keys()
        .filter(|name| plan::is_kafka(name))
        .map(|name| plan::number(name).to_string())
        .collect();
    let tools = Tools::new(cluster)?;
    let topics = tools.run(TOPICS, &["--list"])?;
    let topics: Vec<_> = topics
        .lines()
        .filter(|topic| !topic.is_empty())
        .map(|topic| serde_json::json!({"topic": topic}))
        .collect();
    let moved =
        tools.write("topics.json", &serde_json::json!({"version": 1, "topics": topics}).to_string())?;
    let proposed = tools.run(
        REASSIGN,
        &["--topics-to-move-json-file", &moved, "--broker-list", &brokers.join(","), "--generate"],
    )?;
    let placement = tools.write("placement.json", proposal(&proposed)?)?;
    tools.run(REASSIGN, &["--reassignment-json-file", &placement, "--execute"])?;
    say::line(format_args!("{} topics are dealt to the brokers {}", topics.len(), brokers.join(", ")));
    for _ in 0..LOOKS_MAX {
        let said = tools.run(REASSIGN, &["--reassignment-json-file", &placement, "--verify"])?;
        if !said.contains("in progress") {
            say::line("all copies are in place");
            return Ok(());
        }
        std::thread::sleep(LOOK_EVERY);
    }
    bail!("the copies are not all in place after {LOOKS_MAX} looks")
}

/// The placement that follows the words about it.
fn proposal(said: &str) -> Result<&str> {
    let (_, proposed) =
        said.split_once("Proposed partition reassignment").context("Kafka proposed nothing")?;
    let placement = proposed.lines().find(|line| line.starts_with('{'));
    placement.with_context(|| format!("Kafka proposed no placement:\n{said}"))
}

/// Kafka's tools, in the network outside of all data centres.
struct Tools<'a> {
    cluster: &'a Cluster,
    site: Site,
    bootstrap: String,
}

impl<'a> Tools<'a> {
    fn new(cluster: &'a Cluster) -> Result<Tools<'a>> {
        let _held = cluster.cache.lock()?;
        let (java, jars) = (packages::java()?, jars::ensure(&cluster.cache, &jars::KAFKA)?);
        let dir = cluster.join("tools");
        files::make_dir(&dir)?;
        Ok(Tools { cluster, site: Site { java, jars, dir }, bootstrap: plan::addresses().kafka })
    }

    fn write(&self, name: &str, text: &str) -> Result<String> {
        self.site.configure(name, text)
    }

    fn run(&self, main: &str, arguments: &[&str]) -> Result<String> {
        let arguments = [&[main, "--bootstrap-server", &self.bootstrap][..], arguments].concat();
        let network = self.cluster.namespace(Place::Home).path();
        let mut command = self.site.launch(&SMALL, &arguments).within(network).command();
        let output = command.stdin(Stdio::null()).output().with_context(|| format!("running {main}"))?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{main} ended with {}:\n{said}{errors}", output.status);
        Ok(said)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_placement_is_found_among_words() {
        let said = "Current partition replica assignment\n{\"version\":1,\"a\":1}\n\nProposed partition reassignment configuration\n{\"version\":1,\"b\":2}\n";
        assert_eq!(proposal(said).unwrap(), "{\"version\":1,\"b\":2}");
        assert!(proposal("Current partition replica assignment\n{}\n").is_err());
    }
}
