//! Objects sent twice: what the API server says against them, and whether the second time changes anything.

use super::kubectl::{Kubectl, Run};
use anyhow::Result;
use serde_json::Value;
use std::collections::BTreeMap;

/// What came of it.
#[derive(Debug, Default)]
pub(super) struct Applied {
    /// The objects, as the API server has them.
    pub(super) objects: Vec<Value>,
    /// What it refused or warned of.
    pub(super) faults: Vec<String>,
    /// What the second time changed.
    pub(super) changes: Vec<String>,
}

/// Applies a text of objects twice.
pub(super) fn twice(kubectl: &Kubectl, text: &str) -> Result<Applied> {
    if text.is_empty() {
        return Ok(Applied::default());
    }
    let first = kubectl.apply(text, Run::Real)?;
    if !first.complaints.is_empty() {
        return Ok(Applied { objects: first.objects, faults: first.complaints, changes: Vec::new() });
    }
    let second = kubectl.apply(text, Run::Real)?;
    let (before, after) = (versions(&first.objects), versions(&second.objects));
    let changed = after.iter().filter(|(name, version)| before.get(*name) != Some(version));
    let changes = changed.map(|(name, _)| format!("{name} is changed by the same again")).collect();
    Ok(Applied { objects: second.objects, faults: second.complaints, changes })
}

/// The version of each object: a write that changes nothing leaves it.
fn versions(objects: &[Value]) -> BTreeMap<String, String> {
    objects.iter().map(|one| (name(one), one["metadata"]["resourceVersion"].to_string())).collect()
}

/// An object's kind, namespace and name.
pub(super) fn name(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let metadata = &object["metadata"];
    format!("{} {}/{}", text(&object["kind"]), text(&metadata["namespace"]), text(&metadata["name"]))
}
