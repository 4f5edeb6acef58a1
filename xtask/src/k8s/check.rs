//! `cargo xtask k8s check --short`, from the first program to the table.

use super::api::{self, Api};
use super::apply::{self, Applied};
use super::arrangements::{self, Arrangement, EMBEDDED, OVERLAYS, Overlay, SERVERS};
use super::configuration::{self, Dueline};
use super::crds::{self, Taught};
use super::kubectl::Run;
use super::{mistakes, pods, programs, references, texts};
use crate::servers::state::{self, Cache};
use crate::table::Table;
use crate::{packages, say, workspace};
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Everything that a part of the check works with.
pub(super) struct Site {
    pub(super) api: Api,
    pub(super) dueline: Dueline,
    root: PathBuf,
    /// Folder of this run.
    dir: PathBuf,
    taught: Taught,
    table: Table,
    /// Objects for the operators of Kafka and Cassandra.
    servers: Vec<Value>,
    /// Objects of kinds that the API server was not taught.
    left_out: usize,
}

/// Checks everything and prints the table; whether nothing was missed.
pub(super) fn run(dueline: Option<PathBuf>) -> Result<bool> {
    let begun = Instant::now();
    packages::install(&[packages::ETCD, packages::OPENSSL])?;
    let cache = Cache::open()?;
    state::make_dir(&cache.join("k8s"))?;
    let _held = state::lock(&cache.join("k8s/lock"))?;
    // Before the servers start, so that they do not wait for a compiler.
    let programs = programs::for_manifests(&cache)?;
    let program = configuration::program(dueline)?;
    let dir = cache.join("k8s/run");
    let api = api::start(&programs, &dir)?;
    let dueline = Dueline::new(program, &dir)?;
    let taught = crds::teach(&cache, &api)?;
    let root = workspace::root()?;
    let mut site =
        Site { api, dueline, root, dir, taught, table: Table::default(), servers: Vec::new(), left_out: 0 };
    site.check()?;
    let Site { table, taught, left_out, .. } = site;
    table.print()?;
    for skipped in &taught.skipped {
        say::data(format_args!("SKIPPED {skipped}"))?;
    }
    let verdict = if table.holds() { "ok" } else { "FAILED" };
    say::data(format_args!(
        "{verdict}: deploy/k8s against Kubernetes {}, {left_out} object(s) skipped, without pods, {} s",
        programs::VERSION,
        begun.elapsed().as_secs()
    ))?;
    Ok(table.holds())
}

impl Site {
    fn check(&mut self) -> Result<()> {
        let deploy = self.root.join("deploy/k8s");
        self.table.row("resource definitions of operators", self.taught.definitions, &self.taught.faults);
        self.table.row(
            "folders that the check knows",
            OVERLAYS.len(),
            &arrangements::unknown_folders(&deploy)?,
        );
        self.servers(&deploy)?;
        let (mut of_base, mut of_embedded) = (Vec::new(), Vec::new());
        let mut of_all = Vec::new();
        for overlay in &OVERLAYS {
            let objects = self.overlay(&deploy, overlay)?;
            match overlay.dir {
                "base" => of_base.clone_from(&objects),
                EMBEDDED => of_embedded.clone_from(&objects),
                _ => {}
            }
            of_all.extend(objects);
        }
        self.table.row("configurations, by dueline", self.dueline.checked(), &[]);
        let topics =
            texts::topics(&self.root, &self.dueline).unwrap_or_else(|error| vec![format!("{error:#}")]);
        self.table.row("topics are those dueline plans", 1, &topics);
        let (metrics, faults) = texts::metrics(&self.root)?;
        self.table.row("metrics that KEDA asks for exist", metrics, &faults);
        let (secrets, faults) = texts::secrets(&self.root, &of_all)?;
        self.table.row("secrets are in the README", secrets, &faults);
        let (paths, faults) = texts::image(&self.root)?;
        self.table.row("paths and Rust of the Containerfile", paths, &faults);
        // With every component there is an object of each kind.
        let most = |all: &[Value]| by_namespace(all).into_values().max_by_key(Vec::len).unwrap_or_default();
        let mut objects = most(&of_base);
        objects.extend(self.servers.clone());
        let mut tried = mistakes::refused(self, &mistakes::all(), &objects)?;
        tried.extend(mistakes::refused(self, &mistakes::embedded(), &most(&of_embedded))?);
        self.table.row("deliberate mistakes are refused", tried.made, &tried.faults);
        self.taught.skipped.extend(tried.skipped);
        Ok(())
    }

