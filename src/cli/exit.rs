//! Exit codes: 0 ok, 1 error, 2 usage, 3 not found, 4 conflict, 5 denied, 6 unavailable, 7 timeout, 8 partly failed.

use std::fmt;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue};

/// An error with an exit code of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exit {
    /// Anything else.
    Error = 1,
    /// The command line or the config is wrong.
    Usage = 2,
    /// There is no such thing.
    NotFound = 3,
    /// It is in another state than wanted.
    Conflict = 4,
    /// Not allowed: no token, an unknown one, or one of too small a role.
    Denied = 5,
    /// A server does not answer.
    Unavailable = 6,
    /// It took too long.
    Timeout = 7,
    /// Of many some failed.
    PartlyFailed = 8,
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Exit::Error => "error",
            Exit::Usage => "usage",
            Exit::NotFound => "not found",
            Exit::Conflict => "conflict",
            Exit::Denied => "denied",
            Exit::Unavailable => "unavailable",
            Exit::Timeout => "timeout",
            Exit::PartlyFailed => "partly failed",
        })
    }
}

/// An error that ends the program with a code of its own.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) exit: Exit,
    pub(super) text: String,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Failed {}

impl Exit {
    /// An error with this code.
    pub(super) fn with(self, text: impl Into<String>) -> anyhow::Error {
        anyhow::Error::new(Failed { exit: self, text: text.into() })
    }
}

/// Tells the error and gives its code.
pub(super) fn report(error: &anyhow::Error) -> ExitCode {
    eprintln!("error: {}", told_once(error));
    let exit =
        error.chain().find_map(|cause| cause.downcast_ref::<Failed>()).map_or(Exit::Error, |own| own.exit);
    ExitCode::from(exit as u8)
}

/// The error and its causes; a cause that was told already is left out.
fn told_once(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if !text.contains(&cause) {
            let between = if text.is_empty() { "" } else { ": " };
            text = format!("{text}{between}{cause}");
        }
    }
    text
}

/// Nouns and verbs of the interface that this version does not have yet.
const NOT_THERE_YET: [&str; 7] = ["batch", "console", "purge", "reset", "stop", "test", "watch"];

/// Help and version are no errors; everything else is wrong usage.
pub(super) fn of_usage(error: &clap::Error) -> ExitCode {
    let _ = error.print();
    if let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand)
        && NOT_THERE_YET.contains(&word.as_str())
    {
        eprintln!("\n`{word}` is not there yet in this version.");
    }
    if error.use_stderr() { ExitCode::from(Exit::Usage as u8) } else { ExitCode::SUCCESS }
}
