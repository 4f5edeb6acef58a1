//! kubectl, told nothing by the person's own configuration.

use super::cluster::plan::EVERYWHERE;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How to run kubectl.
#[derive(Debug, Clone)]
pub(super) struct Kubectl {
    program: PathBuf,
    /// Its home: kubeconfig, caches, what is sent.
    dir: PathBuf,
}

/// What kubectl said.
#[derive(Debug)]
pub(super) struct Said {
    /// Objects as the API server has them now.
    pub(super) objects: Vec<Value>,
    /// Errors and warnings, a line each.
    pub(super) complaints: Vec<String>,
}

/// A warning that does not fit: nothing says anything of affinity.
const NO_FAULT: &str = "spec.SessionAffinity is ignored for headless services";
const COMPLAINT_CHARS_MAX: usize = 400;
const CONDITION_WAIT_MAX: Duration = Duration::from_secs(60);
const CONDITION_POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Whether what is sent is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Run {
    Real,
    Dry,
}

impl Kubectl {
    pub(super) fn new(program: PathBuf, dir: &Path) -> Kubectl {
        Kubectl { program, dir: dir.to_owned() }
    }

    /// Writes the address and the token.
    pub(super) fn configure(&self, server: &str, authority: &Path, token: &str) -> Result<()> {
        let config = kubeconfig(server, authority, token);
        serde_json::to_writer(File::create(self.config())?, &config).context("writing the kubeconfig")
    }

    /// Whether the API server is ready.
    pub(super) fn answers(&self) -> bool {
        let output = self.command(&["get", "--raw=/readyz"]).stderr(Stdio::null()).output();
        output.is_ok_and(|output| output.status.success())
    }

    /// Waits until a condition holds of all these objects.
    pub(super) fn wait(&self, condition: &str, objects: &[String]) -> Result<()> {
        let begun = Instant::now();
        loop {
            let mut command = self.command(&["wait", "--timeout=10s", "--for", condition]);
            let output = command.args(objects).output().context("running kubectl wait")?;
            if output.status.success() {
                return Ok(());
            }
            // It fails at once when there is no condition of any kind yet.
            if begun.elapsed() > CONDITION_WAIT_MAX {
                bail!("kubectl wait: {}", cut(String::from_utf8_lossy(&output.stderr).trim()));
            }
            std::thread::sleep(CONDITION_POLL_INTERVAL);
        }
    }

    /// What it says to arguments; its complaint is an error.
    pub(super) fn said(&self, args: &[&str]) -> Result<String> {
        let output =
            self.command(args).output().with_context(|| format!("running kubectl {}", args.join(" ")))?;
        if !output.status.success() {
            bail!("kubectl {}: {}", args.join(" "), cut(String::from_utf8_lossy(&output.stderr).trim()));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Renders a folder with a kustomization.
    pub(super) fn kustomize(&self, dir: &Path) -> Result<String> {
        let output = self.command(&["kustomize"]).arg(dir).output().context("running kubectl kustomize")?;
        if !output.status.success() {
            bail!("{}", cut(String::from_utf8_lossy(&output.stderr).trim()));
        }
        String::from_utf8(output.stdout).context("kubectl kustomize wrote no UTF-8")
    }

    /// Sends objects, as YAML or JSON, to the API server, which takes no field that it does not know.
    pub(super) fn apply(&self, objects: &str, run: Run) -> Result<Said> {
        let path = self.dir.join("sent");
        File::create(&path)
            .and_then(|mut file| file.write_all(objects.as_bytes()))
            .with_context(|| format!("writing {}", path.display()))?;
        let mut command = self.command(&["apply", "--server-side", "--validate=strict", "--output=json"]);
        if run == Run::Dry {
            command.arg("--dry-run=server");
        }
        let output = command.arg("--filename").arg(&path).output().context("running kubectl apply")?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        let mut complaints: Vec<String> = stderr
            .lines()
            .filter(|line| !line.trim().is_empty() && !line.contains(NO_FAULT))
            .map(cut)
            .collect();
        if !output.status.success() && complaints.is_empty() {
            complaints.push(format!("kubectl apply ended with {}", output.status));
        }
        Ok(Said { objects: objects_of(&output.stdout)?, complaints })
    }

    /// It with arguments, to be run.
    pub(super) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(args)
            .env("HOME", &self.dir)
            .env("KUBECONFIG", self.config())
            .env("KUBECTL_KUBERC", "false")
            .env("NO_PROXY", EVERYWHERE)
            .stdin(Stdio::null());
        command
    }

    /// The file with the address and the token.
    pub(super) fn config(&self) -> PathBuf {
        self.dir.join("kubeconfig")
    }
}

/// How a user reaches an API server.
pub(super) fn kubeconfig(server: &str, authority: &Path, token: &str) -> Value {
    serde_json::json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "check",
        "clusters": [{"name": "check", "cluster": {"server": server, "certificate-authority": authority}}],
        "users": [{"name": "check", "user": {"token": token}}],
        "contexts": [{"name": "check", "context": {"cluster": "check", "user": "check"}}],
    })
}

/// One object, several one after the other, or a list of them.
fn objects_of(json: &[u8]) -> Result<Vec<Value>> {
    let mut objects = Vec::new();
    for value in serde_json::Deserializer::from_slice(json).into_iter::<Value>() {
        let mut value = value.context("reading what kubectl wrote")?;
        match value.get_mut("items").and_then(Value::as_array_mut) {
            Some(items) => objects.append(items),
            None => objects.push(value),
        }
    }
    Ok(objects)
}

fn cut(text: &str) -> String {
    text.chars().take(COMPLAINT_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_and_a_row_of_objects_are_the_same() {
        let list = br#"{"kind":"List","items":[{"kind":"A"},{"kind":"B"}]}"#;
        assert_eq!(objects_of(list).unwrap(), objects_of(br#"{"kind":"A"} {"kind":"B"}"#).unwrap());
        assert!(objects_of(b"").unwrap().is_empty());
    }
}
