//! A soak: faults of all kinds on one cluster, for as long as is wanted. It is made of parts, each a run of its own with
//! its own seed, ledgers and verdict, so that one that was broken off goes on after the last part that ended.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::clock;
use crate::cluster::{self, Cluster};
use crate::ending::{Ending, Interrupted};
use crate::machine;
use crate::plan::{Nearest, Scenario};
use crate::run::{self, Setting, Topology};
use crate::say;
use crate::site;

/// How long faults go on in a part.
const PART_MINUTES: u32 = 10;
/// The file that says which parts have ended.
const LEDGER: &str = "soak.jsonl";
/// A soak with fewer faults an hour shows too little.
const FAULTS_PER_HOUR: u64 = 100;

/// How long, and with what.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example, an hour that was broken off and goes on:\n  \
chaos soak --seed 1 --minutes 60 --out target/soak\n  chaos soak --seed 1 --minutes 60 --out target/soak --resume")]
pub(crate) struct Args {
    /// Decides about faults and load of the first part; each next one has the next seed
    #[arg(long)]
    seed: u64,
    /// How long faults go on in all, in parts of ten minutes
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=10_080))]
    minutes: u32,
    /// Folder with a folder for each part [default: target/chaos/soak-SEED]
    #[arg(long)]
    out: Option<PathBuf>,
    /// Go on after the parts that the folder tells of
    #[arg(long)]
    resume: bool,
    #[command(flatten)]
    setting: Setting,
}

/// A part that has ended: a line of the ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Part {
    number: u32,
    /// How long its faults went on.
    minutes: u32,
    /// Whether figures were judged.
    timed: bool,
    #[serde(flatten)]
    came: Came,
}

/// What a part came to, as its `result.json` says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Came {
    seed: u64,
    /// Of the harness.
    commit: String,
    /// Of the program.
    #[serde(default = "unknown")]
    digest: String,
    started_at: String,
    ended_at: String,
    faults: u64,
    events: u64,
    calls: u64,
    violations: BTreeMap<String, u64>,
    clean: bool,
}

/// Lines of before there was a digest in them.
fn unknown() -> String {
    "unknown".to_owned()
}

/// What parts are run with.
#[derive(Clone, Debug)]
struct Build {
    commit: String,
    digest: String,
}

/// A soak that may begin, or go on.
#[derive(Debug)]
pub(crate) struct Soak {
    args: Args,
    /// The folder of its parts.
    out: PathBuf,
    build: Build,
    /// Those that have ended.
    parts: Vec<Part>,
}

impl Soak {
    /// Looks at what is there, before any server is started: parts are of one soak, and run with one build.
    pub(crate) fn ready(mut args: Args) -> Result<Soak> {
        let seed = args.seed;
        let out = args.out.take().unwrap_or_else(|| PathBuf::from(format!("target/chaos/soak-{seed}")));
        std::fs::create_dir_all(&out).with_context(|| format!("{}", out.display()))?;
        let ledger = out.join(LEDGER);
        ensure!(
            args.resume || !ledger.exists(),
            "{} tells of a soak: --resume goes on with it, another --out begins one",
            ledger.display()
        );
        let parts = read(&ledger)?;
        let program = site::program(args.setting.dueline.as_deref(), args.setting.plant.is_some())?;
        let commit = run::commit(args.setting.plant.as_deref());
        let build = Build { commit, digest: machine::digest(&program)? };
        // No part builds another one, whatever becomes of the checkout meanwhile.
        args.setting.dueline = Some(program);
        for part in &parts {
            part.fits(&args, &build).with_context(|| format!("{}", ledger.display()))?;
        }
        Ok(Soak { args, out, build, parts })
    }

    /// Runs the parts that are left; true when all of them, those before this program too, are clean.
    pub(crate) async fn run(mut self, cluster: Option<Arc<Cluster>>, ending: Ending) -> Result<bool> {
        let wanted = self.args.minutes.div_ceil(PART_MINUTES);
        for number in left(&self.parts, wanted) {
            say::line(format_args!("part {} of {wanted}", number + 1));
            let part = self.run_part(number, cluster.clone(), ending.clone()).await?;
            append(&self.out.join(LEDGER), &part)?;
            self.parts.push(part);
        }
        say::data(table(&self.parts))?;
        let faults: u64 = self.parts.iter().map(|part| part.came.faults).sum();
        let least = faults_wanted(self.args.minutes);
        if faults < least {
            say::data(format_args!(
                "NOT ENOUGH: {faults} faults, {least} are wanted in {} minutes",
                self.args.minutes
            ))?;
        }
        Ok(faults >= least && self.parts.iter().all(|part| part.came.clean))
    }

