//! `cargo xtask image`: the image of Dueline, made of the release binary and of the libraries that it links, without a
//! container engine.
//!
//! It has no shell and no package manager: the program, its libraries, the authorities of ca-certificates, and a user
//! without rights. What is compiled in stays so (Rust, librdkafka, zstd, jemalloc); OpenSSL, zlib and glibc are Debian's, so
//! that scanners know them by their packages and an update is a new image, not a new release. Time zones are in the program.
//! `deploy/Containerfile` builds the same files by `image files`.
//!
//! ```text
//! program ──ldd──► libraries ──dpkg──► packages ─┐
//! cargo tree, metadata, Cargo.lock ──────────────┴─► bill of materials
//! CACHE/image/lock   one check at a time
//! CACHE/image/run/   layout, bundle and data of a check; removed at the end, and at the next start
//! ```

mod bundle;
mod check;
mod container;
mod debian;
mod files;
mod layout;
mod live;
mod pod;
mod sbom;
mod tls;
mod tree;

use crate::say;
use anyhow::{Context, Result, bail, ensure};
use clap::{Args, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;

/// The user and group that the program runs as: numbers, since Kubernetes cannot tell that a name is not root's.
const USER: u32 = 10001;
const GROUP: u32 = 10001;
/// Where the HTTP interface listens.
const PORT: u16 = 7420;
const PROGRAM: &str = "/usr/local/bin/dueline";

/// What to do with the image.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Make it, as an OCI image layout, with its bill of materials
    Build {
        /// Folder of the layout: absent, empty, or an earlier one
        #[arg(long, default_value = "target/image")]
        out: PathBuf,
        #[command(flatten)]
        program: Program,
    },
    /// Make it and run it under runc as the manifests of deploy/k8s ask (Linux, root)
    Check {
        #[command(flatten)]
        program: Program,
    },
    /// Its files alone, a folder a layer (system, program): what deploy/Containerfile copies
    Files {
        /// Folder that is not there yet
        #[arg(long)]
        out: PathBuf,
        #[command(flatten)]
        program: Program,
    },
    /// Its bill of materials alone, as CycloneDX
    Sbom {
        #[arg(long)]
        out: PathBuf,
        #[command(flatten)]
        program: Program,
    },
}

#[derive(Debug, Args)]
struct Program {
    /// The release binary [default: the one of this checkout, built first]
    #[arg(long)]
    binary: Option<PathBuf>,
}

/// Runs `cargo xtask image`.
pub(crate) fn run(options: Options) -> Result<ExitCode> {
    match options.action {
        Action::Build { out, program } => {
            let files = files::of(program.binary)?;
            let digest = files.write(&out)?;
            say::data(format_args!("{digest}"))?;
            let (image, version) = (out.display(), &files.version);
            say::line(format_args!(
                "made; to send it: skopeo copy oci:{image}:{version} docker://REGISTRY/dueline:{version}"
            ));
        }
        Action::Check { program } => {
            possible()?;
            return Ok(if check(program.binary)? { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
        Action::Files { out, program } => files::of(program.binary)?.unfold(&out)?,
        Action::Sbom { out, program } => {
            let files = files::of(program.binary)?;
            std::fs::write(&out, &files.sbom).with_context(|| format!("writing {}", out.display()))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Makes it of this binary, or of the one of this checkout, and runs it; whether all was as wanted.
pub(crate) fn check(binary: Option<PathBuf>) -> Result<bool> {
    check::run(binary)
}

/// Makes the layout of this binary, or of the one of this checkout; the digest of the image.
pub(crate) fn write(binary: Option<PathBuf>, out: &std::path::Path) -> Result<String> {
    files::of(binary)?.write(out)
}

/// Whether the image can be run here; why not, otherwise.
pub(crate) fn possible() -> Result<()> {
    if !cfg!(target_os = "linux") {
        bail!("runc is Linux's; `cargo xtask image build` makes the image on any Debian");
    }
    ensure!(
        rustix::process::geteuid().is_root(),
        "unpacking an image with its owners and running it needs root: run it as root, or with sudo"
    );
    Ok(())
}
