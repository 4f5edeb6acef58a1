//! The two ways out: progress for people on stderr, data on stdout.

use std::fmt::Display;
use std::io::Write as _;

use anyhow::{Context as _, Result};

/// Writes one line of progress. A closed stderr is no reason to stop.
pub(crate) fn line(text: impl Display) {
    let now = crate::clock::rfc3339(crate::clock::wall_ms());
    let _ = writeln!(std::io::stderr(), "{} {text}", now.get(11..19).unwrap_or_default());
}

/// Writes one line of data.
pub(crate) fn data(text: impl Display) -> Result<()> {
    writeln!(std::io::stdout(), "{text}").context("writing to stdout")
}