    async fn run_part(&self, number: u32, cluster: Option<Arc<Cluster>>, ending: Ending) -> Result<Part> {
        let setting = &self.args.setting;
        let dir = self.out.join(format!("part-{number}"));
        let minutes = minutes_of(number, self.args.minutes);
        let seed = self.args.seed + u64::from(number);
        ensure!(cluster::made_whole(), "the cluster could not be made whole before part {}", number + 1);
        let came = match run::run(part(seed, minutes, &dir, setting), cluster, ending).await {
            Ok(_) => read_result(&dir.join("result.json"))?,
            Err(error) if error.is::<Interrupted>() => {
                return Err(error)
                    .with_context(|| format!("part {} did not end; --resume goes on with it", number + 1));
            }
            // What could not even be judged is no reason to forget it.
            Err(error) => Came::broken(seed, &self.build, &error),
        };
        Ok(Part { number, minutes, timed: !setting.untimed, came })
    }
}

impl Part {
    /// Whether it is of the soak that is to go on.
    fn fits(&self, args: &Args, build: &Build) -> Result<()> {
        let Part { number, minutes, timed, came } = self;
        let shown = number + 1;
        ensure!(
            came.seed == args.seed + u64::from(*number),
            "part {shown} has the seed {}, of a soak with another seed than {}",
            came.seed,
            args.seed
        );
        ensure!(
            *minutes == minutes_of(*number, args.minutes) && *timed != args.setting.untimed,
            "part {shown} had {minutes} minutes, {}: resume with the --minutes and --untimed it began with",
            if *timed { "judged with figures" } else { "without figures" }
        );
        let differs = came.differs(build);
        ensure!(
            differs.is_empty(),
            "part {shown} was run with another build: {}. Run that build, or begin anew with another --out",
            differs.join("; ")
        );
        Ok(())
    }
}

fn faults_wanted(minutes: u32) -> u64 {
    u64::from(minutes) * FAULTS_PER_HOUR / 60
}

/// How long faults go on in a part.
fn minutes_of(number: u32, of: u32) -> u32 {
    PART_MINUTES.min(of.saturating_sub(number * PART_MINUTES))
}

fn read_result(result: &Path) -> Result<Came> {
    let text = std::fs::read_to_string(result).with_context(|| format!("{}", result.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{}", result.display()))
}

impl Came {
    /// In what it was run with something else than this.
    fn differs(&self, build: &Build) -> Vec<String> {
        let both = [
            ("the commit of chaos", &self.commit, &build.commit),
            ("the SHA-256 of dueline", &self.digest, &build.digest),
        ];
        let others = both.into_iter().filter(|(_, then, now)| then != now);
        others.map(|(what, then, now)| format!("{what} was {then} and is {now}")).collect()
    }

    /// A part that ended without a verdict.
    fn broken(seed: u64, build: &Build, error: &anyhow::Error) -> Came {
        say::line(format_args!("the part broke: {error:#}"));
        let now = clock::rfc3339(clock::wall_ms());
        Came {
            seed,
            commit: build.commit.clone(),
            digest: build.digest.clone(),
            started_at: now.clone(),
            ended_at: now,
            faults: 0,
            events: 0,
            calls: 0,
            violations: BTreeMap::from([(format!("broke: {error:#}"), 1)]),
            clean: false,
        }
    }
}

/// Parts that no line tells of.
fn left(parts: &[Part], wanted: u32) -> Vec<u32> {
    (0..wanted).filter(|number| !parts.iter().any(|part| part.number == *number)).collect()
}

fn part(seed: u64, minutes: u32, dir: &Path, setting: &Setting) -> run::Args {
    run::Args {
        scenario: Scenario::Mixed,
        seed,
        servers: Topology::Cluster,
        minutes: Some(minutes),
        kills: 0,
        resume: None,
        kafka: None,
        cassandra: None,
        out: Some(dir.to_owned()),
        next: None,
        empty: false,
        nearest: Nearest::Whole,
        instances: None,
        setting: setting.clone(),
    }
}

fn read(ledger: &Path) -> Result<Vec<Part>> {
    let text = match std::fs::read_to_string(ledger) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).with_context(|| format!("{}", ledger.display())),
    };
    let part = |(number, line): (usize, &str)| {
        serde_json::from_str(line).with_context(|| format!("line {} of {}", number + 1, ledger.display()))
    };
    text.lines().enumerate().map(part).collect()
}

