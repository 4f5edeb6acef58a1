//! Every overlay with every set of components that makes sense, each in a namespace of its own.

use super::crds::documents;
use super::kubectl::Kubectl;
use crate::servers::state;
use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::{Component as Part, Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Components in the order they are to be listed in, each with what it builds on.
const COMPONENTS: [(&str, Option<&str>); 7] = [
    ("tls-kafka", None),
    ("sasl", Some("tls-kafka")),
    ("tls-cassandra", None),
    ("cassandra-password", None),
    ("prometheus", None),
    ("keda", Some("prometheus")),
    ("static-membership", None),
];

/// The installation without servers.
pub(super) const EMBEDDED: &str = "overlays/embedded";

/// Components that change nothing that others change: tried alone and on top of all others, not in every set.
const APART: [&str; 1] = ["otlp"];

/// An installation to begin with.
#[derive(Debug)]
pub(super) struct Overlay {
    /// Its folder in deploy/k8s.
    pub(super) dir: &'static str,
    /// Components that it has already, or that do not fit.
    without: &'static [&'static str],
    /// Which sets of the others it is tried with.
    tried: Tried,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tried {
    /// With every set.
    Whole,
    /// It is another overlay but for names and addresses: bare, with each component by itself, and with all.
    Like,
}

/// What components are put on.
pub(super) const OVERLAYS: [Overlay; 6] = [
    Overlay { dir: "base", without: &[], tried: Tried::Whole },
    Overlay { dir: "overlays/dc-a", without: &[], tried: Tried::Whole },
    Overlay { dir: "overlays/dc-b", without: &[], tried: Tried::Like },
    Overlay { dir: "overlays/dc-c", without: &[], tried: Tried::Like },
    // It has a Deployment for each zone: a ScaledObject scales one.
    Overlay {
        dir: "overlays/three-zones",
        without: &["tls-kafka", "sasl", "cassandra-password", "keda"],
        tried: Tried::Whole,
    },
    // It has no servers, and one instance.
    Overlay {
        dir: EMBEDDED,
        without: &["tls-kafka", "sasl", "tls-cassandra", "cassandra-password", "keda", "static-membership"],
        tried: Tried::Whole,
    },
];

/// Folders of objects for other operators, which take no components.
pub(super) const SERVERS: [&str; 4] =
    ["kafka", "cassandra/k8ssandra", "cassandra/cass-operator", "cassandra/scylla"];

/// An overlay with components.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Arrangement {
    pub(super) overlay: &'static str,
    pub(super) components: Vec<&'static str>,
    pub(super) namespace: String,
}

impl fmt::Display for Arrangement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.overlay)?;
        self.components.iter().try_for_each(|component| write!(f, " + {component}"))
    }
}

/// All arrangements of an overlay.
pub(super) fn of(overlay: &Overlay) -> Vec<Arrangement> {
    let short = overlay.dir.trim_start_matches("overlays/");
    sets(overlay)
        .into_iter()
        .enumerate()
        .map(|(n, components)| Arrangement {
            overlay: overlay.dir,
            components,
            namespace: format!("{short}-{n}"),
        })
        .collect()
}

/// The sets of components of an overlay, each with what it builds on; and those apart, on the smallest and the largest.
fn sets(overlay: &Overlay) -> Vec<Vec<&'static str>> {
    let without = overlay.without;
    let mut sets: Vec<Vec<&'static str>> = vec![Vec::new()];
    for (component, needs) in COMPONENTS.into_iter().filter(|(component, _)| !without.contains(component)) {
        let fits = |set: &&Vec<&'static str>| needs.is_none_or(|needed| set.contains(&needed));
        let with: Vec<Vec<&'static str>> =
            sets.iter().filter(fits).map(|set| set.iter().copied().chain([component]).collect()).collect();
        sets.extend(with);
    }
    let largest = sets.iter().max_by_key(|set| set.len()).cloned().unwrap_or_default();
    if overlay.tried == Tried::Like {
        sets.retain(|set| *set == largest || by_itself(set));
    }
    for component in APART {
        sets.push(vec![component]);
        sets.push(largest.iter().copied().chain([component]).collect());
    }
    sets
}

/// Whether a set is at most one component, with what that builds on.
fn by_itself(set: &[&str]) -> bool {
    let builds_on = |component: &str| COMPONENTS.iter().find(|(name, _)| *name == component)?.1;
    set.iter().skip(1).zip(set).all(|(component, before)| builds_on(component) == Some(before))
}

/// Folders that this check does not know, or that are gone.
pub(super) fn unknown_folders(deploy: &Path) -> Result<Vec<String>> {
    let mut faults = Vec::new();
    let components = COMPONENTS.iter().map(|(name, _)| *name).chain(APART).map(str::to_owned).collect();
    let overlays = OVERLAYS.iter().filter_map(|overlay| overlay.dir.strip_prefix("overlays/"));
    for (dir, known) in [("components", components), ("overlays", overlays.map(str::to_owned).collect())] {
        let known: BTreeSet<String> = known;
        let mut found = BTreeSet::new();
        for entry in fs::read_dir(deploy.join(dir)).with_context(|| format!("listing {dir}"))? {
            found.insert(entry?.file_name().to_string_lossy().into_owned());
        }
        faults.extend(
            found.symmetric_difference(&known).map(|name| format!("{dir}/{name} is not in both lists")),
        );
    }
    Ok(faults)
}

