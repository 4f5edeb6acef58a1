//! The unpacked image with a runtime configuration: what umoci makes of the image's own, tightened to what the manifests ask.

use super::pod::{Container, Pod};
use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

/// The filter of system calls that Debian's container tools start containers with.
pub(super) const SECCOMP: &str = "/usr/share/containers/seccomp.json";
/// Where the writable folder is, in the container.
pub(super) const DATA: &str = "/data";

/// One run of the entry point.
#[derive(Debug, Default)]
pub(super) struct Run<'a> {
    pub(super) args: &'a [&'a str],
    /// Besides those of the image, as NAME=VALUE.
    pub(super) env: &'a [String],
    /// Files mounted to be read: from outside, to inside.
    pub(super) files: &'a [(&'a Path, &'a str)],
}

/// An unpacked image.
#[derive(Debug)]
pub(super) struct Bundle {
    pub(super) dir: PathBuf,
    /// The one writable folder, outside.
    data: PathBuf,
    /// As the image has it.
    image: Value,
    seccomp: Option<Value>,
    pod: Pod,
}

impl Bundle {
    /// Reads what umoci has unpacked; the folder of data is made for the user of the pod.
    pub(super) fn open(dir: PathBuf, data: PathBuf) -> Result<Bundle> {
        let pod = Pod::read()?;
        let image = read(&dir.join("config.json"))?;
        let seccomp = pod.has_default_seccomp().then(|| seccomp(Path::new(SECCOMP))).transpose()?;
        fs::create_dir(&data).with_context(|| format!("making {}", data.display()))?;
        std::os::unix::fs::chown(
            &data,
            Some(pod.security_context.run_as_user),
            Some(pod.security_context.fs_group),
        )
        .with_context(|| format!("giving {} to the user of the pod", data.display()))?;
        Ok(Bundle { dir, data, image, seccomp, pod })
    }

    /// The files of the image.
    pub(super) fn root(&self) -> PathBuf {
        self.dir.join("rootfs")
    }

    pub(super) fn pod(&self) -> &Pod {
        &self.pod
    }

    /// What the image itself runs: its entry point and its command.
    pub(super) fn command(&self) -> Vec<&str> {
        let args = self.image["process"]["args"].as_array().into_iter().flatten();
        args.filter_map(Value::as_str).collect()
    }

    /// The ports of the image, in umoci's words.
    pub(super) fn ports(&self) -> &Value {
        &self.image["annotations"]["org.opencontainers.image.exposedPorts"]
    }

    /// Prepares a run, whose arguments are in place of the image's.
    pub(super) fn prepare(&self, run: &Run) -> Result<()> {
        let config = self.configured(run)?;
        let path = self.dir.join("config.json");
        let bytes = serde_json::to_vec_pretty(&config).context("writing a runtime configuration")?;
        fs::write(&path, bytes).with_context(|| format!("writing {}", path.display()))
    }

    fn configured(&self, run: &Run) -> Result<Value> {
        let program = *self.command().first().context("the image has no entry point")?;
        let container = self.pod.container()?;
        let mut config = self.image.clone();
        config["process"]["terminal"] = false.into();
        config["process"]["args"] = json!([&[program], run.args].concat());
        config["process"]["env"]
            .as_array_mut()
            .context("umoci made no environment")?
            .extend(run.env.iter().map(|one| one.as_str().into()));
        let groups = [self.pod.security_context.fs_group];
        config["process"]["user"] = json!({
            "uid": self.pod.security_context.run_as_user, "gid": self.pod.security_context.run_as_group,
            "additionalGids": groups,
        });
        config["process"]["noNewPrivileges"] =
            (!container.security_context.allow_privilege_escalation).into();
        ensure!(container.has_no_capability(), "the manifest leaves capabilities: this check gives none");
        config["process"]["capabilities"] = json!({});
        config["root"]["readonly"] = container.security_context.read_only_root_filesystem.into();
        config["hostname"] = "dueline-0".into();
        config["linux"]["resources"] = resources(container)?;
        if let Some(filter) = &self.seccomp {
            config["linux"]["seccomp"] = filter.clone();
        }
        // The probes and the handlers are outside: the network is this machine's, and only loopback of it is used.
        let namespaces = config["linux"]["namespaces"].as_array_mut().context("umoci made no namespaces")?;
        namespaces.retain(|one| one["type"] != "network");
        // In a pod /etc/resolv.conf and /etc/hosts are mounted; nothing here asks for a name.
        let mounts = config["mounts"].as_array_mut().context("umoci made no mounts")?;
        mounts.retain(|mount| mount["destination"] != "/etc/resolv.conf");
        mounts.push(json!({"destination": DATA, "type": "bind", "source": self.data, "options": ["rbind", "rw", "nosuid", "nodev"]}));
        for (from, to) in run.files {
            mounts
                .push(json!({"destination": to, "type": "bind", "source": from, "options": ["bind", "ro"]}));
        }
        Ok(config)
    }
}

