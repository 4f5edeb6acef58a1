//! Folders, files and links of a layer, the same bytes whenever the same is put in: sorted, owned by root, of no time.

use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// Paths without the leading slash. Parents come before what is in them, by the order of paths.
#[derive(Debug, Default)]
pub(super) struct Tree(BTreeMap<PathBuf, Entry>);

#[derive(Debug)]
enum Entry {
    Folder { mode: u32 },
    File { mode: u32, bytes: Vec<u8> },
    Link { to: PathBuf },
}

impl Tree {
    /// A folder; those above it are made for all to read.
    pub(super) fn folder(&mut self, path: impl AsRef<Path>, mode: u32) {
        self.put(path.as_ref(), Entry::Folder { mode });
    }

    /// A file for all to read.
    pub(super) fn file(&mut self, path: impl AsRef<Path>, bytes: impl Into<Vec<u8>>) {
        self.put(path.as_ref(), Entry::File { mode: 0o644, bytes: bytes.into() });
    }

    /// A file for all to run.
    pub(super) fn program(&mut self, path: impl AsRef<Path>, bytes: impl Into<Vec<u8>>) {
        self.put(path.as_ref(), Entry::File { mode: 0o755, bytes: bytes.into() });
    }

    /// A symbolic link.
    pub(super) fn link(&mut self, path: impl AsRef<Path>, to: impl Into<PathBuf>) {
        self.put(path.as_ref(), Entry::Link { to: to.into() });
    }

    fn put(&mut self, path: &Path, entry: Entry) {
        let path = path.strip_prefix("/").unwrap_or(path);
        for above in path.ancestors().skip(1).filter(|above| !above.as_os_str().is_empty()) {
            self.0.entry(above.to_owned()).or_insert(Entry::Folder { mode: 0o755 });
        }
        self.0.insert(path.to_owned(), entry);
    }

    /// As a tar archive.
    pub(super) fn tar(&self) -> Result<Vec<u8>> {
        let mut archive = tar::Builder::new(Vec::new());
        for (path, entry) in &self.0 {
            let mut header = tar::Header::new_gnu();
            header.set_uid(0);
            header.set_gid(0);
            header.set_mtime(0);
            header.set_size(0);
            let put = match entry {
                Entry::Folder { mode } => {
                    header.set_entry_type(tar::EntryType::Directory);
                    header.set_mode(*mode);
                    archive.append_data(&mut header, path, std::io::empty())
                }
                Entry::File { mode, bytes } => {
                    header.set_entry_type(tar::EntryType::Regular);
                    header.set_mode(*mode);
                    header.set_size(bytes.len() as u64);
                    archive.append_data(&mut header, path, bytes.as_slice())
                }
                Entry::Link { to } => {
                    header.set_entry_type(tar::EntryType::Symlink);
                    header.set_mode(0o777);
                    archive.append_link(&mut header, path, to)
                }
            };
            put.with_context(|| format!("adding {} to the archive", path.display()))?;
        }
        archive.into_inner().context("ending the archive")
    }

    /// As files below a folder that is there.
    pub(super) fn unfold(&self, dir: &Path) -> Result<()> {
        for (path, entry) in &self.0 {
            let path = dir.join(path);
            let made = match entry {
                Entry::Folder { mode } => fs::create_dir(&path)
                    .and_then(|()| fs::set_permissions(&path, Permissions::from_mode(*mode))),
                Entry::File { mode, bytes } => fs::File::create_new(&path).and_then(|mut file| {
                    file.write_all(bytes)?;
                    file.set_permissions(Permissions::from_mode(*mode))
                }),
                Entry::Link { to } => symlink(to, &path),
            };
            made.with_context(|| format!("making {}: is the folder a new one?", path.display()))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    fn sample(backwards: bool) -> Tree {
        let mut tree = Tree::default();
        let mut steps: Vec<fn(&mut Tree)> = vec![
            |tree| tree.file("/etc/a", "a"),
            |tree| tree.program("usr/bin/b", "bb"),
            |tree| tree.folder("tmp", 0o1777),
            |tree| tree.link("lib", "usr/lib"),
        ];
        if backwards {
            steps.reverse();
        }
        steps.into_iter().for_each(|step| step(&mut tree));
        tree
    }

    #[test]
    fn an_archive_is_the_same_whatever_came_first() {
        assert_eq!(sample(false).tar().unwrap(), sample(true).tar().unwrap());
    }

    #[test]
    fn an_archive_has_every_entry_with_its_mode_owned_by_root_and_of_no_time() {
        let bytes = sample(false).tar().unwrap();
        let mut archive = tar::Archive::new(bytes.as_slice());
        let mut seen = Vec::new();
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            let header = entry.header();
            assert_eq!((header.uid().unwrap(), header.gid().unwrap(), header.mtime().unwrap()), (0, 0, 0));
            let (kind, mode) = (header.entry_type(), header.mode().unwrap());
            let link = entry.link_name().unwrap().map(|to| to.display().to_string());
            let path = entry.path().unwrap().display().to_string();
            let mut text = String::new();
            entry.read_to_string(&mut text).unwrap();
            seen.push(format!("{path} {kind:?} {mode:o} {}{text}", link.unwrap_or_default()));
        }
        assert_eq!(
            seen,
            [
                "etc Directory 755 ",
                "etc/a Regular 644 a",
                "lib Symlink 777 usr/lib",
                "tmp Directory 1777 ",
                "usr Directory 755 ",
                "usr/bin Directory 755 ",
                "usr/bin/b Regular 755 bb",
            ]
        );
    }

    #[test]
    fn a_folder_has_what_the_archive_has() {
        let dir = tempfile::tempdir().unwrap();
        sample(false).unfold(dir.path()).unwrap();
        let mode = |path: &str| fs::metadata(dir.path().join(path)).unwrap().permissions().mode() & 0o7777;
        assert_eq!((mode("etc/a"), mode("usr/bin/b"), mode("tmp")), (0o644, 0o755, 0o1777));
        assert_eq!(fs::read_link(dir.path().join("lib")).unwrap(), Path::new("usr/lib"));
        assert_eq!(fs::read(dir.path().join("usr/bin/b")).unwrap(), b"bb");
    }
}
