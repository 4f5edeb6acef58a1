//! `cargo xtask sim`: many seeds of the simulation, one seed shown, or the planted mistakes.
//!
//! The simulation is a test program of the product (`tests/simulation`); here it is built, with the optimizer on
//! when many seeds are asked for, and told by environment variables what to run. What a run has done goes to a file, from which the next one goes on.

use crate::{say, workspace};
use anyhow::{Context, Result, bail};
use clap::Args;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

/// What to simulate.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Seeds to run, as A..B
    #[arg(long, value_name = "A..B", conflicts_with_all = ["replay", "planted"])]
    seeds: Option<String>,
    /// One seed: counts, what each rule had to go by, and what happened to the queue concerned when it fails
    #[arg(long, value_name = "SEED", conflicts_with = "planted")]
    replay: Option<u64>,
    /// With --replay: print everything this shard is told and asks for
    #[arg(long, value_name = "SHARD", requires = "replay")]
    shard: Option<u32>,
    /// With --replay: plant this mistake
    #[arg(long, value_name = "NAME", requires = "replay")]
    plant: Option<String>,
    /// With --replay: write the history to this file, a JSON line for each thing written down
    #[arg(long, value_name = "FILE", requires = "replay")]
    history: Option<PathBuf>,
    /// Leave out the seeds that this file says are clean, and add to it those that are
    #[arg(long, value_name = "FILE", requires = "seeds")]
    resume: Option<PathBuf>,
    /// Plant each mistake, or only this one, and say how many seeds it takes to find it; UPDATE_DOCS=1 writes the table of docs/simulation.md
    #[arg(long, value_name = "NAME", num_args = 0..=1, default_missing_value = "all")]
    planted: Option<String>,
}

/// Runs `cargo xtask sim`.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let (test, variables) = what(options)?;
    let root = workspace::root()?;
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command
        .current_dir(&root)
        .args(["test", "--features", "testing"])
        .args(optimized(options).then_some(["--config", "profile.dev.opt-level=3"]).into_iter().flatten())
        .args(["--test", "simulation", "--", "--exact", test, "--nocapture"])
        .env("DUELINE_SIM_COMMIT", commit(&root))
        .envs(variables);
    let status = command.status().context("running cargo")?;
    if !status.success() {
        say::line("the simulation found something: see above");
    }
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// One seed is shown sooner without the optimizer: building with it takes minutes.
fn optimized(options: &Options) -> bool {
    options.replay.is_none()
}

type Variables = Vec<(&'static str, String)>;

fn what(options: &Options) -> Result<(&'static str, Variables)> {
    let path = |path: &PathBuf| -> Result<String> {
        let path = std::path::absolute(path).context("the place of the file")?;
        Ok(path.display().to_string())
    };
    if let Some(name) = &options.planted {
        return Ok(("planted::every_planted_mistake_is_found", vec![("DUELINE_SIM_PLANTED", name.clone())]));
    }
    if let Some(seed) = options.replay {
        let mut variables = vec![("DUELINE_SIM_SEED", seed.to_string())];
        variables.extend(options.shard.map(|shard| ("DUELINE_SIM_SHARD", shard.to_string())));
        variables.extend(options.plant.clone().map(|plant| ("DUELINE_SIM_PLANT", plant)));
        if let Some(file) = &options.history {
            variables.push(("DUELINE_SIM_HISTORY", path(file)?));
        }
        return Ok(("replay", variables));
    }
    let Some(seeds) = &options.seeds else { bail!("say --seeds A..B, --replay SEED or --planted") };
    let mut variables = vec![("DUELINE_SIM_SEEDS", seeds.clone())];
    if let Some(file) = &options.resume {
        variables.push(("DUELINE_SIM_LEDGER", path(file)?));
    }
    Ok(("seeds_of_a_long_run_keep_the_promises", variables))
}

/// The commit that is simulated, and whether the files are as in it.
fn commit(root: &std::path::Path) -> String {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").current_dir(root).args(arguments).output().ok()?;
        Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let head = git(&["rev-parse", "--short=12", "HEAD"]).unwrap_or_else(|| "unknown".into());
    let changed = git(&["status", "--porcelain"]).is_none_or(|text| !text.is_empty());
    if changed { format!("{head} with changes") } else { head }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        options: Options,
    }

    fn asked(arguments: &[&str]) -> (&'static str, Variables) {
        let cli = Cli::try_parse_from([&["sim"], arguments].concat()).expect("they parse");
        what(&cli.options).expect("something to run")
    }

    #[test]
    fn each_way_of_asking_runs_its_test() {
        let (test, variables) = asked(&["--seeds", "0..9"]);
        assert_eq!(test, "seeds_of_a_long_run_keep_the_promises");
        assert_eq!(variables, [("DUELINE_SIM_SEEDS", "0..9".to_owned())]);
        let (test, variables) = asked(&["--replay", "7", "--shard", "2"]);
        assert_eq!(test, "replay");
        assert_eq!(variables[1], ("DUELINE_SIM_SHARD", "2".to_owned()));
        let (test, variables) = asked(&["--planted"]);
        assert_eq!(test, "planted::every_planted_mistake_is_found");
        assert_eq!(variables, [("DUELINE_SIM_PLANTED", "all".to_owned())]);
    }
}
