//! Wall clocks that jump: libfaketime between an instance and the C library. It reads a file per instance that says how
//! far its clock is off; monotonic clocks stay as they are.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// Where distributions put it.
const PLACES: [&str; 4] = [
    "/usr/lib/x86_64-linux-gnu/faketime",
    "/usr/lib/aarch64-linux-gnu/faketime",
    "/usr/lib64/faketime",
    "/usr/lib/faketime",
];
/// The variant for programs with threads.
const LIBRARY: &str = "libfaketimeMT.so.1";

/// Finds it.
///
/// # Errors
/// When it is not there: with what to install.
pub(crate) fn library() -> Result<PathBuf> {
    let found = PLACES.iter().map(|place| Path::new(place).join(LIBRARY)).find(|path| path.exists());
    found.context(
        "clocks are moved by libfaketime, which is not here: `apt-get install libfaketime` on Debian",
    )
}

/// The environment of a process whose clock is moved by a file.
pub(crate) fn env(library: &Path, file: &Path) -> Vec<(&'static str, OsString)> {
    vec![
        ("LD_PRELOAD", library.into()),
        ("FAKETIME_TIMESTAMP_FILE", file.into()),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1".into()),
        // The file is read again each second.
        ("FAKETIME_CACHE_DURATION", "1".into()),
    ]
}

/// Moves the clock of whoever reads this file.
pub(crate) fn set(file: &Path, by_ms: i64) -> Result<()> {
    let (sign, size) = (if by_ms < 0 { '-' } else { '+' }, by_ms.unsigned_abs());
    let text = format!("{sign}{}.{:03}\n", size / 1_000, size % 1_000);
    std::fs::write(file, text).with_context(|| format!("{}", file.display()))
}
