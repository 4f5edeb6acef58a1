//! The files of the image: a layer of the system, which changes with Debian, and one of the program.

use super::PROGRAM;
use super::debian::{self, Debian};
use super::layout::{self, Image};
use super::sbom::Crates;
use super::tree::Tree;
use crate::servers::state;
use crate::{packages, say, workspace};
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const SBOM: &str = "/usr/share/doc/dueline/sbom.cdx.json";
const LICENSE: &str = "/usr/share/doc/dueline/LICENSE";

/// What an image is made of.
#[derive(Debug)]
pub(super) struct Files {
    pub(super) version: String,
    /// As it was built.
    pub(super) binary: PathBuf,
    system: Tree,
    program: Tree,
    pub(super) sbom: Vec<u8>,
    pub(super) crates: Crates,
}

/// Of this binary, or of the one of this checkout.
pub(super) fn of(binary: Option<PathBuf>) -> Result<Files> {
    packages::require(packages::STRIP)?;
    let binary = match binary {
        Some(binary) => binary,
        None => build()?,
    };
    let Debian { tree: system, packages, release } = debian::of(&binary)?;
    let crates = Crates::read()?;
    let sbom = crates.document(&packages, &release)?;
    let mut program = Tree::default();
    program.program(PROGRAM, stripped(&binary)?);
    program.file(SBOM, sbom.as_slice());
    let license = workspace::root()?.join("LICENSE");
    program.file(LICENSE, fs::read(&license).with_context(|| format!("reading {}", license.display()))?);
    Ok(Files { version: crates.version()?.to_owned(), binary, system, program, sbom, crates })
}

impl Files {
    /// Writes the layout; the digest of the image.
    pub(super) fn write(&self, dir: &Path) -> Result<String> {
        let layers = [("libraries and authorities", &self.system), ("dueline", &self.program)];
        layout::write(dir, &Image { version: &self.version, layers, sbom: &self.sbom })
    }

    /// Writes the files of each layer.
    pub(super) fn unfold(&self, dir: &Path) -> Result<()> {
        for (name, tree) in [("system", &self.system), ("program", &self.program)] {
            let dir = dir.join(name);
            state::make_dir(&dir)?;
            tree.unfold(&dir)?;
        }
        Ok(())
    }
}

fn build() -> Result<PathBuf> {
    packages::require(packages::BUILD[0])?;
    say::line("building dueline for release: minutes");
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(workspace::root()?).args(["build", "--release", "--locked"]);
    command.args(["--package", "dueline", "--bin", "dueline", "--message-format", "json-render-diagnostics"]);
    let done = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output().context("running cargo")?;
    if !done.status.success() {
        bail!("dueline does not build: see the compiler's messages above");
    }
    let said = String::from_utf8_lossy(&done.stdout);
    let messages = said.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let mut programs = messages.filter_map(|message| Some(PathBuf::from(message["executable"].as_str()?)));
    programs.next_back().context("cargo named no program")
}

/// Without lines of source, which are four fifths of it; names of functions stay, for backtraces.
fn stripped(binary: &Path) -> Result<Vec<u8>> {
    let out = std::env::temp_dir().join(format!("dueline-stripped-{}", std::process::id()));
    let bytes = debian::output(Command::new("strip").arg("--strip-debug").arg("-o").arg(&out).arg(binary))
        .and_then(|_| fs::read(&out).with_context(|| format!("reading {}", out.display())));
    state::remove_file(&out)?;
    bytes
}
