//! All scenarios in turn, each in a process of its own, so that none inherits the memory of another: a report and a page for
//! each in one folder, and an index that says what is wanted and what was reached.

mod index;
pub(super) mod process;
mod result;
mod wanted;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::Context as _;

use super::args::{Place, Scenario};
use super::{Error, Report};
use crate::config::Config;

/// What to run.
#[derive(Clone, Debug, clap::Args)]
pub struct SuiteArgs {
    /// Folder for the results; made if it is not there.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Sizes of a few seconds a scenario: whether everything runs, not how fast.
    #[arg(long)]
    quick: bool,
    /// Skips what has a result in the folder: of the same command at the same place, with the same configuration and program.
    #[arg(long)]
    resume: bool,
    /// Only these scenarios.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Scenario>,
    #[command(flatten)]
    place: Place,
}

/// The program that runs a scenario, and what each call of it is given besides.
#[derive(Clone, Debug)]
pub struct Program {
    /// `dueline`.
    pub path: PathBuf,
    /// The config file, if one was given.
    pub config: Option<PathBuf>,
}

/// A scenario with its arguments.
#[derive(Clone, Debug)]
struct Entry {
    name: &'static str,
    args: &'static str,
}

/// One process of a scenario: what follows `dueline` but for where it runs, and what its files are called.
struct Line {
    file: String,
    text: String,
}

/// Arguments of each scenario, and those of a quick suite.
const ENTRIES: [(Scenario, &str, &str); 18] = [
    (Scenario::Ceiling, "--tasks 200000", "--tasks 2000"),
    (Scenario::Pipeline, "--tasks 200000 --concurrency 4096", "--tasks 2000"),
    (Scenario::Ingest, "--tasks 200000", "--tasks 2000"),
    (Scenario::Steady, "--rate 500,2000,5000 --seconds 60", "--rate 100,200 --seconds 1 --warm-up 500"),
    (Scenario::Herd, "--tasks 100000,1000000 --concurrency 4096", "--tasks 500,2000 --lead 4 --warm-up 500"),
    (Scenario::Pending, "--tasks 100000,1000000,10000000", "--tasks 500,2000 --rate 100 --seconds 1"),
    (Scenario::Queues, "--queues 10,10000,1000000 --tasks 1000000", "--queues 10,1000 --tasks 2000"),
    (Scenario::Blocked, "--tasks 1000000 --seconds 60", "--tasks 2000 --rate 100 --seconds 1 --warm-up 500"),
    (Scenario::Gate, "--seconds 60", "--rate 200 --seconds 8 --warm-up 500"),
    (Scenario::Takeover, "--tasks 10000,300000 --lead 120", "--tasks 500 --lead 60"),
    (Scenario::Payload, "--payload 100,1024,16384,262144 --tasks 20000", "--payload 100,16384 --tasks 200"),
    (Scenario::Forward, "--tasks 200000 --concurrency 4096", "--tasks 2000"),
    (Scenario::Handlers, "--tasks 200000 --concurrency 4096", "--tasks 2000"),
    (Scenario::LongRunning, "--open 10000 --seconds 60", "--open 200 --rate 100 --seconds 1 --warm-up 500"),
    (Scenario::SlowStore, "--tasks 100000 --concurrency 4096", "--tasks 1000 --warm-up 500"),
    (Scenario::Http, "--tasks 50000", "--tasks 1000"),
    (Scenario::Redrive, "--tasks 100000", "--tasks 1000 --warm-up 500"),
    (Scenario::List, "--tasks 1000000", "--tasks 2000"),
];
/// Of every command of a quick suite.
const QUICK: &str = "--rest 0 --shards 8 --warm 0.2 --raw 0.2";

/// What there is to show of a suite.
struct Suite {
    dir: PathBuf,
    is_quick: bool,
    is_servers: bool,
    entries: Vec<Entry>,
    /// Of those that ended, by name.
    reports: BTreeMap<&'static str, Report>,
    /// Why others did not.
    failed: BTreeMap<&'static str, String>,
}