/// Renders arrangements, in the order given, by two kubectl at a time.
pub(super) fn render(
    kubectl: &Kubectl,
    deploy: &Path,
    dir: &Path,
    all: &[Arrangement],
) -> Result<Vec<String>> {
    let (next, rendered) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || -> Result<()> {
        loop {
            let n = next.fetch_add(1, Ordering::Relaxed);
            let Some(arrangement) = all.get(n) else { return Ok(()) };
            let text = one(kubectl, deploy, dir, arrangement).with_context(|| arrangement.to_string())?;
            rendered.lock().unwrap_or_else(PoisonError::into_inner).push((n, text));
        }
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(work);
        let mine = work();
        other.join().unwrap_or_else(|_| bail!("a thread that renders panicked"))?;
        mine
    })?;
    let mut rendered = rendered.into_inner().unwrap_or_else(PoisonError::into_inner);
    rendered.sort();
    Ok(rendered.into_iter().map(|(_, text)| text).collect())
}

fn one(kubectl: &Kubectl, deploy: &Path, dir: &Path, arrangement: &Arrangement) -> Result<String> {
    let dir = dir.join(&arrangement.namespace);
    state::make_dir(&dir)?;
    let deploy = relative(&dir, deploy)?;
    let at = |name: &str| deploy.join(name).display().to_string();
    let components: Vec<String> =
        arrangement.components.iter().map(|name| at(&format!("components/{name}"))).collect();
    let kustomization = serde_json::json!({
        "apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization",
        "namespace": arrangement.namespace, "resources": [at(arrangement.overlay)], "components": components,
    });
    fs::write(dir.join("kustomization.yaml"), kustomization.to_string())
        .context("writing a kustomization")?;
    kubectl.kustomize(&dir)
}

/// The way from one absolute folder to another: kustomize takes no other.
fn relative(from: &Path, to: &Path) -> Result<PathBuf> {
    let (from, to) = (from.canonicalize()?, to.canonicalize()?);
    let same = from.components().zip(to.components()).take_while(|(one, other)| one == other).count();
    let up = from.components().skip(same).map(|_| Part::ParentDir);
    Ok(up.chain(to.components().skip(same)).collect())
}

/// The objects of a rendered text whose kinds the API server knows, and how many it does not.
pub(super) fn known(text: &str, missing: &BTreeSet<String>) -> (String, usize) {
    let kind = |document: &str| {
        document.lines().find_map(|line| line.strip_prefix("kind: ")).unwrap_or_default().to_owned()
    };
    let (left_out, kept): (Vec<&str>, Vec<&str>) =
        documents(text).partition(|document| missing.contains(&kind(document)));
    (kept.join("\n---\n"), left_out.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_have_what_they_build_on_in_order() {
        let sets = sets(&OVERLAYS[0]);
        assert_eq!(sets.len(), 3 * 2 * 2 * 3 * 2 + 2);
        assert!(sets.iter().all(|set| !set.contains(&"sasl") || set.contains(&"tls-kafka")));
        assert_eq!(sets.iter().max_by_key(|set| set.len()).unwrap().len(), COMPONENTS.len() + APART.len());
        let without = &["tls-kafka", "sasl", "cassandra-password", "keda"];
        let fewer = Overlay { dir: "base", without, tried: Tried::Whole };
        assert_eq!(super::sets(&fewer).len(), 8 + 2);
    }

    #[test]
    fn an_overlay_like_another_is_tried_bare_with_each_component_and_with_all() {
        let sets = sets(&Overlay { dir: "base", without: &[], tried: Tried::Like });
        assert!(sets.contains(&Vec::new()) && sets.contains(&vec!["tls-kafka", "sasl"]));
        assert!(sets.contains(&vec!["prometheus", "keda"]));
        assert!(sets.contains(&COMPONENTS.map(|(name, _)| name).to_vec()));
        assert!(!sets.contains(&vec!["tls-kafka", "tls-cassandra"]));
        assert_eq!(sets.len(), 1 + COMPONENTS.len() + 1 + 2);
    }

    #[test]
    fn namespaces_differ() {
        let all: Vec<Arrangement> = OVERLAYS.iter().flat_map(of).collect();
        let names: BTreeSet<&str> = all.iter().map(|one| one.namespace.as_str()).collect();
        assert_eq!(names.len(), all.len());
    }

    #[test]
    fn a_kind_that_is_missing_is_left_out_and_counted() {
        let text = "kind: A\n---\nkind: B\nx: 1";
        assert_eq!(known(text, &BTreeSet::from(["B".to_owned()])), ("kind: A".to_owned(), 1));
    }

    #[test]
    fn the_way_between_folders_goes_up_and_down() {
        let base = tempfile::tempdir().unwrap();
        for dir in ["a/b", "c"] {
            fs::create_dir_all(base.path().join(dir)).unwrap();
        }
        let way = relative(&base.path().join("a/b"), &base.path().join("c")).unwrap();
        assert_eq!(way, Path::new("../../c"));
    }
}
