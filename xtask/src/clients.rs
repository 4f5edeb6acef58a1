//! Clients nobody here wrote, for the tests that produce and consume with them: kcat from Debian,
//! Python packages in a virtual environment in the cache.

use crate::servers::state::{self, Cache};
use crate::{packages, say};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// One client on librdkafka and one that shares no code with it. From librdkafka 2.10 on (2.16 is the newest seen) a
/// producer is lost for good when the last broker it knows answers, on its way out, that there is none: its issue 5301.
const PYTHON_PACKAGES: [&str; 2] = ["confluent-kafka==2.9.0", "kafka-python==3.0.12"];
const PYTHON_IMPORTS: &str = "import confluent_kafka, kafka";

/// Programs for the tests.
#[derive(Debug)]
pub(crate) struct Clients {
    /// The `python` that has the packages.
    pub(crate) python: PathBuf,
    /// The `kcat` program.
    pub(crate) kcat: PathBuf,
}

/// Finds the clients, making the environment when absent. The system packages must be there.
pub(crate) fn ensure() -> Result<Clients> {
    let kcat = packages::program("kcat").context("kcat is not on PATH: install the Debian package kcat")?;
    Ok(Clients { python: python(&Cache::open()?)?, kcat })
}

fn python(cache: &Cache) -> Result<PathBuf> {
    let _held = cache.lock()?;
    let dir = cache.join("clients").join(PYTHON_PACKAGES.join("-").replace("==", "-"));
    let python = dir.join("bin/python");
    if !imports(&python) {
        say::line(format_args!("installing {} in {}", PYTHON_PACKAGES.join(" "), dir.display()));
        // An environment cannot be moved into place, so half a one is made anew.
        state::remove_dir(&dir)?;
        run(Command::new("python3").args(["-m", "venv"]).arg(&dir), "making a Python environment")?;
        let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary=:all:"];
        run(Command::new(&python).args(pip).args(PYTHON_PACKAGES), "installing the Python clients")?;
    }
    if !imports(&python) {
        bail!("{} cannot import the clients: remove {} and try again", python.display(), dir.display());
    }
    Ok(python)
}

fn imports(python: &Path) -> bool {
    let status =
        Command::new(python).args(["-c", PYTHON_IMPORTS]).stdin(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

fn run(command: &mut Command, what: &str) -> Result<()> {
    let status = command.stdin(Stdio::null()).stdout(std::io::stderr()).status().context(what.to_owned())?;
    if !status.success() {
        bail!("{what}: {command:?} ended with {status}, see its messages above");
    }
    Ok(())
}
