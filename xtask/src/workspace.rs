//! Where the workspace is.

use anyhow::{Context, Result};
use std::path::PathBuf;

/// The root of the workspace this task was started from.
///
/// Cargo's variable at run time wins over the one at build time: several checkouts may share one
/// target folder, and so one binary.
pub(crate) fn root() -> Result<PathBuf> {
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    // A test of the product runs with the product's folder in the variable, and that is the root.
    let root = match manifest.join("xtask").is_dir() {
        true => manifest.as_path(),
        false => {
            manifest.parent().context("the xtask crate has no parent folder: run it as `cargo xtask`")?
        }
    };
    root.canonicalize().with_context(|| format!("the workspace folder {} cannot be read", root.display()))
}