fn append(ledger: &Path, part: &Part) -> Result<()> {
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(ledger)?;
    let line = serde_json::to_string(part)? + "\n";
    file.write_all(line.as_bytes())?;
    Ok(file.sync_data()?)
}

/// A line for each part, and one for all.
fn table(parts: &[Part]) -> String {
    let mut text = format!(
        "{:<5} {:>6} {:<10} {:>7} {:>8} {:>8}  result",
        "part", "seed", "commit", "faults", "events", "calls"
    );
    for Part { number, came, .. } in parts {
        let wrong: Vec<String> =
            came.violations.iter().map(|(rule, count)| format!("{count} × {rule}")).collect();
        let result = match (came.clean, wrong.is_empty()) {
            (true, _) => "clean".to_owned(),
            (false, false) => format!("NOT CLEAN: {}", wrong.join(", ")),
            (false, true) => "NOT CLEAN: a figure is missed".to_owned(),
        };
        let Came { seed, commit, faults, events, calls, .. } = came;
        text += &format!(
            "\n{:<5} {seed:>6} {commit:<10} {faults:>7} {events:>8} {calls:>8}  {result}",
            number + 1
        );
    }
    let sum = |of: fn(&Came) -> u64| parts.iter().map(|part| of(&part.came)).sum::<u64>();
    let clean = parts.iter().filter(|part| part.came.clean).count();
    text + &format!(
        "\n{clean} of {} parts clean: {} faults, {} events, {} calls",
        parts.len(),
        sum(|came| came.faults),
        sum(|came| came.events),
        sum(|came| came.calls)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(number: u32, clean: bool) -> Part {
        let violations = if clean { BTreeMap::new() } else { [("in order".to_owned(), 3)].into() };
        let came = Came {
            seed: u64::from(number) + 7,
            commit: "abc".to_owned(),
            digest: "12ab".to_owned(),
            started_at: String::new(),
            ended_at: String::new(),
            faults: 20,
            events: 1_000,
            calls: 900,
            violations,
            clean,
        };
        Part { number, minutes: PART_MINUTES, timed: true, came }
    }

    #[test]
    fn a_soak_goes_on_with_the_parts_that_its_ledger_does_not_tell_of() {
        let dir = tempfile::tempdir().expect("a folder");
        let ledger = dir.path().join(LEDGER);
        assert_eq!(read(&ledger).expect("nothing yet"), []);
        let parts = [ended(0, true), ended(2, false)];
        parts.iter().for_each(|part| append(&ledger, part).expect("a line"));
        let read = read(&ledger).expect("lines");
        assert_eq!(read, parts);
        assert_eq!(left(&read, 4), [1, 3]);
    }

    #[test]
    fn a_soak_does_not_go_on_with_parts_of_another_build() {
        let setting = Setting { dueline: None, rate: None, plant: None, log: String::new(), untimed: false };
        let args = Args { seed: 7, minutes: 30, out: None, resume: true, setting };
        let fits = |part: &Part, commit: &str, digest: &str| {
            let build = Build { commit: commit.to_owned(), digest: digest.to_owned() };
            part.fits(&args, &build).map_err(|error| error.to_string())
        };
        let part = ended(1, true);
        assert_eq!(fits(&part, "abc", "12ab"), Ok(()));
        let said = fits(&part, "def", "12ab").expect_err("another commit");
        assert!(said.contains("the commit of chaos was abc and is def. Run that build"), "{said}");
        let said = fits(&part, "abc", "34cd").expect_err("another program");
        assert!(said.contains("part 2 was run with another build: the SHA-256 of"), "{said}");
        assert!(said.contains("dueline was 12ab and is 34cd"), "{said}");
        let mut line = serde_json::to_value(&part).expect("a line");
        line.as_object_mut().expect("an object").remove("digest");
        let part: Part = serde_json::from_value(line).expect("a line of before");
        let said = fits(&part, "def", "12ab").expect_err("nobody knows with what");
        assert!(said.contains("was abc and is def; the SHA-256 of dueline was unknown"), "{said}");
    }

    #[test]
    fn an_hour_has_a_hundred_faults() {
        assert_eq!([60, 10, 1].map(faults_wanted), [100, 16, 1]);
    }

    #[test]
    fn the_table_names_what_was_wrong_and_sums_up() {
        let text = table(&[ended(0, true), ended(1, false)]);
        assert!(text.contains("NOT CLEAN: 3 × in order"), "{text}");
        assert!(text.ends_with("1 of 2 parts clean: 40 faults, 2000 events, 1800 calls"), "{text}");
    }
}