    /// Objects for the operators of Kafka and Cassandra.
    fn servers(&mut self, deploy: &Path) -> Result<()> {
        let namespaces = ["kafka", "cassandra"];
        let namespaces = namespaces
            .map(|name| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}));
        self.api.kubectl.apply(&list(namespaces.to_vec()), Run::Real)?;
        for dir in SERVERS {
            let text = self.api.kubectl.kustomize(&deploy.join(dir)).with_context(|| dir.to_owned())?;
            let (text, left_out) = arrangements::known(&text, &self.taught.missing);
            self.left_out += left_out;
            let applied = apply::twice(&self.api.kubectl, &text)?;
            if applied.objects.is_empty() && applied.faults.is_empty() {
                say::line(format_args!("SKIPPED: {dir}: {left_out} object(s)"));
                continue;
            }
            self.table.row(format!("{dir}: objects applied twice"), applied.objects.len(), &told(&applied));
            self.servers.extend(applied.objects);
        }
        Ok(())
    }

    /// All arrangements of an overlay; their objects.
    fn overlay(&mut self, deploy: &Path, overlay: &Overlay) -> Result<Vec<Value>> {
        let all = arrangements::of(overlay);
        let rendered = arrangements::render(&self.api.kubectl, deploy, &self.dir.join("rendered"), &all)?;
        let mut sent = Vec::new();
        for text in rendered {
            let (text, left_out) = arrangements::known(&text, &self.taught.missing);
            self.left_out += left_out;
            sent.push(text);
        }
        let applied = apply::twice(&self.api.kubectl, &sent.join("\n---\n"))?;
        let faults = explained(told(&applied), &all);
        let what = |part: &str| format!("{}: {part}", overlay.dir);
        self.table.row(what("arrangements rendered"), all.len(), &[]);
        self.table.row(what("objects applied twice"), applied.objects.len(), &faults);
        let bare = pods::bare(&applied.objects);
        let count = bare.len();
        let said = self.api.kubectl.apply(&list(bare), Run::Dry)?;
        self.table.row(what("pods admitted as restricted"), said.objects.len().min(count), &said.complaints);
        let mut faults = Vec::new();
        for objects in by_namespace(&applied.objects).values() {
            faults.extend(pods::faults(objects));
            faults.extend(references::faults(objects));
            faults.extend(self.dueline.faults(objects)?);
        }
        self.table.row(what("names, probes, configuration"), all.len(), &explained(faults, &all));
        Ok(applied.objects)
    }
}

fn told(applied: &Applied) -> Vec<String> {
    applied.faults.iter().chain(&applied.changes).cloned().collect()
}

/// Faults with the arrangement whose namespace they name.
fn explained(faults: Vec<String>, all: &[Arrangement]) -> Vec<String> {
    let of = |fault: &str| {
        let words: Vec<&str> = fault.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').collect();
        all.iter().find(|one| words.contains(&one.namespace.as_str())).map(ToString::to_string)
    };
    let explain = |fault: String| match of(&fault) {
        Some(arrangement) => format!("{fault} ({arrangement})"),
        None => fault,
    };
    faults.into_iter().map(explain).collect()
}

/// A namespace's objects, the namespace itself among them.
fn by_namespace(objects: &[Value]) -> BTreeMap<String, Vec<Value>> {
    let mut groups: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for object in objects {
        let metadata = &object["metadata"];
        let namespace =
            if object["kind"] == "Namespace" { &metadata["name"] } else { &metadata["namespace"] };
        groups.entry(namespace.as_str().unwrap_or_default().to_owned()).or_default().push(object.clone());
    }
    groups
}

/// Several objects as one.
pub(super) fn list(objects: Vec<Value>) -> String {
    json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string()
}
