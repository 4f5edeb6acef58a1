//! `cargo xtask image check`: the image is made, read by others, and run.

use super::bundle::{Bundle, SECCOMP};
use super::container::Runtime;
use super::files::{self, Files};
use super::{GROUP, PORT, USER, debian, layout, live};
use crate::servers::state::{self, Cache};
use crate::table::Table;
use crate::{packages, say};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// Programs that run what one types.
const SHELLS: [&str; 8] = ["sh", "bash", "dash", "ash", "zsh", "busybox", "perl", "python3"];

/// What a part of the check has looked at, and what was not as wanted.
#[derive(Debug, Default)]
pub(super) struct Found {
    checked: usize,
    faults: Vec<String>,
}

impl Found {
    /// Counts one more thing.
    pub(super) fn want(&mut self, holds: bool, otherwise: impl FnOnce() -> String) {
        self.checked += 1;
        if !holds {
            self.faults.push(otherwise());
        }
    }

    /// Counts a comparison.
    pub(super) fn same(&mut self, what: &str, found: &Value, wanted: &Value) {
        self.want(found == wanted, || format!("{what} is {found}, not {wanted}"));
    }
}

/// Adds a row; what could not be looked at is a fault.
pub(super) fn row(table: &mut Table, what: &str, look: impl FnOnce(&mut Found) -> Result<()>) {
    let mut found = Found::default();
    if let Err(error) = look(&mut found) {
        found.want(false, || format!("{error:#}"));
    }
    table.row(what, found.checked, &found.faults);
}

/// Checks everything and prints the table; whether nothing was missed.
pub(super) fn run(binary: Option<PathBuf>) -> Result<bool> {
    let begun = Instant::now();
    let needs = [packages::STRIP, packages::OPENSSL, packages::RUNC, packages::UMOCI, packages::SKOPEO];
    packages::install(&needs)?;
    ensure!(
        Path::new(SECCOMP).is_file(),
        "there is no {SECCOMP}. As root: apt-get install golang-github-containers-common"
    );
    let cache = Cache::open()?;
    state::make_dir(&cache.join("image"))?;
    let _held = state::lock(&cache.join("image/lock"))?;
    let dir = cache.join("image/run");
    let runtime = Runtime::open(dir.join("runc"))?;
    state::remove_dir(&dir)?;
    state::make_dir(&dir)?;
    let table = all(binary, &dir, &runtime);
    state::remove_dir(&dir)?;
    let table = table?;
    table.print()?;
    let verdict = if table.holds() { "ok" } else { "FAILED" };
    say::data(format_args!("{verdict}: the image, run by runc, {} s", begun.elapsed().as_secs()))?;
    Ok(table.holds())
}

fn all(binary: Option<PathBuf>, dir: &Path, runtime: &Runtime) -> Result<Table> {
    let mut table = Table::default();
    let files = files::of(binary)?;
    let image = dir.join("image");
    let digest = files.write(&image)?;
    let name = format!("{}:{}", image.display(), files.version);
    row(&mut table, "blobs are what they are named by", |found| {
        let (checked, faults) = layout::faults(&image)?;
        found.checked += checked;
        found.faults.extend(faults);
        Ok(())
    });
    row(&mut table, "made again, the digest is the same", |found| {
        let again = files.write(&dir.join("again"))?;
        found.want(again == digest, || format!("{again}, not {digest}"));
        state::remove_dir(&dir.join("again"))
    });
    row(&mut table, "skopeo reads it", |found| skopeo(&name, &digest, dir, found));
    let unpacked = dir.join("bundle");
    debian::output(Command::new("umoci").args(["unpack", "--image", &name]).arg(&unpacked))?;
    let bundle = Bundle::open(unpacked, dir.join("data"))?;
    row(&mut table, "files: root's, written by nobody, no shell", |found| owned(&bundle.root(), found));
    row(&mut table, "crates in the binary are in its bill", |found| billed(&bundle, &files, found));
    live::check(&mut table, runtime, &bundle, dir);
    Ok(table)
}

