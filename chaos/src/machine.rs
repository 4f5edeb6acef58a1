//! What a run was made on and with, for whoever reads its report elsewhere.

use std::path::Path;

use anyhow::{Context as _, Result};
use rustix::system::uname;
use sha2::{Digest as _, Sha256};

/// So much of a program's digest tells it from others.
const DIGEST_BYTES: usize = 8;

/// Processors, memory, system.
pub(crate) fn words() -> String {
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZeroUsize::get);
    let system = uname();
    let [name, release, machine] = [system.sysname(), system.release(), system.machine()]
        .map(|text| text.to_string_lossy().into_owned());
    format!("{cores} processors{}, {name} {release} {machine}", memory())
}

#[cfg(target_os = "linux")]
fn memory() -> String {
    let info = rustix::system::sysinfo();
    let bytes = u64::from(info.mem_unit) * info.totalram;
    format!(", {:.0} GB", bytes as f64 / 1e9)
}

#[cfg(not(target_os = "linux"))]
fn memory() -> String {
    String::new()
}

/// The beginning of a program's SHA-256: two builds of one commit may differ.
pub(crate) fn digest(program: &Path) -> Result<String> {
    let bytes = std::fs::read(program).with_context(|| format!("{}", program.display()))?;
    let digest = Sha256::digest(&bytes);
    Ok(digest.iter().take(DIGEST_BYTES).map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_has_the_digest_of_its_bytes() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), "abc").expect("written");
        assert_eq!(digest(file.path()).expect("a digest"), "ba7816bf8f01cfea");
        assert!(digest(Path::new("/no/such/program")).is_err());
    }

    #[test]
    fn a_machine_has_processors() {
        assert!(!words().starts_with('0'), "{}", words());
    }
}
