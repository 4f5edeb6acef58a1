//! What the image takes from this Debian: the libraries that the program links, the authorities of ca-certificates, and
//! for both what scanners and lawyers look for.
//!
//! Authorities come from the files of the package, not from this machine's bundle, which may have some of its own.

use super::tree::Tree;
use super::{GROUP, USER};
use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const AUTHORITIES: &str = "ca-certificates";
pub(super) const BUNDLE: &str = "/etc/ssl/certs/ca-certificates.crt";

/// A Debian package that files of the image are from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Package {
    pub(super) name: String,
    pub(super) version: String,
    pub(super) architecture: String,
    /// Files of the image.
    pub(super) files: Vec<String>,
    /// What dpkg keeps of it.
    stanza: String,
}

#[cfg(test)]
impl Package {
    /// One with a single file.
    pub(super) fn sample(name: &str, version: &str, architecture: &str, file: &str) -> Package {
        let [name, version, architecture, file] = [name, version, architecture, file].map(str::to_owned);
        Package { name, version, architecture, files: vec![file], stanza: String::new() }
    }
}

/// All of the image but the program.
#[derive(Debug)]
pub(super) struct Debian {
    pub(super) tree: Tree,
    pub(super) packages: Vec<Package>,
    /// Such as `debian-12`.
    pub(super) release: String,
}

/// What this program needs to run.
pub(super) fn of(program: &Path) -> Result<Debian> {
    let mut tree = Tree::default();
    let mut packages: BTreeMap<String, Package> = BTreeMap::new();
    for library in libraries(program)? {
        let owner = owner(&library)?;
        let place = place(&library)?;
        let bytes = fs::read(&library).with_context(|| format!("reading {}", library.display()))?;
        tree.program(&place, bytes);
        root_link(&library, &mut tree)?;
        let package = match packages.remove(&owner) {
            Some(package) => package,
            None => package(&owner)?,
        };
        let files = [package.files, vec![place.display().to_string()]].concat();
        packages.insert(owner, Package { files, ..package });
    }
    tree.file(BUNDLE, authorities()?);
    // Where Debian's OpenSSL looks: the client of Kafka goes by it.
    tree.link("/usr/lib/ssl/cert.pem", BUNDLE);
    let authorities = Package { files: vec![BUNDLE.to_owned()], ..package(AUTHORITIES)? };
    packages.insert(AUTHORITIES.to_owned(), authorities);
    let packages: Vec<Package> = packages.into_values().collect();
    for package in &packages {
        tree.file(format!("/var/lib/dpkg/status.d/{}", package.name), package.stanza.as_str());
        let copyright = format!("/usr/share/doc/{}/copyright", package.name);
        tree.file(&copyright, read(&copyright)?);
    }
    let os_release = read("/etc/os-release")?;
    let release = release(&os_release)?;
    tree.file("/etc/os-release", os_release);
    tree.file("/etc/debian_version", read("/etc/debian_version")?);
    settings(&mut tree);
    Ok(Debian { tree, packages, release })
}

/// Names: of the user, and of hosts by the file that the runtime mounts before name servers.
fn settings(tree: &mut Tree) {
    tree.file(
        "/etc/passwd",
        format!(
            "root:x:0:0:root:/:/usr/sbin/nologin\ndueline:x:{USER}:{GROUP}:Dueline:/:/usr/sbin/nologin\n"
        ),
    );
    tree.file("/etc/group", format!("root:x:0:\ndueline:x:{GROUP}:\n"));
    tree.file("/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n");
    tree.folder("/tmp", 0o1777);
}

fn read(path: &str) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("reading {path}: the image is made of a Debian's files"))
}

/// The libraries that the program links, its loader among them.
fn libraries(program: &Path) -> Result<Vec<PathBuf>> {
    let said = output(Command::new("ldd").arg(program))?;
    let found = linked(&said).with_context(|| format!("what {} links", program.display()))?;
    ensure!(!found.is_empty(), "{} links no library: not a program of this system?", program.display());
    Ok(found)
}

/// Reads lines of ldd: `libz.so.1 => /lib/…/libz.so.1 (0x…)`, `/lib64/ld-linux-x86-64.so.2 (0x…)`; the kernel's has no path.
fn linked(said: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for line in said.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let path = line.split_once(" => ").map_or(line, |(_, path)| path);
        if path.starts_with("not found") {
            bail!("{line}: install the package that has it");
        }
        let path = path.rsplit_once(" (").map_or(path, |(path, _)| path);
        if path.starts_with('/') {
            found.push(PathBuf::from(path));
        }
    }
    found.sort();
    Ok(found)
}