fn resources(container: &Container) -> Result<Value> {
    Ok(json!({
        "memory": {"limit": container.memory_bytes()?},
        "devices": [{"allow": false, "access": "rwm"}],
    }))
}

fn read(path: &Path) -> Result<Value> {
    let bytes = fs::read(path).with_context(|| format!("reading {}", path.display()))?;
    serde_json::from_slice(&bytes).with_context(|| format!("reading {}", path.display()))
}

/// The filter as container tools keep it: rules that hold for some machines and rights.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Filter {
    default_action: String,
    default_errno_ret: Option<u32>,
    arch_map: Vec<ArchMap>,
    syscalls: Vec<Rule>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ArchMap {
    architecture: String,
    sub_architectures: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Rule {
    names: Vec<String>,
    action: String,
    errno_ret: Option<u32>,
    #[serde(default)]
    args: Option<Vec<Value>>,
    #[serde(default)]
    includes: When,
    #[serde(default)]
    excludes: When,
}

#[derive(Debug, Default, Deserialize)]
struct When {
    #[serde(default)]
    caps: Vec<String>,
    #[serde(default)]
    arches: Vec<String>,
}

/// The filter as runtimes read it, for a container without capabilities on this machine.
fn seccomp(path: &Path) -> Result<Value> {
    let filter: Filter =
        serde_json::from_value(read(path)?).with_context(|| format!("reading {}", path.display()))?;
    let (name, arch) = match std::env::consts::ARCH {
        "x86_64" => ("SCMP_ARCH_X86_64", "amd64"),
        _ => ("SCMP_ARCH_AARCH64", "arm64"),
    };
    let own = filter.arch_map.into_iter().find(|map| map.architecture == name);
    let own = own.with_context(|| format!("{} knows no {name}", path.display()))?;
    let rules = filter.syscalls.into_iter().filter(|rule| holds(rule, arch)).map(|rule| {
        let mut out = json!({"names": rule.names, "action": rule.action});
        if let Some(args) = rule.args.filter(|args| !args.is_empty()) {
            out["args"] = args.into();
        }
        if let Some(errno) = rule.errno_ret {
            out["errnoRet"] = errno.into();
        }
        out
    });
    let architectures = [vec![own.architecture], own.sub_architectures].concat();
    Ok(json!({
        "defaultAction": filter.default_action,
        "defaultErrnoRet": filter.default_errno_ret,
        "architectures": architectures,
        "syscalls": rules.collect::<Vec<_>>(),
    }))
}

/// Whether a rule is for this kind of machine and for a process without capabilities.
fn holds(rule: &Rule, arch: &str) -> bool {
    let named = |arches: &[String]| arches.iter().any(|one| one == arch);
    rule.includes.caps.is_empty()
        && (rule.includes.arches.is_empty() || named(&rule.includes.arches))
        && !named(&rule.excludes.arches)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_for_rights_and_for_other_machines_are_left_out() {
        let holds_for = |text: &str| {
            let mut rule = json!({"names": ["a"], "action": "SCMP_ACT_ALLOW"});
            let when: Value = serde_json::from_str(text).unwrap();
            when.as_object().unwrap().iter().for_each(|(key, value)| rule[key] = value.clone());
            holds(&serde_json::from_value(rule).unwrap(), "amd64")
        };
        for (text, wanted) in [
            ("{}", true),
            (r#"{"includes": {"caps": ["CAP_SYS_ADMIN"]}}"#, false),
            (r#"{"excludes": {"caps": ["CAP_SYS_ADMIN"]}}"#, true),
            (r#"{"includes": {"arches": ["amd64", "x32"]}}"#, true),
            (r#"{"includes": {"arches": ["arm64"]}}"#, false),
            (r#"{"excludes": {"arches": ["amd64"]}}"#, false),
        ] {
            assert_eq!(holds_for(text), wanted, "{text}");
        }
    }
}
