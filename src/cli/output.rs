//! How data is written to stdout.

use std::io::Write;

use serde::Serialize;

/// The formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Format {
    /// For people.
    Text,
    /// One JSON document.
    Json,
    /// One JSON document a line.
    Jsonl,
}

/// Writes text as it is.
pub(super) fn text(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    let written = out
        .write_all(text.as_bytes())
        .and_then(|()| if text.ends_with('\n') || text.is_empty() { Ok(()) } else { out.write_all(b"\n") });
    quiet_when_closed(written.and_then(|()| out.flush()))
}

/// Writes a value as JSON: indented, or on one line.
pub(super) fn json<T: Serialize>(format: Format, value: &T) -> anyhow::Result<()> {
    let written = match format {
        Format::Json | Format::Text => serde_json::to_string_pretty(value)?,
        Format::Jsonl => serde_json::to_string(value)?,
    };
    text(&written)
}

/// Writes values as JSON: one list, or one value a line.
pub(super) fn json_each<T: Serialize>(format: Format, values: &[T]) -> anyhow::Result<()> {
    match format {
        Format::Json | Format::Text => json(format, &values),
        Format::Jsonl => values.iter().try_for_each(|value| json(format, value)),
    }
}

/// Whoever reads the output may stop reading (`| head`).
fn quiet_when_closed(written: std::io::Result<()>) -> anyhow::Result<()> {
    match written {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written?),
    }
}

/// A text as a line of its own, whatever people have put into it.
pub(super) fn on_one_line(text: &str) -> String {
    let shown = text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c });
    shown.chain(['\n']).collect()
}
