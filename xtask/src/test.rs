//! `cargo xtask test`: one command from a clean checkout to every test of the workspace run.
//!
//! It installs or names what is absent, builds, starts the servers that do not run yet, tells the
//! tests where everything is by environment variables, and ends what it started. What cannot be
//! had is an error, never a quiet skip; `--no-servers` is the loud way round. A run that is
//! interrupted leaves its servers for the next one; `cargo xtask servers down` ends them.
//!
//! | variable | value |
//! |---|---|
//! | DUELINE_TEST_KAFKA, DUELINE_TEST_CASSANDRA | host:port |
//! | DUELINE_TEST_SECURED_KAFKA, DUELINE_TEST_SECURED_CASSANDRA | host:port of the pair with TLS, passwords and rights |
//! | DUELINE_TEST_SECURED_TLS | folder of its certificates |
//! | DUELINE_TEST_PYTHON | a Python with `confluent_kafka` and `kafka` |
//! | DUELINE_TEST_KCAT | the program |
//! | DUELINE_TEST_PROMTOOL | the program; also without servers |
//! | DUELINE_TEST_BROWSER | the program |
//! | DUELINE_TEST_XTASK | this program: `servers stop\|start kafka\|cassandra` for tests of faults |

use crate::servers::{self, Pair, Up};
use crate::{clients, cluster, image, packages, promtool, say, workspace};
use anyhow::{Context, Result, bail};
use clap::Args;
use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// How to test.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Start no servers and want no clients: tests on real servers run only where
    /// DUELINE_TEST_KAFKA and DUELINE_TEST_CASSANDRA are set already
    #[arg(long)]
    no_servers: bool,
    /// Passed to the test programs, for example part of a test's name
    #[arg(last = true)]
    arguments: Vec<String>,
}

