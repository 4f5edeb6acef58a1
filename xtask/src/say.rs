//! The two ways out: progress for people on stderr, data for scripts on stdout.

use anyhow::{Context, Result};
use std::fmt::Display;
use std::io::Write;

/// Writes one line of progress to stderr. A closed stderr is no reason to stop.
pub(crate) fn line(text: impl Display) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Writes one line of data to stdout.
pub(crate) fn data(text: impl Display) -> Result<()> {
    writeln!(std::io::stdout(), "{text}").context("writing to stdout")
}
