//! Wall clocks that jump: a library between an instance and the C library (`chaos/preload`) reads a file that says how far
//! the instance's clock is off. Monotonic clocks stay as they are.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

use crate::site;

const LIBRARY: &str = "libpreload.so";

/// The library, built beside this program.
///
/// # Errors
/// Where programs do not load a library before others, and when it cannot be built.
pub(crate) fn library() -> Result<PathBuf> {
    ensure!(cfg!(target_os = "linux"), "clocks are moved on Linux only");
    site::build(&["--package", "preload"], LIBRARY)
}

/// The environment of a process whose clock is moved by a file.
pub(crate) fn env(library: &Path, file: &Path) -> Vec<(&'static str, OsString)> {
    vec![("LD_PRELOAD", library.into()), ("SKEW_FILE", file.into())]
}

/// Moves the clock of whoever reads this file. It is never empty in between: the whole text takes the place of the old.
pub(crate) fn set(file: &Path, by_ms: i64) -> Result<()> {
    use std::os::unix::fs::FileExt as _;
    let place = || format!("{}", file.display());
    let open =
        std::fs::File::options().create(true).truncate(false).write(true).open(file).with_context(place)?;
    open.write_all_at(format!("{by_ms:+020}").as_bytes(), 0).with_context(place)
}
