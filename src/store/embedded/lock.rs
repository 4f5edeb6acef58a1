//! The exclusive lock of a data directory: one process at a time, and whoever comes second learns who holds it.
//!
//! The lock is the kernel's (`flock`), so it goes with its process however that ends; the file's text is only the
//! holder's process id, for the message. Nothing is ever decided by that text.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

use super::db::OpenError;

const LOCK_FILE: &str = "dueline.lock";
/// A process id as text is far shorter; more in the file is not ours.
const HOLDER_BYTES_MAX: u64 = 32;

/// Held as long as the database is open.
pub(super) struct DirLock(#[expect(dead_code, reason = "closing the file gives the lock back")] File);

impl DirLock {
    /// Takes the lock of `dir`, or says who has it.
    pub(super) fn take(dir: &Path) -> Result<DirLock, OpenError> {
        let io = |source| OpenError::Directory { dir: dir.to_owned(), source };
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(dir.join(LOCK_FILE))
            .map_err(io)?;
        match file.try_lock() {
            Ok(()) => {
                file.set_len(0).map_err(io)?;
                file.seek(SeekFrom::Start(0)).map_err(io)?;
                writeln!(file, "{}", std::process::id()).map_err(io)?;
                Ok(DirLock(file))
            }
            Err(TryLockError::WouldBlock) => {
                Err(OpenError::InUse { dir: dir.to_owned(), holder: holder(&mut file) })
            }
            Err(TryLockError::Error(source)) => Err(io(source)),
        }
    }
}

fn holder(file: &mut File) -> String {
    let mut text = String::new();
    let read = file.take(HOLDER_BYTES_MAX).read_to_string(&mut text);
    match (read, text.trim().parse::<u32>()) {
        (Ok(_), Ok(pid)) => format!("process {pid}"),
        _ => "another process".to_owned(),
    }
}
