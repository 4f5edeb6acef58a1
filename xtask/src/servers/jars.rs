//! Jars of the servers, and of Strimzi for its resource definitions: fetched by Maven into the cache, then compared with the checksums in
//! `xtask/servers.sha256`, jar by jar, on every use.
//!
//! Nothing runs from a folder whose set of jars differs from the committed list in any way.

use super::state::{self, Cache};
use crate::{packages, say, workspace};
use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const PINS_FILE: &str = "xtask/servers.sha256";
const MAVEN_GOAL: &str = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies";
const FETCH_ATTEMPTS_MAX: u32 = 3;

/// The jars of one server.
#[derive(Debug)]
pub(crate) struct Bundle {
    /// Folder name in the cache, together with the version.
    pub(crate) name: &'static str,
    /// Version of the server.
    pub(crate) version: &'static str,
    artifacts: &'static [Artifact],
}

/// One dependency of the generated pom.
#[derive(Debug)]
struct Artifact {
    group: &'static str,
    name: &'static str,
    version: &'static str,
    /// A dependency of this one that is left out, as group and name.
    without: Option<(&'static str, &'static str)>,
}

/// Kafka's broker, its command line tools and a logger.
pub(crate) const KAFKA: Bundle = Bundle {
    name: "kafka",
    version: "4.1.0",
    artifacts: &[
        artifact("org.apache.kafka", "kafka_2.13", "4.1.0"),
        // Kafka Connect's runtime is a web server with forty jars of its own.
        Artifact {
            without: Some(("org.apache.kafka", "connect-runtime")),
            ..artifact("org.apache.kafka", "kafka-tools", "4.1.0")
        },
        artifact("org.apache.logging.log4j", "log4j-core", "2.24.3"),
        artifact("org.apache.logging.log4j", "log4j-slf4j-impl", "2.24.3"),
    ],
};

/// Cassandra and the agent that measures its objects.
pub(crate) const CASSANDRA: Bundle = Bundle {
    name: "cassandra",
    version: "5.0.5",
    artifacts: &[
        artifact("org.apache.cassandra", "cassandra-all", "5.0.5"),
        artifact("com.github.jbellis", "jamm", "0.4.0"),
    ],
};

/// What makes the resource definitions of Strimzi, the operator of Kafka for Kubernetes, from its classes. Needs Java 21.
pub(crate) const STRIMZI: Bundle = Bundle {
    name: "strimzi",
    version: "1.2.0",
    artifacts: &[artifact("io.strimzi", "crd-generator", "1.2.0"), artifact("io.strimzi", "api", "1.2.0")],
};

const fn artifact(group: &'static str, name: &'static str, version: &'static str) -> Artifact {
    Artifact { group, name, version, without: None }
}

/// Checksums of one bundle: jar name to lower-case hex.
type Pins = BTreeMap<String, String>;

/// The folder with the verified jars of a bundle, fetched when absent. The caller holds the cache.
pub(crate) fn ensure(cache: &Cache, bundle: &Bundle) -> Result<PathBuf> {
    let pins_path = workspace::root()?.join(PINS_FILE);
    let pins = fs::read_to_string(&pins_path).with_context(|| format!("reading {}", pins_path.display()))?;
    let pins = parse_pins(&pins, bundle.name)?;
    let dir = cache.join("jars").join(format!("{}-{}", bundle.name, bundle.version));
    if !dir.exists() {
        fetch(cache, bundle, &dir, &pins)?;
    }
    verify(&dir, &pins).with_context(|| {
        format!(
            "the jars in {} are not those in {PINS_FILE}: remove the folder, and the jar from Maven's local \
             repository, to fetch again",
            dir.display()
        )
    })?;
    Ok(dir)
}

/// Fetches all bundles anew and writes their checksums to `xtask/servers.sha256`.
pub(super) fn pin(cache: &Cache) -> Result<()> {
    let mut text =
        String::from("# sha256 of every jar of the servers; written by `cargo xtask servers pin`\n");
    for bundle in [&KAFKA, &CASSANDRA, &STRIMZI] {
        let scratch = cache.join("jars").join(format!("{}.pin", bundle.name));
        state::remove_dir(&scratch)?;
        copy_dependencies(bundle, &scratch)?;
        for (jar, sum) in checksums(&scratch.join("lib"))? {
            writeln!(text, "{sum}  {}/{jar}", bundle.name).context("formatting checksums")?;
        }
        state::remove_dir(&scratch)?;
    }
    let path = workspace::root()?.join(PINS_FILE);
    fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
    say::line(format_args!("wrote {}", path.display()));
    Ok(())
}

fn fetch(cache: &Cache, bundle: &Bundle, dir: &Path, pins: &Pins) -> Result<()> {
    say::line(format_args!("fetching {} {} by Maven", bundle.name, bundle.version));
    let scratch = cache.join("jars").join(format!("{}.fetch", bundle.name));
    state::remove_dir(&scratch)?;
    copy_dependencies(bundle, &scratch)?;
    let lib = scratch.join("lib");
    let verified = verify(&lib, pins).with_context(|| {
        format!("what Maven fetched for {} is not what {PINS_FILE} lists; nothing was kept", bundle.name)
    });
    if verified.is_ok() {
        fs::rename(&lib, dir).with_context(|| format!("moving the jars to {}", dir.display()))?;
    }
    state::remove_dir(&scratch)?;
    verified
}