/// Another reader takes all of it and finds the settings.
fn skopeo(name: &str, digest: &str, dir: &Path, found: &mut Found) -> Result<()> {
    let image = format!("oci:{name}");
    let read = |args: &[&str]| -> Result<Value> {
        let said = debian::output(Command::new("skopeo").arg("inspect").args(args).arg(&image))?;
        serde_json::from_str(&said).context("reading what skopeo said")
    };
    let (about, config) = (read(&[])?, read(&["--config"])?);
    found.same("the digest", &about["Digest"], &digest.into());
    found.same("the number of layers", &about["Layers"].as_array().map_or(0, Vec::len).into(), &2.into());
    let settings = &config["config"];
    found.same("the user", &settings["User"], &format!("{USER}:{GROUP}").into());
    found.same("the ports", &settings["ExposedPorts"], &json!({format!("{PORT}/tcp"): {}}));
    found.same("the signal to stop", &settings["StopSignal"], &"SIGTERM".into());
    found.same("the command", &settings["Cmd"], &json!(["serve"]));
    let copy = dir.join("copy");
    let to = format!("dir:{}", copy.display());
    debian::output(Command::new("skopeo").args(["copy", "--quiet", "--insecure-policy", &image, &to]))?;
    let copied = fs::read(copy.join("manifest.json")).context("reading what skopeo copied")?;
    found.want(layout::digest(&copied) == digest, || "the copy has another manifest".to_owned());
    state::remove_dir(&copy)
}

/// What is unpacked belongs to root, and only /tmp may be written by others.
fn owned(root: &Path, found: &mut Found) -> Result<()> {
    let mut open = vec![root.to_owned()];
    while let Some(path) = open.pop() {
        let about = fs::symlink_metadata(&path).with_context(|| format!("reading {}", path.display()))?;
        let inside = Path::new("/").join(path.strip_prefix(root).unwrap_or(&path));
        let shown = inside.display();
        found.want((about.uid(), about.gid()) == (0, 0), || format!("{shown} is not root's"));
        let writable =
            if about.is_symlink() || inside == Path::new("/tmp") { 0 } else { about.mode() & 0o022 };
        found.want(writable == 0, || format!("{shown} can be written by others"));
        found.want(about.is_dir() || about.mode() & 0o6000 == 0, || {
            format!("{shown} gives rights to who runs it")
        });
        let name = inside.file_name().unwrap_or_default().to_string_lossy().into_owned();
        found.want(!SHELLS.contains(&name.as_str()), || format!("{shown} is a shell"));
        if about.is_dir() {
            let entries = fs::read_dir(&path).with_context(|| format!("reading {}", path.display()))?;
            open.extend(entries.flatten().map(|entry| entry.path()));
        }
    }
    Ok(())
}

/// The compiler has left paths of sources in the binary, by which it is known what was linked.
fn billed(bundle: &Bundle, files: &Files, found: &mut Found) -> Result<()> {
    let binary = &files.binary;
    let bytes = fs::read(binary).with_context(|| format!("reading {}", binary.display()))?;
    for name in sources(&bytes) {
        found.want(files.crates.has(&name), || {
            format!("{name} is in the binary and not in its bill of materials")
        });
    }
    let document = bundle.root().join("usr/share/doc/dueline/sbom.cdx.json");
    let inside = fs::read(&document).with_context(|| format!("reading {}", document.display()))?;
    found.want(inside == files.sbom, || "the bill of materials in the image is another".to_owned());
    Ok(())
}

/// Reads `…/registry/src/INDEX/NAME-VERSION`, which a slash or a zero ends.
fn sources(bytes: &[u8]) -> BTreeSet<String> {
    const MARK: &[u8] = b"/registry/src/";
    let is_of_name = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.+".contains(byte);
    let mut names = BTreeSet::new();
    for (at, _) in bytes.windows(MARK.len()).enumerate().filter(|(_, window)| *window == MARK) {
        let index = &bytes[at + MARK.len()..];
        let name = &index[index.iter().take_while(|byte| is_of_name(byte)).count()..];
        let Some(name) = name.strip_prefix(b"/") else { continue };
        let name = &name[..name.iter().take_while(|byte| is_of_name(byte)).count()];
        if !name.is_empty() {
            names.insert(String::from_utf8_lossy(name).into_owned());
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_in_a_binary_are_names_of_crates() {
        let bytes = b"\0/x/registry/src/index-1/a-1.0.0/src/lib.rs\0/x/registry/src/index-1/b_c-2.0.0+3\0src\0/registry/src/";
        assert_eq!(sources(bytes).into_iter().collect::<Vec<_>>(), ["a-1.0.0", "b_c-2.0.0+3"]);
    }

    #[test]
    fn a_file_that_others_may_write_and_a_shell_are_faults() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        for (name, mode) in [("sh", 0o755), ("open", 0o666), ("suid", 0o4755)] {
            let path = dir.path().join(name);
            fs::write(&path, "").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        }
        let mut found = Found::default();
        owned(dir.path(), &mut found).unwrap();
        for fault in ["/sh is a shell", "/open can be written by others", "/suid gives rights to who runs it"]
        {
            assert!(found.faults.contains(&fault.to_owned()), "{fault}: {:?}", found.faults);
        }
    }
}
