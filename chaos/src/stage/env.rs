//! What instances are started with beside their configuration: a build, a clock that can be moved, a mistake.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use tokio::time::Instant;

use super::Stage;
use crate::clock::sleep_ms;
use crate::doctor::Line;
use crate::skew;

/// What a program says that makes a mistake on purpose.
const BROKEN: &str = "broken on purpose";
/// A server that was empty has its data within this.
const WELL_WITHIN: Duration = Duration::from_secs(180);
/// Between two looks, in milliseconds.
const LOOK_MS: i64 = 1_000;
/// What an instance says that saw its clock jump.
const JUMPED: &str = "the system clock moved against boot time";

impl Stage<'_> {
    /// The build that an instance is.
    pub(super) fn program(&self, name: &str) -> Result<&Path> {
        match self.changed.contains(name) {
            false => Ok(&self.options.program),
            true => self.options.next.as_deref().context("there is no next build: name it with --next"),
        }
    }

    /// Makes the tables as the build of an instance wants them, with the configuration that it was started with before.
    pub(crate) async fn migrate(&self, name: &str) -> Result<()> {
        let output = self.run_as(name, &["migrate", "up"]).await?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "dueline migrate up: {}: {said}", output.status);
        Ok(())
    }

    /// Runs a verb of an instance's build with its configuration.
    async fn run_as(&self, name: &str, verb: &[&str]) -> Result<Output> {
        let mut command = std::process::Command::new(self.program(name)?);
        command.args(verb).arg("--config").arg(self.site.file(&format!("{name}.toml"))).stdin(Stdio::null());
        Ok(tokio::task::spawn_blocking(move || command.output()).await??)
    }

    /// Waits until `dueline doctor` says that all servers are there with all their data.
    pub(crate) async fn until_well(&self) -> Result<()> {
        let name = self.names().first().cloned().context("an instance")?;
        let until = Instant::now() + WELL_WITHIN;
        loop {
            let output = self.run_as(&name, &["doctor", "-o", "json"]).await?;
            let left = unwell(&output.stdout)
                .with_context(|| format!("dueline doctor: {}", String::from_utf8_lossy(&output.stderr)))?;
            if left.is_empty() {
                return Ok(());
            }
            ensure!(Instant::now() < until, "after {WELL_WITHIN:?} doctor still says {left:?}");
            sleep_ms(LOOK_MS).await;
        }
    }

    /// Where the HTTP of each living instance is reached from here.
    pub(crate) fn http_ports(&self) -> Vec<(String, u16)> {
        self.live.iter().map(|instance| (instance.name.clone(), instance.port)).collect()
    }

    /// The version that an instance says it has.
    pub(crate) async fn version_of(&self, name: &str) -> Result<String> {
        let url = format!("http://127.0.0.1:{}/metrics", self.instance(name)?.port);
        let answer = reqwest::get(&url).await.with_context(|| format!("{name} does not answer"))?;
        let text = answer.text().await?;
        let line = text.lines().find(|line| line.starts_with("dueline_build_info{"));
        let version =
            line.and_then(|line| line.split_once("version=\"")).and_then(|(_, rest)| rest.split('"').next());
        Ok(version.with_context(|| format!("{name} does not say its version"))?.to_owned())
    }

    pub(super) fn env(&self, name: &str) -> Result<Vec<(&'static str, OsString)>> {
        let mut env = Vec::new();
        if let Some(library) = &self.options.clocks {
            self.set_clock(name, 0)?;
            env.extend(skew::env(library, &self.clock_file(name)));
        }
        env.extend(self.options.plant.iter().map(|mistake| ("TESTING_PLANT", mistake.into())));
        Ok(env)
    }

    /// Fails when instances do not make the mistake they were told to.
    pub(crate) fn expect_planted(&self) -> Result<()> {
        let Some(plant) = &self.options.plant else { return Ok(()) };
        for name in self.names() {
            let log = std::fs::read_to_string(self.log_file(&name))?;
            let told = log.contains(BROKEN) && log.contains(plant);
            ensure!(
                told,
                "{name} does not make the mistake {plant}: its program is not built with the feature `testing`"
            );
        }
        Ok(())
    }

    /// How much an instance has logged, in bytes.
    pub(crate) fn logged(&self, name: &str) -> Result<usize> {
        Ok(usize::try_from(std::fs::metadata(self.log_file(name)).with_context(|| name.to_owned())?.len())?)
    }

    /// How far an instance says that its clock moved, in milliseconds, each time that it saw that; of what it has logged since.
    pub(crate) fn jumps_since(&self, name: &str, logged: usize) -> Result<Vec<i64>> {
        let log = std::fs::read(self.log_file(name)).with_context(|| name.to_owned())?;
        Ok(jumps(&String::from_utf8_lossy(log.get(logged..).unwrap_or_default())))
    }

    fn log_file(&self, name: &str) -> PathBuf {
        self.site.file(&format!("{name}.log"))
    }

    fn clock_file(&self, name: &str) -> PathBuf {
        self.site.file(&format!("{name}.clock"))
    }

    /// Moves the wall clock of an instance; it is noticed within a second.
    pub(crate) fn set_clock(&self, name: &str, by_ms: i64) -> Result<()> {
        skew::set(&self.clock_file(name), by_ms)
    }
}

