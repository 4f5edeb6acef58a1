//! A run in a process of its own.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::Context as _;

/// Runs a process to its end and returns what it printed; passes on what it says on stderr.
///
/// # Errors
/// It does not start, or failed: with the last it said.
pub(in super::super) fn printed(mut command: Command, path: &Path) -> anyhow::Result<Vec<u8>> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("{} does not start", path.display()))?;
    let told = child.stderr.take().context("its stderr is piped")?;
    let told = std::thread::spawn(move || {
        let mut last = String::new();
        for line in BufReader::new(told).lines().map_while(Result::ok) {
            eprintln!("{line}");
            last = line;
        }
        last
    });
    let mut printed = Vec::new();
    let read = child.stdout.take().context("its stdout is piped")?.read_to_end(&mut printed);
    let status = child.wait().context("its end")?;
    let last = told.join().unwrap_or_default();
    read.context("what it printed")?;
    anyhow::ensure!(status.success(), "{status}: {last}");
    Ok(printed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_told_with_the_last_that_was_said() {
        let shell = |script: &str| {
            let mut command = Command::new("/bin/sh");
            command.args(["-c", script]);
            printed(command, Path::new("/bin/sh"))
        };
        assert_eq!(shell("echo result; echo working >&2").expect("it ends well"), b"result\n");
        let error = shell("echo working >&2; echo 'no room' >&2; exit 3").expect_err("it fails");
        assert!(error.to_string().contains("3: no room"), "{error}");
    }
}
