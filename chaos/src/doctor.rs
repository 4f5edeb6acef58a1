//! `chaos doctor`: what `dueline doctor` says of three data centres that are whole, and of the same broken on purpose, one
//! thing at a time.
//!
//! Each case breaks something real (a topic, a keyspace, a row, a server), asks until doctor says what it has to say,
//! mends it, and asks until nothing fails. A case also fails by a `fail` that it does not name: a doctor that cries wolf is
//! no better than one that sleeps.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde::Deserialize;
use tokio::time::Instant;

use crate::cluster::Cluster;
use crate::ending::Ending;
use crate::{network, say, site};

mod cases;
mod faults;
mod metric;

/// Brokers are given up after seconds, and nodes come back after tens of them.
const PATIENCE: Duration = Duration::from_secs(120);

/// Where the instance listens.
const HTTP: &str = "127.0.0.1:7421";
/// The last case.
const METRIC: &str = "the metric of an instance";

/// What to run.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The program [default: the one of this checkout, built first]
    #[arg(long, value_name = "PATH")]
    dueline: Option<PathBuf>,
    /// Only cases whose name has this text, besides the whole cluster
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Folder for configurations
    #[arg(long, default_value = "target/chaos/doctor")]
    out: PathBuf,
}

impl Args {
    fn wants(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|text| name.contains(text.as_str()))
    }
}

/// A line of doctor.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Line {
    pub(crate) level: String,
    pub(crate) check: String,
    pub(crate) what: String,
    todo: String,
}

/// What doctor said and how it ended.
#[derive(Debug)]
struct Said {
    lines: Vec<Line>,
    code: Option<i32>,
}

impl Said {
    fn has(&self, (level, check): (&str, &str)) -> bool {
        self.lines.iter().any(|line| line.level == level && line.check == check)
    }

    fn fails(&self) -> impl Iterator<Item = &Line> {
        self.lines.iter().filter(|line| line.level == "fail")
    }

    /// Whether it said all of that, no other failure, and ended accordingly.
    fn is(&self, expected: &[(&str, &str)]) -> bool {
        let ends = if self.fails().count() == 0 { Some(0) } else { Some(1) };
        self.code == ends
            && expected.iter().all(|one| self.has(*one))
            && self.fails().all(|line| expected.contains(&("fail", &line.check)))
            && self.lines.iter().all(|line| line.level == "ok" || !line.todo.is_empty())
    }
}

/// Makes the cluster, runs all cases, and prints the table.
pub(crate) fn run(args: &Args) -> Result<bool> {
    let program = site::program(args.dueline.as_deref(), false)?;
    let ending = Ending::listen()?;
    // It ends last, however this ends.
    let cluster = Cluster::up(false)?;
    network::entered(cluster.home.clone())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("a runtime")?;
    runtime.block_on(ending.unless(run_cases(args, program, &cluster)))
}

async fn run_cases(args: &Args, program: PathBuf, cluster: &Cluster) -> Result<bool> {
    std::fs::create_dir_all(&args.out).with_context(|| format!("{}", args.out.display()))?;
    let patient = Patient::make(cluster, program, &args.out).await?;
    let mut table = "| broken on purpose | what doctor said |\n|---|---|\n".to_owned();
    let mut good = true;
    let whole = patient.until("whole", &patient.config, &[]).await;
    good &= row(&mut table, "nothing", &[], &whole?);
    for case in cases::all() {
        if !args.wants(case.name) {
            continue;
        }
        say::line(format_args!("breaking: {}", case.name));
        let config = faults::make(&patient, &case.fault).await.with_context(|| case.name)?;
        let said = patient.until(case.name, &config, case.expected).await?;
        good &= row(&mut table, case.name, case.expected, &said);
        faults::mend(&patient, &case.fault).await.with_context(|| case.name)?;
        let mended = patient.until("mended", &patient.config, &[]).await?;
        if !mended.is(&[]) {
            let left: Vec<&Line> = mended.fails().collect();
            bail!("after {:?} was mended doctor still says {left:?}", case.name);
        }
    }
    say::data(table)?;
    if args.wants(METRIC) {
        metric::follows(&patient).await.context(METRIC)?;
        say::data(
            "`dueline_dc_loss_survivable` of an instance: 1 when whole, 0 without a broker and a node, 1 again",
        )?;
    }
    Ok(good)
}