type Variables = Vec<(&'static str, OsString)>;

/// Runs `cargo xtask test`.
pub(crate) fn run(options: Options) -> Result<ExitCode> {
    let begun = Instant::now();
    packages::install(&[&packages::BUILD[..], &[packages::VALGRIND]].concat())?;
    if options.no_servers {
        say::line("--no-servers: NOT started are Kafka and Cassandra, tests on real servers are SKIPPED");
    } else {
        let wanted =
            [packages::JAVA, packages::MAVEN, packages::KCAT, packages::PYTHON_VENV, packages::BROWSER];
        packages::install(&wanted)?;
    }
    let promtool = promtool(&options)?;
    build()?;
    let mut tally =
        if options.no_servers { test(&options, &promtool)? } else { test_on_servers(&options, promtool)? };
    if !options.no_servers && options.arguments.is_empty() {
        lose_a_data_centre(&mut tally)?;
        run_the_image(&mut tally)?;
    }
    report(&tally, &options, begun.elapsed())?;
    Ok(if tally.succeeded { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Without servers the tests may do without it; they say so.
fn promtool(options: &Options) -> Result<Variables> {
    match promtool::ensure() {
        Ok(program) => Ok(vec![("DUELINE_TEST_PROMTOOL", program.into())]),
        Err(error) if options.no_servers => {
            say::line(format_args!("{error:#}"));
            Ok(Vec::new())
        }
        Err(error) => Err(error),
    }
}

fn test_on_servers(options: &Options, promtool: Variables) -> Result<Tally> {
    let clients = clients::ensure()?;
    let up = servers::up(Pair::Plain)?;
    let secured = match servers::up(Pair::Secured) {
        Ok(secured) => secured,
        Err(error) => {
            end(&up)?;
            return Err(error);
        }
    };
    let mut variables = vec![
        ("DUELINE_TEST_KAFKA", up.kafka.clone().into()),
        ("DUELINE_TEST_CASSANDRA", up.cassandra.clone().into()),
        ("DUELINE_TEST_SECURED_KAFKA", secured.kafka.clone().into()),
        ("DUELINE_TEST_SECURED_CASSANDRA", secured.cassandra.clone().into()),
        ("DUELINE_TEST_SECURED_TLS", secured.tls.clone().unwrap_or_default().into()),
        ("DUELINE_TEST_PYTHON", clients.python.into()),
        ("DUELINE_TEST_KCAT", clients.kcat.into()),
        ("DUELINE_TEST_BROWSER", packages::BROWSER_PROGRAM.into()),
        ("DUELINE_TEST_XTASK", std::env::current_exe().context("the path of this program")?.into()),
    ];
    variables.extend(promtool);
    let tally = test(options, &variables);
    let ended = [end(&up), end(&secured)];
    let tally = tally?;
    ended.into_iter().collect::<Result<()>>()?;
    Ok(tally)
}

/// A data centre is lost while events come and tasks run: a short run of `chaos` on a cluster of its own.
fn lose_a_data_centre(tally: &mut Tally) -> Result<()> {
    if let Err(why) = cluster::possible() {
        say::line(format_args!("NOT run: the loss of a data centre: {why:#}"));
        return Ok(());
    }
    let programs = std::env::current_exe().context("the path of this program")?;
    let out = workspace::root()?.join("target/chaos/dc-loss-smoke");
    let report = out.join("report.html");
    if report.exists() {
        std::fs::remove_file(&report).with_context(|| format!("removing {}", report.display()))?;
    }
    let ended = Command::new(programs.with_file_name("chaos"))
        .args(["run", "dc-loss", "--servers", "cluster", "--seed", "1", "--minutes", "1", "--rate", "6"])
        // Whoever runs the tests may do other things meanwhile: promises are judged, figures are told.
        .arg("--untimed")
        .arg("--dueline")
        .arg(programs.with_file_name("dueline"))
        .arg("--out")
        .arg(&out)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("running chaos")?;
    let told = String::from_utf8_lossy(&ended.stdout);
    say::line(told.trim_end());
    // Told again at the end, where whoever reads only that finds it.
    let failed = || format!("the loss of a data centre ({}): {}", ended.status, told.trim_end());
    tally.judge(ended.status.success(), failed);
    if report.exists() {
        let opened = open_the_report(&report)?;
        tally.judge(opened, || format!("{} in a browser: see above", report.display()));
    }
    Ok(())
}

/// In a real browser, by a test of `chaos`.
fn open_the_report(report: &Path) -> Result<bool> {
    let output = cargo("test")?
        .args([
            "--bin",
            "chaos",
            "--",
            "--exact",
            "--ignored",
            "page::tests::a_browser_shows_the_page_of_a_run",
        ])
        .env("DUELINE_TEST_REPORT", report)
        .env("DUELINE_TEST_BROWSER", packages::BROWSER_PROGRAM)
        .stderr(Stdio::inherit())
        .output()
        .context("running cargo")?;
    let told = String::from_utf8_lossy(&output.stdout);
    say::line(told.trim_end());
    Ok(output.status.success() && told.contains("test result: ok. 1 passed"))
}

/// An image of the program that the tests were built with, run as the manifests ask.
fn run_the_image(tally: &mut Tally) -> Result<()> {
    if let Err(why) = image::possible() {
        say::line(format_args!("NOT run: the image: {why:#}"));
        return Ok(());
    }
    let programs = std::env::current_exe().context("the path of this program")?;
    let holds = image::check(Some(programs.with_file_name("dueline"))).unwrap_or_else(|error| {
        say::line(format_args!("the image: {error:#}"));
        false
    });
    tally.judge(holds, || "the image: see above".to_owned());
    Ok(())
}

fn end(up: &Up) -> Result<()> {
    if up.started.is_empty() {
        say::line("the servers ran before and are left running");
    }
    servers::end_started(up)
}

fn cargo(what: &str) -> Result<Command> {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command
        .current_dir(workspace::root()?)
        .args([what, "--workspace", "--features", "testing"])
        .stdin(Stdio::null());
    Ok(command)
}

fn cargo_test() -> Result<Command> {
    let mut command = cargo("test")?;
    command.arg("--no-fail-fast");
    Ok(command)
}

/// Builds before the servers start, so that they do not wait for a compiler.
fn build() -> Result<()> {
    let status = cargo_test()?.arg("--no-run").stdout(std::io::stderr()).status().context("running cargo")?;
    if !status.success() {
        bail!("the tests do not build: see the compiler's messages above");
    }
    // Programs that other programs run, with the features that the tests have. Not this one: its file would be another's.
    let programs = cargo("build")?.args(["--bin", "dueline", "--bin", "chaos"]).status();
    let programs = programs.context("running cargo")?;
    if !programs.success() {
        bail!("the programs do not build: see the compiler's messages above");
    }
    Ok(())
}

fn test(options: &Options, variables: &Variables) -> Result<Tally> {
    let mut command = cargo_test()?;
    command.arg("--").args(&options.arguments).envs(variables.iter().cloned()).stdout(Stdio::piped());
    let mut child = command.spawn().context("running cargo test")?;
    let output = child.stdout.take().context("cargo test has no output")?;
    let mut tally = Tally::default();
    for line in BufReader::new(output).split(b'\n') {
        let line = line.context("reading the output of cargo test")?;
        let line = String::from_utf8_lossy(&line);
        tally.count(&line);
        say::data(line)?;
    }
    tally.succeeded = child.wait().context("waiting for cargo test")?.success();
    Ok(tally)
}

fn report(tally: &Tally, options: &Options, took: Duration) -> Result<()> {
    let Tally { programs, passed, failed, ignored, failures, succeeded } = tally;
    for failure in failures {
        say::data(format_args!("FAILED {failure}"))?;
    }
    let servers = if options.no_servers { "WITHOUT servers" } else { "with Kafka and Cassandra" };
    let verdict = if *succeeded { "ok" } else { "FAILED" };
    say::data(format_args!(
        "{verdict}: {passed} passed, {failed} failed, {ignored} ignored in {programs} test programs, {servers}, {} s",
        took.as_secs()
    ))
}

/// What the test programs said.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tally {
    programs: u64,
    passed: u64,
    failed: u64,
    ignored: u64,
    /// Names of failed tests.
    failures: Vec<String>,
    /// Whether cargo ended with success, the only thing that decides.
    succeeded: bool,
}

impl Tally {
    /// One thing that is no test program.
    fn judge(&mut self, holds: bool, failure: impl FnOnce() -> String) {
        if holds {
            self.passed += 1;
            return;
        }
        self.failed += 1;
        self.failures.push(failure());
        self.succeeded = false;
    }

    fn count(&mut self, line: &str) {
        if let Some(name) = line.strip_prefix("test ").and_then(|line| line.strip_suffix(" ... FAILED")) {
            self.failures.push(name.to_owned());
        }
        let Some(counts) = line.strip_prefix("test result: ").and_then(|line| line.split_once(". ")) else {
            return;
        };
        self.programs += 1;
        for count in counts.1.split("; ") {
            let Some((number, what)) = count.split_once(' ') else { continue };
            let number: u64 = number.parse().unwrap_or(0);
            match what {
                "passed" => self.passed += number,
                "failed" => self.failed += number,
                "ignored" => self.ignored += number,
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_all_programs_are_added_and_failures_named() {
        let mut tally = Tally::default();
        for line in [
            "test engine::second_waits ... FAILED",
            "test engine::first_runs ... ok",
            "test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s",
            "test result: ok. 4 passed; 0 failed; 2 ignored; 0 measured; 3 filtered out; finished in 1.00s",
        ] {
            tally.count(line);
        }
        let failures = vec!["engine::second_waits".to_owned()];
        let want = Tally { programs: 2, passed: 5, failed: 1, ignored: 2, failures, succeeded: false };
        assert_eq!(tally, want);
    }
}