/// Runs Maven on a generated pom; jars end in `scratch/lib`.
fn copy_dependencies(bundle: &Bundle, scratch: &Path) -> Result<()> {
    packages::require(packages::MAVEN)?;
    state::make_dir(scratch)?;
    let pom = scratch.join("pom.xml");
    fs::write(&pom, pom_text(bundle)?).with_context(|| format!("writing {}", pom.display()))?;
    for attempt in 1..=FETCH_ATTEMPTS_MAX {
        let status = Command::new("mvn")
            .args(["--batch-mode", "--quiet", "--file"])
            .arg(&pom)
            .args([MAVEN_GOAL, "-DincludeScope=runtime", "-Dstyle.color=never"])
            .arg(format!("-DoutputDirectory={}", scratch.join("lib").display()))
            .stdin(Stdio::null())
            .stdout(std::io::stderr())
            .status()
            .context("running mvn: install the Debian package maven")?;
        if status.success() {
            return Ok(());
        }
        say::line(format_args!("mvn ended with {status}, attempt {attempt} of {FETCH_ATTEMPTS_MAX}"));
    }
    bail!("Maven could not fetch the jars of {} {}: see its messages above", bundle.name, bundle.version)
}

fn pom_text(bundle: &Bundle) -> Result<String> {
    let mut pom = String::from("<project xmlns=\"http://maven.apache.org/POM/4.0.0\">\n");
    let Bundle { name, version, artifacts } = bundle;
    writeln!(pom, "<modelVersion>4.0.0</modelVersion>")?;
    writeln!(pom, "<groupId>dueline</groupId><artifactId>{name}</artifactId><version>{version}</version>")?;
    writeln!(pom, "<dependencies>")?;
    for Artifact { group, name, version, without } in *artifacts {
        write!(pom, "<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId>")?;
        write!(pom, "<version>{version}</version>")?;
        if let Some((group, name)) = without {
            write!(pom, "<exclusions><exclusion><groupId>{group}</groupId>")?;
            write!(pom, "<artifactId>{name}</artifactId></exclusion></exclusions>")?;
        }
        writeln!(pom, "</dependency>")?;
    }
    writeln!(pom, "</dependencies>\n</project>")?;
    Ok(pom)
}

fn parse_pins(text: &str, bundle: &str) -> Result<Pins> {
    let mut pins = Pins::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (sum, path) =
            line.split_once("  ").with_context(|| format!("{PINS_FILE}: not a checksum line: {line}"))?;
        let (owner, jar) =
            path.split_once('/').with_context(|| format!("{PINS_FILE}: no folder in: {line}"))?;
        if owner == bundle {
            pins.insert(jar.to_owned(), sum.to_owned());
        }
    }
    Ok(pins)
}

/// Compares a folder with its checksums and names every jar that differs.
fn verify(dir: &Path, pins: &Pins) -> Result<()> {
    let found = checksums(dir)?;
    let mut faults = Vec::new();
    for (jar, want) in pins {
        match found.get(jar) {
            None => faults.push(format!("{jar} is missing")),
            Some(got) if got != want => faults.push(format!("{jar} has sha256 {got}, not {want}")),
            Some(_) => {}
        }
    }
    faults.extend(
        found.keys().filter(|jar| !pins.contains_key(*jar)).map(|jar| format!("{jar} is not listed")),
    );
    if !faults.is_empty() {
        bail!("{}", faults.join("; "));
    }
    Ok(())
}

fn checksums(dir: &Path) -> Result<Pins> {
    let mut sums = Pins::new();
    for entry in fs::read_dir(dir).with_context(|| format!("listing {}", dir.display()))? {
        let path = entry.with_context(|| format!("listing {}", dir.display()))?.path();
        let jar = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        sums.insert(jar, sha256(&path)?);
    }
    Ok(sums)
}

fn sha256(path: &Path) -> Result<String> {
    let bytes = fs::read(path).with_context(|| format!("reading {}", path.display()))?;
    let mut hex = String::new();
    for byte in Sha256::digest(bytes) {
        write!(hex, "{byte:02x}").context("formatting a checksum")?;
    }
    Ok(hex)
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    fn check(files: &[&str], pinned: &[(&str, &str)], fault: Option<&str>) {
        let dir = tempfile::tempdir().unwrap();
        for file in files {
            fs::write(dir.path().join(file), "").unwrap();
        }
        let pins = pinned.iter().map(|(jar, sum)| ((*jar).to_owned(), (*sum).to_owned())).collect();
        let found = verify(dir.path(), &pins).err().map(|error| error.to_string());
        assert_eq!(found.as_deref(), fault);
    }

    #[test]
    fn a_folder_must_hold_exactly_the_listed_jars() {
        check(&["a.jar"], &[("a.jar", EMPTY)], None);
        check(&[], &[("a.jar", EMPTY)], Some("a.jar is missing"));
        check(&["a.jar", "b.jar"], &[("a.jar", EMPTY)], Some("b.jar is not listed"));
        check(&["a.jar"], &[("a.jar", "00")], Some(&format!("a.jar has sha256 {EMPTY}, not 00")));
    }

    #[test]
    fn checksum_lines_are_sorted_to_their_bundle() {
        let text = "# note\n11  kafka/a.jar\n22  cassandra/b.jar\n";
        assert_eq!(parse_pins(text, "kafka").unwrap(), Pins::from([("a.jar".to_owned(), "11".to_owned())]));
        assert!(parse_pins("11 kafka/a.jar", "kafka").is_err());
    }

    #[test]
    fn a_left_out_dependency_becomes_an_exclusion() {
        let pom = pom_text(&KAFKA).unwrap();
        assert_eq!(pom.matches("<exclusion>").count(), 1);
        assert_eq!(pom.matches("<dependency>").count(), 4);
    }
}
