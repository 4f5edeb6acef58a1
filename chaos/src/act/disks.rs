//! Disks that are full, or slow; and whether their servers met that.

use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;

use anyhow::{Context as _, Result};

use crate::clock::{until_wall, wall_ms};
use crate::cluster;
use crate::say;
use crate::stage::Stage;

/// So much is read of what a server logged, in bytes.
const LOG_BYTES_MAX: u64 = 16 << 20;
/// What a log has of a full disk: the system's words when a file is written to, and the signal that ends a Java machine when a page
/// of a mapped file finds no room.
const SIGNS: [&str; 2] = ["No space left on device", "SIGBUS"];

/// The server gets a small disk first, for which it is started anew.
pub(super) async fn fill(stage: &mut Stage<'_>, name: &str, for_ms: i64) -> Result<()> {
    let from = wall_ms();
    cluster::act(&["confine", name]).await?;
    stage.until_all_run().await?;
    let log = cluster::look(name).await?.log;
    let logged = fs::metadata(&log).with_context(|| format!("{}", log.display()))?.len();
    let full = wall_ms();
    let left = cluster::fill(name).await?;
    if left > 0 {
        stage.wrong(format!("the disk of {name} was to be full, and has {left} bytes left"));
    }
    until_wall(full + for_ms).await;
    let (look, text) = (cluster::look(name).await, since(&log, logged));
    cluster::act(&["empty", name]).await?;
    cluster::act(&["start", name]).await?;
    let (runs, text) = (look?.runs, text?);
    let sign = sign(&text);
    let told = met(runs, sign);
    say::line(format_args!("   {name}: disk full, {told} ({})", sign.unwrap_or("no sign of it in its log")));
    stage.fault(format!("{name}: disk full, {told}"), from);
    Ok(())
}

/// The server is started anew first, so that its disk can be slow.
pub(super) async fn slow(stage: &mut Stage<'_>, name: &str, ms: u32, for_ms: i64) -> Result<()> {
    let from = wall_ms();
    cluster::act(&["drag", name, "--ms", "1"]).await?;
    stage.until_all_run().await?;
    // Nothing is counted while nothing takes longer: what is counted after this took as long as it has to.
    cluster::act(&["drag", name, "--ms", "0"]).await?;
    let before = cluster::look(name).await?.dragged;
    let slow = wall_ms();
    cluster::act(&["drag", name, "--ms", &ms.to_string()]).await?;
    until_wall(slow + for_ms).await;
    cluster::act(&["drag", name, "--ms", "0"]).await?;
    let dragged = cluster::look(name).await?.dragged.saturating_sub(before);
    say::line(format_args!("   {name}: {dragged} writes and syncs took longer"));
    // Every server is written to all the time, by the load if by nobody else.
    if dragged == 0 {
        stage.wrong(format!("the disk of {name} was slow, and no write of its data took longer"));
    }
    stage.fault(format!("{name}: each write {ms} ms longer"), from);
    Ok(())
}

/// What a server has logged since its log had that length.
fn since(log: &Path, length: u64) -> Result<String> {
    let read = || -> std::io::Result<Vec<u8>> {
        let (mut file, mut text) = (File::open(log)?, Vec::new());
        file.seek(SeekFrom::Start(length))?;
        file.take(LOG_BYTES_MAX).read_to_end(&mut text)?;
        Ok(text)
    };
    let text = read().with_context(|| format!("{}", log.display()))?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// The first line that has a sign of a full disk.
fn sign(log: &str) -> Option<&str> {
    log.lines().find(|line| SIGNS.iter().any(|sign| line.contains(*sign))).map(str::trim)
}

/// How it shows that a server met its full disk. It need not show, so that is told and not judged: what it writes may have had its
/// room before.
fn met(runs: bool, sign: Option<&str>) -> &'static str {
    match (runs, sign) {
        (false, Some(_)) => "its process ended of that",
        (false, None) => "its process ended",
        (true, Some(_)) => "its log says so",
        (true, None) => "which nothing shows",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_tells_of_a_full_disk_in_the_words_of_the_system_or_of_the_machine() {
        let kafka = "ERROR LogDirFailureChannel Error while appending records to q-3\n\
            java.io.IOException: No space left on device\n\tat java.base/sun.nio.ch.FileDispatcherImpl.write0\n";
        assert_eq!(sign(kafka), Some("java.io.IOException: No space left on device"));
        let cassandra = "# A fatal error has been detected by the Java Runtime Environment:\n#\n#  SIGBUS (0x7) at pc=0x7f\n";
        assert_eq!(sign(cassandra), Some("#  SIGBUS (0x7) at pc=0x7f"));
        assert_eq!(sign("INFO Adding /10.77.2.12:7000\n"), None);
    }

    #[test]
    fn only_what_was_logged_since_then_is_read() {
        let dir = tempfile::tempdir().expect("a folder");
        let log = dir.path().join("server.log");
        fs::write(&log, "SIGBUS of before\nnow\n").expect("a log");
        assert_eq!(since(&log, 17).expect("read"), "now\n");
        assert_eq!(since(&log, 21).expect("read"), "");
    }

    #[test]
    fn a_server_that_runs_on_and_says_nothing_shows_nothing() {
        assert_eq!(met(true, None), "which nothing shows");
        assert_eq!(met(true, Some("No space left on device")), "its log says so");
        assert_eq!(met(false, None), "its process ended");
    }
}