/// Where it is without the links from / to /usr, under the name that programs ask for.
fn place(library: &Path) -> Result<PathBuf> {
    let (folder, name) = library.parent().zip(library.file_name()).context("a library without a folder")?;
    let folder = folder.canonicalize().with_context(|| format!("reading {}", folder.display()))?;
    Ok(folder.join(name))
}

/// The link from / to /usr that the library is asked for by.
fn root_link(library: &Path, tree: &mut Tree) -> Result<()> {
    let top: PathBuf = library.components().take(2).collect();
    if top.is_symlink() {
        tree.link(&top, fs::read_link(&top).with_context(|| format!("reading {}", top.display()))?);
    }
    Ok(())
}

/// The package of a library: dpkg knows it by its path from before or after the move to /usr.
fn owner(library: &Path) -> Result<String> {
    let other = match library.strip_prefix("/usr") {
        Ok(rest) => Path::new("/").join(rest),
        Err(_) => Path::new("/usr").join(library.strip_prefix("/").unwrap_or(library)),
    };
    let ask = |path: &Path| output(Command::new("dpkg").arg("--search").arg(path));
    let said = ask(library).or_else(|_| ask(&other)).with_context(|| {
        format!("{} is of no Debian package: the image is made of Debian's libraries", library.display())
    })?;
    let line = said.lines().find(|line| !line.starts_with("diversion ")).unwrap_or_default();
    let (package, _) = line.split_once(": ").with_context(|| format!("what dpkg said: {said:?}"))?;
    Ok(package.to_owned())
}

fn package(name: &str) -> Result<Package> {
    let stanza = output(Command::new("dpkg-query").args(["--status", name]))
        .with_context(|| format!("As root: apt-get install {name}"))?;
    let field = |field: &str| {
        let value = stanza.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(": "));
        value.map(str::to_owned).with_context(|| format!("dpkg tells no {field} of {name}"))
    };
    let (name, version, architecture) = (field("Package")?, field("Version")?, field("Architecture")?);
    Ok(Package { name, version, architecture, files: Vec::new(), stanza })
}

/// Every authority of the package, in the order of their paths.
fn authorities() -> Result<String> {
    let said = output(Command::new("dpkg-query").args(["--listfiles", AUTHORITIES]))?;
    let mut files: Vec<&str> = said.lines().filter(|path| path.ends_with(".crt")).collect();
    files.sort_unstable();
    ensure!(!files.is_empty(), "the package {AUTHORITIES} has no authorities");
    let mut bundle = String::new();
    for file in files {
        let text = fs::read_to_string(file).with_context(|| format!("reading {file}"))?;
        bundle.push_str(text.trim_end());
        bundle.push('\n');
    }
    Ok(bundle)
}

fn release(os_release: &[u8]) -> Result<String> {
    let text = String::from_utf8_lossy(os_release);
    let field = |name: &str| {
        text.lines().find_map(|line| Some(line.strip_prefix(name)?.strip_prefix('=')?.trim_matches('"')))
    };
    let (id, version) =
        field("ID").zip(field("VERSION_ID")).context("/etc/os-release without ID and VERSION_ID")?;
    Ok(format!("{id}-{version}"))
}

/// What a program wrote; that it failed is an error with its reason.
pub(super) fn output(command: &mut Command) -> Result<String> {
    let done = command.env("LC_ALL", "C").stdin(Stdio::null()).output();
    let done = done.with_context(|| format!("running {command:?}"))?;
    if !done.status.success() {
        bail!("{command:?} ended with {}: {}", done.status, String::from_utf8_lossy(&done.stderr).trim());
    }
    String::from_utf8(done.stdout).with_context(|| format!("reading what {command:?} wrote"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_read_with_the_loader_and_without_the_kernels() {
        let said = "\tlinux-vdso.so.1 (0x1)\n\tlibz.so.1 => /lib/x/libz.so.1 (0x2)\n\t/lib64/ld.so.2 (0x3)\n";
        assert_eq!(linked(said).unwrap(), [Path::new("/lib/x/libz.so.1"), Path::new("/lib64/ld.so.2")]);
    }

    #[test]
    fn a_library_that_is_not_there_is_an_error() {
        let error = linked("\tlibz.so.1 => not found\n").unwrap_err().to_string();
        assert!(error.starts_with("libz.so.1 => not found: install"), "{error}");
    }

    #[test]
    fn a_release_is_its_name_and_number() {
        assert_eq!(release(b"ID=debian\nVERSION_ID=\"12\"\n").unwrap(), "debian-12");
    }
}
