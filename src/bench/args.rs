//! What a run is asked for on the command line, and the plan of each run that comes of it.

mod scenario;

use std::path::PathBuf;
use std::time::Duration;

use crate::config::{Config, EMBEDDED_SHARDS};
use crate::model::limits::PAYLOAD_BYTES_MAX;

use scenario::Axis;
pub use scenario::Scenario;

/// What to measure, and where.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// What to measure.
    #[arg(value_enum, default_value = "pipeline")]
    pub scenario: Scenario,
    #[command(flatten)]
    pub(super) place: Place,
    /// Tasks: 100,000 unless said, in `payload` and `takeover` 10,000. In `pending`, `herd`, `blocked` and `takeover` several, a
    /// run each.
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    tasks: Vec<u64>,
    /// Queues they belong to: 10,000 unless said. In `queues` several, a run each: 10,10000,1000000 unless said.
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    queues: Vec<u64>,
    /// Shards: on servers 64 unless said; embedded 8, as every folder has.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=4096))]
    shards: Option<u32>,
    /// Calls of a handler that may run at once. A slot is held from before the start is stored until the call has
    /// ended, so that with few the run measures how fast the store answers.
    #[arg(long, default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    concurrency: u32,
    /// Tasks per second of a steady load: 500 unless said. In `steady` several, a run each.
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=100_000))]
    rate: Vec<u64>,
    /// Seconds that a steady load takes.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    seconds: u64,
    /// Tasks due at once that `steady`, `blocked`, `gate`, `long-running`, `herd`, `slow-store` and `redrive` run first and
    /// do not measure: servers that just started compile what they run.
    #[arg(long, default_value_t = 30_000, value_parser = clap::value_parser!(u64).range(0..=10_000_000))]
    warm_up: u64,
    /// Seconds for which the raw program and then tasks due at once run first and are not measured, each, where there is a
    /// ceiling: on servers 25, embedded 2 unless said.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    warm: Option<Duration>,
    /// Seconds that each way of the raw program takes; with large payloads less.
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    raw: Duration,
    /// Collections that the tasks belong to, queue by queue; 0 = none.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    collections: u64,
    /// Gives the handler a rate, a quota and a breaker, and each collection a rate, a quota and slots, all of which
    /// hold nothing up: what limits cost.
    #[arg(long)]
    limited: bool,
    /// Bytes of each payload: about 75 unless said. In `payload` several, a run each: 100,1024,16384,262144 unless said.
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u64).range(50..=PAYLOAD_BYTES_MAX as u64))]
    payload: Vec<u64>,
    /// Handlers that the tasks are spread over: 1 unless said, in `handlers` 200.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    handlers: Option<u64>,
    /// Attempts that stay open in `long-running`.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    open: u32,
    /// Seconds until the tasks of `herd` and `takeover` are due: enough to store them first. 5 more than they take at 10,000/s
    /// unless said, in `takeover` 60.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    lead: Option<u64>,
    /// Seconds for which memory must not have fallen by a MiB, nor a MiB a second been written, before all is at rest: before what is
    /// measured, and after it.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u64).range(0..=300))]
    rest: u64,
    /// Which queue each task belongs to, and what its payload holds, come of this number.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Which of several values this process runs.
    #[arg(long, hide = true)]
    nth: Option<usize>,
    /// Leaves the raw ceiling out.
    #[arg(long)]
    no_ceiling: bool,
}

/// Where to measure.
#[derive(Clone, Debug, clap::Args)]
pub struct Place {
    /// Kafka, as host:port; with --cassandra.
    #[arg(long, requires = "cassandra", conflicts_with = "embedded")]
    pub(super) kafka: Option<String>,
    /// Cassandra, as host:port; with --kafka.
    #[arg(long, requires = "kafka")]
    pub(super) cassandra: Option<String>,
    /// Folder for an embedded run; a new one inside it is used and removed. Default: the system's temporary folder.
    #[arg(long)]
    pub(super) embedded: Option<PathBuf>,
}

impl Place {
    /// Whether a run is on servers: named here, or in the config and not overruled here.
    pub(super) fn is_servers(&self, config: Option<&Config>) -> bool {
        self.kafka.is_some()
            || (self.embedded.is_none() && config.is_some_and(|config| config.kafka.brokers.is_some()))
    }
}

/// One run, with one value of everything.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) scenario: Scenario,
    pub(super) place: Place,
    pub(super) tasks: u64,
    pub(super) queues: u64,
    pub(super) shards: u32,
    pub(super) concurrency: u32,
    pub(super) rate: u64,
    pub(super) seconds: u64,
    /// Tasks.
    pub(super) warm_up: u64,
    /// For so long the raw program, and then tasks.
    pub(super) warm: Duration,
    /// For so long each way of the raw program.
    pub(super) raw: Duration,
    pub(super) collections: u64,
    pub(super) limited: bool,
    /// Bytes; `None` = an ordinary one.
    pub(super) payload: Option<u64>,
    pub(super) handlers: u64,
    pub(super) open: u32,
    pub(super) lead: Duration,
    pub(super) rest: Duration,
    pub(super) seed: u64,
    pub(super) ceiling: bool,
}

/// Bytes of all payloads of a `payload` run together, at most.
const PAYLOADS_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// Shards of an installation on servers, unless said.
const SHARDS_SERVERS: u32 = 64;
/// A warm-up beside a ceiling, unless said.
const WARM_SERVERS: Duration = Duration::from_secs(25);
const WARM_EMBEDDED: Duration = Duration::from_secs(2);
/// Tasks per second that a herd is stored with at least, unless a lead is given.
const STORED_PER_SECOND: u64 = 10_000;

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.0..=3_600.0).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "expected seconds, 0 to 3600".to_owned())
}