/// Adds a row; whether it is as expected.
fn row(table: &mut String, name: &str, expected: &[(&str, &str)], said: &Said) -> bool {
    let good = said.is(expected);
    let mut told: Vec<&Line> = Vec::new();
    for line in said.lines.iter().filter(|line| line.level != "ok") {
        // One of each kind.
        if !told.iter().any(|one| one.check == line.check && one.level == line.level) {
            told.push(line);
        }
    }
    let each = told.iter().map(|line| format!("`{}` `{}`: {}", line.level, line.check, line.what));
    let mut words = each.collect::<Vec<_>>().join("<br>");
    if words.is_empty() {
        words = format!("{} lines, all `ok`", said.lines.len());
    }
    if !good {
        say::line(format_args!("NOT AS EXPECTED: {name}: wanted {expected:?}, said {said:#?}"));
        words = format!("NOT AS EXPECTED {expected:?}: {words}");
    }
    table.push_str(&format!("| {name} | {} |\n", words.replace('|', "/")));
    good
}

/// The installation that is looked at.
pub(crate) struct Patient {
    program: PathBuf,
    kafka: String,
    cassandra: String,
    dir: PathBuf,
    /// Prefix of the topics, group and keyspace.
    unique: String,
    /// Its configuration.
    config: PathBuf,
}

/// What a configuration has that differs from case to case.
struct Config<'a> {
    prefix: &'a str,
    keyspace: &'a str,
    partitions: u32,
}

impl Patient {
    async fn make(cluster: &Cluster, program: PathBuf, dir: &Path) -> Result<Patient> {
        let unique = format!("doctor_{}", &uuid::Uuid::new_v4().simple().to_string()[..8]);
        let mut patient = Patient {
            program,
            kafka: cluster.kafka.clone(),
            cassandra: cluster.cassandra.clone(),
            dir: dir.to_owned(),
            unique,
            config: PathBuf::new(),
        };
        let own = Config { prefix: &patient.unique, keyspace: &patient.unique, partitions: faults::SHARDS };
        let config = patient.write("whole", &own)?;
        patient.config = config;
        patient.dueline(&["topics", "create"]).await?;
        patient.dueline(&["migrate", "up"]).await?;
        faults::store_shards(&patient).await?;
        Ok(patient)
    }

    fn write(&self, name: &str, config: &Config<'_>) -> Result<PathBuf> {
        let Patient { kafka, cassandra, unique, dir, .. } = self;
        let nodes = cassandra.split(',').map(|node| format!("{node:?}")).collect::<Vec<_>>().join(", ");
        let Config { prefix, keyspace, partitions } = config;
        let text = format!(
            r#"
[instance]
name = "doctor"
dc = "dc1"
[kafka]
brokers = "{kafka}"
group = "{unique}"
[topics]
prefix = "{prefix}"
partitions = {partitions}
replication_factor = 3
min_insync_replicas = 2
[cassandra]
nodes = [{nodes}]
keyspace = "{keyspace}"
local_dc = "dc1"
require_dc_loss_survival = true
[cassandra.replication]
dc1 = 2
dc2 = 2
dc3 = 1
[http]
listen = "{HTTP}"
[log]
filter = "error"
"#
        );
        let file = dir.join(format!("{name}.toml"));
        std::fs::write(&file, text).with_context(|| format!("{}", file.display()))?;
        Ok(file)
    }

    /// Asks until doctor says what is expected, or for the last time.
    async fn until(&self, name: &str, config: &Path, expected: &[(&str, &str)]) -> Result<Said> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let said = self.ask(config).await.with_context(|| format!("doctor, {name}"))?;
            if said.is(expected) || Instant::now() > deadline {
                return Ok(said);
            }
        }
    }

    async fn ask(&self, config: &Path) -> Result<Said> {
        let output = self.output(config, &["doctor", "-o", "json"]).await?;
        let lines = serde_json::from_slice(&output.stdout).with_context(|| {
            format!(
                "what doctor printed: {}",
                String::from_utf8_lossy(&[output.stdout, output.stderr].concat())
            )
        })?;
        Ok(Said { lines, code: output.status.code() })
    }

    /// Runs a verb that has to succeed.
    async fn dueline(&self, verb: &[&str]) -> Result<()> {
        let output = self.output(&self.config, verb).await?;
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success(), "`dueline {}`: {errors}", verb.join(" "));
        Ok(())
    }

    async fn output(&self, config: &Path, verb: &[&str]) -> Result<std::process::Output> {
        let mut command = Command::new(&self.program);
        command.args(verb).arg("--config").arg(config);
        let ran = tokio::task::spawn_blocking(move || command.output()).await?;
        ran.with_context(|| format!("{}", self.program.display()))
    }
}