/// What doctor says of servers and their data that is not well. Silence is not well, but of replicas it speaks only when some are
/// missing.
fn unwell(said: &[u8]) -> Result<Vec<String>> {
    const SPOKEN_OF: [&str; 3] = ["kafka-topics", "cassandra-nodes", "cassandra-rows"];
    const PASSED_OVER: &str = "kafka-replicas";
    let lines: Vec<Line> = serde_json::from_slice(said)?;
    let silent = SPOKEN_OF.iter().filter(|check| !lines.iter().any(|line| line.check == **check));
    let silent = silent.map(|check| format!("nothing of {check}"));
    let is_ours = |check: &str| SPOKEN_OF.contains(&check) || check == PASSED_OVER;
    let bad = lines.iter().filter(|line| line.level != "ok" && is_ours(&line.check));
    Ok(bad.map(|line| line.what.clone()).chain(silent).collect())
}

fn jumps(log: &str) -> Vec<i64> {
    let told = log.lines().filter(|line| line.contains(JUMPED));
    told.filter_map(|line| line.split_once("step_ms=")?.1.split_whitespace().next()?.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::{jumps, unwell};

    #[test]
    fn servers_are_well_when_doctor_says_so_of_all_that_it_speaks_of() {
        let said = |lines: &[(&str, &str)]| {
            let line = |(level, check): &(&str, &str)| {
                format!(r#"{{"level":"{level}","check":"{check}","what":"{check} is {level}","todo":""}}"#)
            };
            unwell(format!("[{}]", lines.iter().map(line).collect::<Vec<_>>().join(",")).as_bytes()).unwrap()
        };
        let whole =
            [("ok", "kafka-topics"), ("ok", "cassandra-nodes"), ("ok", "cassandra-rows"), ("warn", "drains")];
        assert_eq!(said(&whole), Vec::<String>::new());
        assert_eq!(said(&whole[1..]), ["nothing of kafka-topics"]);
        assert_eq!(said(&[&whole[..], &[("warn", "kafka-replicas")]].concat()), ["kafka-replicas is warn"]);
        assert_eq!(said(&[&whole[..], &[("fail", "cassandra-rows")]].concat()), ["cassandra-rows is fail"]);
        assert!(unwell(b"").is_err());
    }

    #[test]
    fn jumps_are_read_from_what_an_instance_logs() {
        let log = "2026-11-25T20:30:15Z  INFO dueline::runtime: shards revoked shards=2\n\
            2026-11-25T19:30:52Z  WARN dueline::runtime::clock: the system clock moved against boot time: leases are \
            verified anew step_ms=-3599999\n";
        assert_eq!(jumps(log), [-3_599_999]);
    }
}
