//! Programs and libraries of the operating system: are they there, and which Debian package has
//! them.
//!
//! Only `cargo xtask test`, `cargo xtask k8s check` and `cargo xtask image check` install, and only as root; everything else says what to install.

use crate::say;
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
    /// A C library known to pkg-config.
    Library(&'static str),
    /// A file that is on no PATH.
    File(&'static str),
    /// A Java of exactly the major version the servers are made for.
    Java,
    /// Python's module that makes environments with pip in them.
    PythonVenv,
}

/// Cassandra 5.0 supports 11 and 17, Kafka 4 needs at least 17.
const JAVA_MAJOR: &str = "17";

/// Runs the servers.
pub(crate) const JAVA: Need = Need { what: Probe::Java, package: "openjdk-17-jdk-headless" };
/// Fetches the servers.
pub(crate) const MAVEN: Need = Need { what: Probe::Program("mvn"), package: "maven" };
/// A client of Kafka in C.
pub(crate) const KCAT: Need = Need { what: Probe::Program("kcat"), package: "kcat" };
/// Counts the engine's instructions.
pub(crate) const VALGRIND: Need = Need { what: Probe::Program("valgrind"), package: "valgrind" };
/// Opens pages as people see them.
pub(crate) const BROWSER: Need = Need { what: Probe::Program(BROWSER_PROGRAM), package: "chromium" };
pub(crate) const BROWSER_PROGRAM: &str = "chromium";
/// Makes the folder of Python clients.
pub(crate) const PYTHON_VENV: Need = Need { what: Probe::PythonVenv, package: "python3-venv" };
/// Keeps what the Kubernetes API server is told.
pub(crate) const ETCD: Need = Need { what: Probe::Program("etcd"), package: "etcd-server" };
/// Makes the key that the Kubernetes API server signs with, and a server with a certificate.
pub(crate) const OPENSSL: Need = Need { what: Probe::Program("openssl"), package: "openssl" };

/// Runs the containers of a node of Kubernetes.
pub(crate) const CONTAINERD: Need = Need { what: Probe::Program("containerd"), package: "containerd" };
/// Gives pods an interface on a bridge.
pub(crate) const CNI_BRIDGE: Need =
    Need { what: Probe::File("/usr/lib/cni/bridge"), package: "containernetworking-plugins" };
/// Makes bridges.
pub(crate) const IPROUTE: Need = Need { what: Probe::Program("ip"), package: "iproute2" };

/// Takes what only debuggers need out of the binary of the image.
pub(crate) const STRIP: Need = Need { what: Probe::Program("strip"), package: "binutils" };
/// Runs the image.
pub(crate) const RUNC: Need = Need { what: Probe::Program("runc"), package: "runc" };
/// Unpacks the image.
pub(crate) const UMOCI: Need = Need { what: Probe::Program("umoci"), package: "umoci" };
/// Reads the image; brings the filter of system calls that it is run with.
pub(crate) const SKOPEO: Need = Need { what: Probe::Program("skopeo"), package: "skopeo" };

/// What the workspace's C dependencies are built with: librdkafka compiles with gcc, g++ and make and
/// links the system's OpenSSL and zlib; zstd comes with its crate.
pub(crate) const BUILD: [Need; 6] = [
    Need { what: Probe::Program("cc"), package: "build-essential" },
    Need { what: Probe::Program("c++"), package: "build-essential" },
    Need { what: Probe::Program("make"), package: "build-essential" },
    Need { what: Probe::Program("pkg-config"), package: "pkg-config" },
    Need { what: Probe::Library("openssl"), package: "libssl-dev" },
    Need { what: Probe::Library("zlib"), package: "zlib1g-dev" },
];

impl Need {
    fn met(self) -> bool {
        match self.what {
            Probe::Program(name) => program(name).is_some(),
            Probe::Library(name) => succeeds("pkg-config", &["--exists", name]),
            Probe::File(path) => std::path::Path::new(path).is_file(),
            Probe::Java => java().is_ok(),
            Probe::PythonVenv => succeeds("python3", &["-c", "import venv, ensurepip"]),
        }
    }
}

/// Fails, naming the package, when something is absent.
pub(crate) fn require(need: Need) -> Result<()> {
    missing_error(&missing(&[need]))
}

/// Installs what is absent, as root on a Debian system; elsewhere fails, naming the packages.
pub(crate) fn install(needs: &[Need]) -> Result<()> {
    let absent = missing(needs);
    if absent.is_empty() {
        return Ok(());
    }
    if program("apt-get").is_some() && rustix::process::geteuid().is_root() {
        say::line(format_args!("installing {}", absent.join(" ")));
        apt_get(&["update", "--quiet"]);
        apt_get(&[&["install", "--yes", "--quiet", "--no-install-recommends"], absent.as_slice()].concat());
    }
    missing_error(&missing(needs))
}

/// A Java 17: JAVA_HOME, PATH, then Debian's folders.
pub(crate) fn java() -> Result<PathBuf> {
    let mut others = Vec::new();
    for candidate in javas() {
        match java_major(&candidate) {
            Some(major) if major == JAVA_MAJOR => return Ok(candidate),
            Some(major) => others.push(format!("{} is {major}", candidate.display())),
            None => {}
        }
    }
    let seen = if others.is_empty() { "none found".to_owned() } else { others.join(", ") };
    bail!("the servers need Java {JAVA_MAJOR} ({seen}): install the Debian package {}", JAVA.package)
}

/// A Java of this major version or a later one, where there is one.
pub(crate) fn java_from(major_min: u32) -> Option<PathBuf> {
    javas().find(|java| {
        java_major(java).and_then(|major| major.parse().ok()).is_some_and(|major: u32| major >= major_min)
    })
}

/// Where a Java may be.
fn javas() -> impl Iterator<Item = PathBuf> {
    let home = std::env::var_os("JAVA_HOME").map(|home| PathBuf::from(home).join("bin/java"));
    let debian = std::fs::read_dir("/usr/lib/jvm").into_iter().flatten().flatten().map(|entry| entry.path());
    let mut debian: Vec<PathBuf> = debian.map(|dir| dir.join("bin/java")).collect();
    debian.sort();
    home.into_iter().chain(program("java")).chain(debian)
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

/// A failure shows in what is still missing afterwards.
fn apt_get(args: &[&str]) {
    let status = Command::new("apt-get")
        .args(args)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null())
        .stdout(std::io::stderr())
        .status();
    match status {
        Ok(status) if status.success() => {}
        Ok(status) => say::line(format_args!("apt-get {} ended with {status}", args.join(" "))),
        Err(error) => say::line(format_args!("apt-get {}: {error}", args.join(" "))),
    }
}

fn succeeds(program: &str, args: &[&str]) -> bool {
    let status = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    status.is_ok_and(|status| status.success())
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
