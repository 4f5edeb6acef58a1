//! Results in the folder of a suite: for each process its report, its page, and what it was run as.

use std::path::PathBuf;
use std::time::UNIX_EPOCH;

use anyhow::Context as _;
use sha2::{Digest as _, Sha256};

use crate::wire::hex;

use super::super::report::commit;
use super::{Entry, Line, Program, Report, SuiteArgs};

/// A file of a process or a scenario.
pub(super) fn file(args: &SuiteArgs, name: &str, ending: &str) -> PathBuf {
    args.out.join(format!("{name}.{ending}"))
}

/// What a result is of: command, place, configuration and program.
fn run_as(args: &SuiteArgs, program: &Program, line: &Line) -> anyhow::Result<String> {
    let text = &line.text;
    let config = match &program.config {
        Some(file) => {
            let read = std::fs::read(file).with_context(|| file.display().to_string())?;
            hex(&Sha256::digest(read))
        }
        None => "none".to_owned(),
    };
    let path = &program.path;
    let built =
        path.metadata().and_then(|file| file.modified()).with_context(|| path.display().to_string())?;
    let built = built.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    Ok(format!("{text}\nat {:?}\nconfig {config}\nversion {}, built at {built}\n", args.place, commit()))
}

/// The result of an earlier suite, if it is of the same.
pub(super) fn kept(args: &SuiteArgs, program: &Program, line: &Line) -> anyhow::Result<Option<Report>> {
    let same = run_as(args, program, line)?;
    let was = std::fs::read_to_string(file(args, &line.file, "command")).ok();
    let report = std::fs::read(file(args, &line.file, "json")).ok().filter(|_| was == Some(same));
    Ok(report.and_then(|report| serde_json::from_slice(&report).ok()))
}

/// Keeps a result. The report last: a suite that was broken off has no report without what it was run as.
pub(super) fn keep(args: &SuiteArgs, program: &Program, line: &Line, printed: &[u8]) -> anyhow::Result<()> {
    let (report, begun) = (file(args, &line.file, "json"), file(args, &line.file, "json.new"));
    let _ = std::fs::remove_file(&report);
    let command = file(args, &line.file, "command");
    std::fs::write(&command, run_as(args, program, line)?).with_context(|| command.display().to_string())?;
    std::fs::write(&begun, printed).with_context(|| begun.display().to_string())?;
    std::fs::rename(&begun, &report).with_context(|| report.display().to_string())
}

/// The results of all processes of a scenario, as one.
pub(super) fn write_joined(args: &SuiteArgs, entry: &Entry, report: &Report) -> anyhow::Result<()> {
    let page = report.page(&format!("dueline {}", entry.line(args.quick)))?;
    let json = serde_json::to_vec(report)?;
    for (ending, text) in [("html", page.into_bytes()), ("json", json)] {
        let file = file(args, entry.name, ending);
        std::fs::write(&file, text).with_context(|| file.display().to_string())?;
    }
    Ok(())
}
