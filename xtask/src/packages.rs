//! Programs and libraries of the operating system: are they there, and which Debian package has
//! them.

use anyhow::{Result, bail};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Something the system must have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Need {
    what: Probe,
    /// The Debian package that provides it.
    package: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Probe {
    /// A program on PATH.
    Program(&'static str),
    /// A Java of exactly the major version the servers are made for.
    Java,
}

/// Cassandra 5.0 supports 11 and 17, Kafka 4 needs at least 17.
const JAVA_MAJOR: &str = "17";

/// Runs the servers.
pub(crate) const JAVA: Need = Need { what: Probe::Java, package: "openjdk-17-jdk-headless" };
/// Fetches the servers.
pub(crate) const MAVEN: Need = Need { what: Probe::Program("mvn"), package: "maven" };
impl Need {
    fn met(self) -> bool {
        match self.what {
            Probe::Program(name) => program(name).is_some(),
            Probe::Java => java().is_ok(),
        }
    }
}

/// Fails, naming the package, when something is absent.
pub(crate) fn require(need: Need) -> Result<()> {
    missing_error(&missing(&[need]))
}

/// A Java 17: JAVA_HOME, PATH, then Debian's folders.
pub(crate) fn java() -> Result<PathBuf> {
    let home = std::env::var_os("JAVA_HOME").map(|home| PathBuf::from(home).join("bin/java"));
    let debian = std::fs::read_dir("/usr/lib/jvm").into_iter().flatten().flatten().map(|entry| entry.path());
    let mut debian: Vec<PathBuf> = debian.map(|dir| dir.join("bin/java")).collect();
    debian.sort();
    let candidates = home.into_iter().chain(program("java")).chain(debian);
    let mut others = Vec::new();
    for candidate in candidates {
        match java_major(&candidate) {
            Some(major) if major == JAVA_MAJOR => return Ok(candidate),
            Some(major) => others.push(format!("{} is {major}", candidate.display())),
            None => {}
        }
    }
    let seen = if others.is_empty() { "none found".to_owned() } else { others.join(", ") };
    bail!("the servers need Java {JAVA_MAJOR} ({seen}): install the Debian package {}", JAVA.package)
}

/// The path of a program on PATH.
pub(crate) fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|file| file.is_file())
}

fn missing(needs: &[Need]) -> Vec<&'static str> {
    let mut packages: Vec<&str> = needs.iter().filter(|need| !need.met()).map(|need| need.package).collect();
    packages.dedup();
    packages
}

fn missing_error(packages: &[&str]) -> Result<()> {
    if packages.is_empty() {
        return Ok(());
    }
    let packages = packages.join(" ");
    bail!("not on this machine: the Debian package(s) {packages}. As root: apt-get install {packages}")
}

/// Reads `openjdk version "17.0.15" …`.
fn java_major(java: &std::path::Path) -> Option<String> {
    let output = Command::new(java).arg("-version").stdin(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let (_, rest) = text.split_once("version \"")?;
    Some(rest.split(['.', '"', '-', '+']).next()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_names_its_package_once() {
        let absent = |package| Need { what: Probe::Program("no-such-program"), package };
        assert_eq!(missing(&[absent("a"), absent("a"), absent("b")]), ["a", "b"]);
        let error = require(absent("a-package")).unwrap_err().to_string();
        assert!(error.ends_with("apt-get install a-package"), "{error}");
    }

    #[test]
    fn a_shell_is_on_the_path() {
        assert!(program("sh").is_some());
        assert!(program("no-such-program").is_none());
    }
}