/// Runs the scenarios; says on stderr which. Returns what is wanted and what was reached, for people.
///
/// # Errors
/// The folder holds results and is not to be resumed, or cannot be written; in the end, scenarios that failed, by name.
pub fn suite(args: &SuiteArgs, program: &Program, config: Option<&Config>) -> Result<String, Error> {
    let is_servers = args.place.is_servers(config);
    let mut suite = Suite::new(args, is_servers)?;
    std::fs::create_dir_all(&suite.dir).with_context(|| format!("the folder {}", suite.dir.display()))?;
    for (number, entry) in suite.entries.clone().into_iter().enumerate() {
        let (count, lines) = (suite.entries.len(), entry.lines(args.quick));
        let (mut runs, mut failed) = (Vec::new(), Vec::new());
        for line in &lines {
            let (start, text) = (Instant::now(), &line.text);
            if args.resume
                && let Some(report) = result::kept(args, program, line)?
            {
                eprintln!("{} of {count}: {text}: has a result", number + 1);
                runs.push(report);
                continue;
            }
            eprintln!("{} of {count}: {text}", number + 1);
            match one(args, program, line) {
                Ok(report) => runs.push(report),
                Err(error) => {
                    eprintln!("  failed: {error:#}");
                    failed.push(format!("{text}: {error:#}"));
                }
            }
            eprintln!("  {:.0} s", start.elapsed().as_secs_f64());
        }
        if !failed.is_empty() {
            suite.failed.insert(entry.name, failed.join("\n"));
        }
        if !runs.is_empty() {
            let report = Report::of_all(runs);
            if lines.len() > 1 {
                result::write_joined(args, &entry, &report)?;
            }
            suite.reports.insert(entry.name, report);
        }
        // After each, so that there is something to see while the others run.
        suite.write_index()?;
    }
    suite.write_index()?;
    if suite.failed.is_empty() {
        return Ok(suite.text());
    }
    let failed: Vec<&str> = suite.failed.keys().copied().collect();
    let (names, page) = (failed.join(", "), suite.dir.join("index.html"));
    Err(Error::Run(anyhow::anyhow!(
        "failed: {names}; the others are in {}, and --resume runs these again",
        page.display()
    )))
}

impl Suite {
    fn new(args: &SuiteArgs, is_servers: bool) -> Result<Suite, Error> {
        let has_results = |dir: &Path| dir.join("index.html").exists();
        if !args.resume && has_results(&args.out) {
            return Err(Error::Usage(format!(
                "{} has results: --resume goes on with them, or give another folder with --out",
                args.out.display()
            )));
        }
        if args.only.contains(&Scenario::Takeover) && !is_servers {
            return Err(Error::Usage(
                "takeover needs servers, --kafka and --cassandra: embedded there is one node".to_owned(),
            ));
        }
        let wanted = |scenario: Scenario| {
            (args.only.is_empty() || args.only.contains(&scenario))
                && (is_servers || scenario != Scenario::Takeover)
        };
        let entries = ENTRIES.iter().filter(|(scenario, _, _)| wanted(*scenario));
        let entries = entries.map(|(scenario, full, quick)| Entry {
            name: scenario.word(),
            args: if args.quick { quick } else { full },
        });
        Ok(Suite {
            dir: args.out.clone(),
            is_quick: args.quick,
            is_servers,
            entries: entries.collect(),
            reports: BTreeMap::new(),
            failed: BTreeMap::new(),
        })
    }
}

impl Entry {
    /// What follows `dueline`, but for where it runs.
    fn line(&self, is_quick: bool) -> String {
        let line = format!("bench {} {}", self.name, self.args);
        if is_quick { format!("{line} {QUICK}") } else { line }
    }

    /// A process for each value of what has several: none inherits the memory of another.
    fn lines(&self, is_quick: bool) -> Vec<Line> {
        let line = self.line(is_quick);
        let Some(list) = line.split(' ').find(|word| word.contains(',')) else {
            return vec![Line { file: self.name.to_owned(), text: line }];
        };
        let of = |value: &str| Line {
            file: format!("{}-{value}", self.name),
            text: line.replacen(list, value, 1),
        };
        list.split(',').map(of).collect()
    }
}

/// Runs a process; what it printed is its result.
fn one(args: &SuiteArgs, program: &Program, line: &Line) -> anyhow::Result<Report> {
    let mut command = Command::new(&program.path);
    command.args(line.text.split(' ')).args(["-o", "json", "--html"]);
    command.arg(result::file(args, &line.file, "html"));
    let Place { kafka, cassandra, embedded } = &args.place;
    let flags = [("--kafka", kafka.as_ref()), ("--cassandra", cassandra.as_ref())];
    for (flag, value) in flags {
        command.args(value.into_iter().flat_map(|value| [flag, value.as_str()]));
    }
    if let Some(dir) = embedded {
        command.arg("--embedded").arg(dir);
    }
    if let Some(config) = &program.config {
        command.arg("--config").arg(config);
    }
    let printed = process::printed(command, &program.path)?;
    let report = serde_json::from_slice(&printed).context("its result cannot be read")?;
    result::keep(args, program, line, &printed)?;
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_of_a_list_is_a_process_of_its_own() {
        let lines = |args| Entry { name: "steady", args }.lines(false);
        let texts: Vec<String> =
            lines("--rate 500,2000 --seconds 60").into_iter().map(|line| line.text).collect();
        assert_eq!(texts, ["bench steady --rate 500 --seconds 60", "bench steady --rate 2000 --seconds 60"]);
        let files: Vec<String> = lines("--rate 500,2000").into_iter().map(|line| line.file).collect();
        assert_eq!(files, ["steady-500", "steady-2000"]);
        assert_eq!(lines("--rate 500")[0].file, "steady");
    }
}