impl Args {
    /// How many runs are asked for, when that is more than this process is to make.
    ///
    /// # Errors
    /// What does not fit the scenario, by name.
    pub fn several(&self, config: Option<&Config>) -> Result<Option<usize>, String> {
        let count = self.plans(config)?.len();
        Ok((count > 1 && self.nth.is_none()).then_some(count))
    }

    /// Whether this process makes one run of several.
    pub fn is_nth(&self) -> bool {
        self.nth.is_some()
    }

    /// The run of this process.
    pub(super) fn plan(&self, config: Option<&Config>) -> Result<Plan, String> {
        let mut plans = self.plans(config)?.into_iter();
        plans.nth(self.nth.unwrap_or(0)).ok_or_else(|| "--nth is beyond the last run".to_owned())
    }

    /// The runs asked for, in order.
    ///
    /// # Errors
    /// What does not fit the scenario, by name.
    pub(super) fn plans(&self, config: Option<&Config>) -> Result<Vec<Plan>, String> {
        let (scenario, word) = (self.scenario, self.scenario.word());
        let mut values: Vec<Vec<u64>> = Vec::new();
        for axis in Axis::ALL {
            let given = self.of(axis);
            if given.len() > 1 && scenario.varies() != Some(axis) {
                let (flag, others) = (axis.flag(), axis.scenarios());
                return Err(format!(
                    "{flag} has {} values, and {word} runs with one: several are for {others}",
                    given.len()
                ));
            }
            values.push(if given.is_empty() { self.unless_said(axis) } else { given.to_vec() });
        }
        let is_servers = self.place.is_servers(config);
        if scenario == Scenario::Takeover && !is_servers {
            return Err(
                "takeover needs servers, --kafka and --cassandra: an embedded site has one node, and nobody \
                 takes over from it"
                    .to_owned(),
            );
        }
        if scenario == Scenario::Forward && self.shards == Some(1) {
            return Err("forward needs --shards 2 or more: with one shard every record is at home".to_owned());
        }
        let first = |axis: Axis| values[axis as usize][0];
        let plan = |sizes, payload| self.plan_of(sizes, payload, is_servers);
        let base = plan([first(Axis::Tasks), first(Axis::Queues), first(Axis::Rate)], None);
        let Some(axis) = scenario.varies() else { return Ok(vec![base]) };
        let at = |value: &u64| match axis {
            Axis::Tasks => plan([*value, base.queues, base.rate], None),
            Axis::Queues => plan([base.tasks, *value, base.rate], None),
            Axis::Rate => plan([base.tasks, base.queues, *value], None),
            Axis::Payload => plan([base.tasks, base.queues, base.rate], Some(*value)),
        };
        Ok(values[axis as usize].iter().map(at).collect())
    }

    fn of(&self, axis: Axis) -> &[u64] {
        match axis {
            Axis::Tasks => &self.tasks,
            Axis::Queues => &self.queues,
            Axis::Rate => &self.rate,
            Axis::Payload => &self.payload,
        }
    }

    fn unless_said(&self, axis: Axis) -> Vec<u64> {
        match (axis, self.scenario) {
            (Axis::Tasks, Scenario::Payload | Scenario::Takeover) => vec![10_000],
            (Axis::Tasks, _) => vec![100_000],
            (Axis::Queues, Scenario::Queues) => vec![10, 10_000, 1_000_000],
            (Axis::Queues, _) => vec![10_000],
            (Axis::Rate, _) => vec![500],
            (Axis::Payload, _) => vec![100, 1_024, 16_384, 262_144],
        }
    }

    fn plan_of(&self, [tasks, queues, rate]: [u64; 3], payload: Option<u64>, is_servers: bool) -> Plan {
        let scenario = self.scenario;
        let tasks = match payload {
            Some(bytes) => tasks.min(PAYLOADS_BYTES_MAX / bytes),
            None => tasks,
        };
        let payload = payload.or(self.payload.first().copied());
        let lead = match (self.lead, scenario) {
            (Some(lead), _) => lead,
            (None, Scenario::Takeover) => 60,
            (None, _) => 5 + tasks / STORED_PER_SECOND,
        };
        Plan {
            scenario,
            place: self.place.clone(),
            tasks,
            queues,
            shards: self.shards.unwrap_or(if is_servers { SHARDS_SERVERS } else { EMBEDDED_SHARDS }),
            concurrency: self.concurrency,
            rate,
            seconds: self.seconds,
            warm_up: self.warm_up,
            warm: self.warm.unwrap_or(if is_servers { WARM_SERVERS } else { WARM_EMBEDDED }),
            raw: self.raw,
            collections: self.collections,
            limited: self.limited,
            payload,
            handlers: self.handlers.unwrap_or(if scenario == Scenario::Handlers { 200 } else { 1 }),
            open: self.open,
            lead: Duration::from_secs(lead),
            rest: Duration::from_secs(self.rest),
            seed: self.seed,
            ceiling: scenario.has_ceiling() && !self.no_ceiling,
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    /// The plan of a line of arguments.
    pub(in super::super) fn plan(line: &str) -> Plan {
        let words = std::iter::once("bench").chain(line.split_whitespace());
        let plans = Line::parse_from(words).args.plans(None).expect("they fit");
        plans.into_iter().next().expect("a plan")
    }

    #[test]
    fn a_warm_up_is_longer_on_servers() {
        let embedded = plan("pipeline").warm;
        let servers = plan("pipeline --kafka h:1 --cassandra h:2");
        assert!(servers.warm > embedded && servers.raw == Duration::from_secs(10), "{servers:?}");
        assert_eq!(plan("ingest --warm 0.5 --raw 0").warm, Duration::from_millis(500));
    }
}
