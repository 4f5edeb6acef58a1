//! The image as it runs: what it may do, what it answers, how it stops.
//!
//! `dueline dev` runs in it, which needs neither Kafka nor Cassandra; `serve` is the same program with other adapters.

use super::bundle::{Bundle, DATA, Run};
use super::check::{Found, row};
use super::container::{Container, Runtime, WAIT_MAX, until};
use super::tls;
use crate::table::Table;
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::ErrorKind;
use std::net::TcpListener;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;
use tiny_http::{Request, Response, Server};
use ureq::Agent;

const QUEUE: &str = "image";
/// How long one answer over loopback is waited for.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// Adds a row for each thing that is seen of it.
pub(super) fn check(table: &mut Table, runtime: &Runtime, bundle: &Bundle, dir: &Path) {
    row(table, "command and port are those of the manifest", |found| {
        let container = bundle.pod().container()?;
        let wanted = [vec![super::PROGRAM.to_owned()], container.args.clone()].concat();
        found.want(bundle.command() == wanted, || format!("{:?}, not {wanted:?}", bundle.command()));
        let ports: Vec<String> = container.ports().map(|port| format!("{port}/tcp")).collect();
        found.same("the exposed port", bundle.ports(), &ports.join(",").into());
        Ok(())
    });
    row(table, "--version and --help", |found| said(runtime, bundle, found));
    row(table, "data in the root: refused, with the reason", |found| refused(runtime, bundle, found));
    row(table, "authorities: OpenSSL reads the bundle, a mounted one too", |found| {
        tls::check(runtime, bundle, dir, found)
    });
    if let Err(error) = running(table, runtime, bundle, dir) {
        row(table, "an instance", |_| Err(error));
    }
}

fn said(runtime: &Runtime, bundle: &Bundle, found: &mut Found) -> Result<()> {
    for (argument, wanted) in [("--version", "dueline "), ("--help", "Usage: dueline")] {
        let mut container = runtime.start(bundle, &Run { args: &[argument], ..Run::default() })?;
        let code = container.wait()?.code();
        let log = container.log();
        found.want(code == Some(0) && log.contains(wanted), || format!("{argument}: code {code:?}, {log:?}"));
    }
    Ok(())
}

fn refused(runtime: &Runtime, bundle: &Bundle, found: &mut Found) -> Result<()> {
    let mut container =
        runtime.start(bundle, &Run { args: &["dev", "--data", "/var/lib/dueline"], ..Run::default() })?;
    let code = container.wait()?.code();
    let log = container.log();
    let told = log.contains("/var/lib/dueline") && log.contains("Read-only file system");
    found.want(code != Some(0) && told, || format!("code {code:?}, {log:?}"));
    Ok(())
}

/// An instance in its container, and where it is asked.
struct Instance<'a> {
    container: Container<'a>,
    url: String,
    agent: Agent,
}

impl<'a> Instance<'a> {
    /// Starts it and waits until it is ready.
    fn start(runtime: &'a Runtime, bundle: &Bundle) -> Result<Instance<'a>> {
        let listen = free_address()?;
        let args = ["dev", "--data", DATA, "--listen", &listen];
        let container = runtime.start(bundle, &Run { args: &args, ..Run::default() })?;
        let agent =
            Agent::config_builder().http_status_as_error(false).timeout_global(Some(ANSWER_MAX)).build();
        let mut instance = Instance { container, url: format!("http://{listen}"), agent: agent.into() };
        let ready = bundle.pod().container()?.readiness_probe.http_get.path.as_str();
        until("the instance is ready", || {
            if let Some(ended) = instance.container.ended()? {
                bail!("it ended with {ended}: {}", instance.container.log());
            }
            Ok(instance.get(ready).is_some_and(|(status, _)| status == 200))
        })?;
        Ok(instance)
    }

    /// Status and text; nothing when it does not answer.
    fn get(&self, path: &str) -> Option<(u16, String)> {
        let mut answer = self.agent.get(format!("{}{path}", self.url)).call().ok()?;
        let text = answer.body_mut().read_to_string().ok()?;
        Some((answer.status().as_u16(), text))
    }

    fn schedule(&self, id: &str, handler: &str) -> Result<()> {
        let task =
            json!({"queue": QUEUE, "id": id, "delay": "0s", "handler": handler, "payload": {"id": id}});
        let request = self.agent.post(format!("{}/v1/tasks", self.url));
        let request = request.header("content-type", "application/json").header("prefer", "wait=5");
        let mut answer = request.send(task.to_string()).context("scheduling a task")?;
        let text = answer.body_mut().read_to_string().context("reading the answer")?;
        match text.contains("\"scheduled\"") {
            true => Ok(()),
            false => bail!("the task was not scheduled: {} {text}", answer.status()),
        }
    }

    fn task(&self, id: &str) -> Option<Value> {
        let (_, text) = self.get(&format!("/v1/tasks/{QUEUE}/{id}"))?;
        serde_json::from_str(&text).ok()
    }

    /// Waits until the task has ended well, and how often it was tried.
    fn succeeded(&self, id: &str, found: &mut Found) -> Result<()> {
        let mut task = Value::Null;
        let wait = until("the task has succeeded", || {
            task = self.task(id).unwrap_or_default();
            Ok(task["state"] == "succeeded")
        });
        wait.with_context(|| format!("task {id}: {task}"))?;
        let attempts = task["attempts"].as_array().map_or(0, Vec::len);
        found.want(attempts == 1, || format!("task {id} was tried {attempts} times: {task}"));
        Ok(())
    }
}

pub(super) fn free_address() -> Result<String> {
    let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    Ok(free.context("looking for a free port")?.to_string())
}

/// A handler outside the container, which answers when it is told to.
struct Sink {
    server: Server,
    url: String,
}

impl Sink {
    fn new() -> Result<Sink> {
        let server =
            Server::http("127.0.0.1:0").map_err(|error| anyhow::anyhow!("starting a handler: {error}"))?;
        let address = server.server_addr().to_ip().context("a handler without an address")?;
        Ok(Sink { server, url: format!("http://{address}/") })
    }

    /// The next call, which waits for its answer.
    fn call(&self) -> Result<Request> {
        let call = self.server.recv_timeout(WAIT_MAX).context("waiting for a call")?;
        call.with_context(|| format!("no call came within {WAIT_MAX:?}"))
    }
}

fn succeed(call: Request) -> Result<()> {
    call.respond(Response::empty(200)).context("answering a call")
}

fn running(table: &mut Table, runtime: &Runtime, bundle: &Bundle, dir: &Path) -> Result<()> {
    let sink = Sink::new()?;
    let mut instance = Instance::start(runtime, bundle)?;
    row(table, "process: user, groups, no capabilities, seccomp", |found| process(&instance, bundle, found));
    row(table, "root: nothing can be written", |found| read_only(&instance.container, found));
    row(table, "probes of the manifest, and /metrics", |found| {
        let container = bundle.pod().container()?;
        let probes = [&container.liveness_probe, &container.readiness_probe];
        for path in probes.iter().map(|probe| probe.http_get.path.as_str()).chain(["/metrics"]) {
            let answer = instance.get(path);
            let holds = answer.as_ref().is_some_and(|(status, text)| {
                *status == 200 && (path != "/metrics" || text.contains("\ndueline_build_info{"))
            });
            found.want(holds, || format!("{path}: {answer:?}"));
        }
        Ok(())
    });
    row(table, "a task over HTTP is called and succeeds", |found| {
        instance.schedule("called", &sink.url)?;
        succeed(sink.call()?)?;
        instance.succeeded("called", found)
    });
    row(table, "SIGTERM: a call under way ends well, code 0", |found| {
        drained(&mut instance, bundle, &sink, found)
    });
    // Before the next one, which has the same name.
    drop(instance);
    let mut instance = Instance::start(runtime, bundle)?;
    row(table, "started again: both tasks are on record", |found| {
        instance.succeeded("called", found)?;
        instance.succeeded("drained", found)
    });
    row(table, "SIGTERM with nothing under way: code 0", |found| {
        instance.container.terminate()?;
        let ended = instance.container.wait()?;
        found.want(ended.success(), || format!("{ended}: {}", instance.container.log()));
        Ok(())
    });
    row(table, "data is the user's, and stays outside", |found| {
        let user = bundle.pod().security_context.run_as_user;
        for entry in fs::read_dir(dir.join("data")).context("reading the data")?.flatten() {
            let owner = entry.metadata().context("reading the data")?.uid();
            found.want(owner == user, || format!("{} is of {owner}", entry.path().display()));
        }
        Ok(())
    });
    Ok(())
}

/// The call is answered only when the instance has shown that it is stopping.
fn drained(instance: &mut Instance, bundle: &Bundle, sink: &Sink, found: &mut Found) -> Result<()> {
    instance.schedule("drained", &sink.url)?;
    let call = sink.call()?;
    instance.container.terminate()?;
    let ready = bundle.pod().container()?.readiness_probe.http_get.path.as_str();
    until("the instance is not ready any more", || {
        Ok(instance.get(ready).is_none_or(|(status, _)| status != 200))
    })?;
    found.want(instance.container.runs(), || "it did not wait for the call".to_owned());
    succeed(call)?;
    let ended = instance.container.wait()?;
    found.want(ended.success(), || format!("{ended}: {}", instance.container.log()));
    Ok(())
}

/// What the kernel says of the process.
fn process(instance: &Instance, bundle: &Bundle, found: &mut Found) -> Result<()> {
    let path = format!("/proc/{}/status", instance.container.pid()?);
    let status = fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
    let security = &bundle.pod().security_context;
    let four = |id: u32| [id; 4].map(|id| id.to_string()).join(" ");
    let none = "0000000000000000".to_owned();
    for (field, wanted) in [
        ("Uid", four(security.run_as_user)),
        ("Gid", four(security.run_as_group)),
        ("Groups", security.fs_group.to_string()),
        ("CapInh", none.clone()),
        ("CapPrm", none.clone()),
        ("CapEff", none.clone()),
        ("CapBnd", none.clone()),
        ("CapAmb", none),
        ("NoNewPrivs", "1".to_owned()),
        ("Seccomp", "2".to_owned()),
    ] {
        let value = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        let value = value.unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ");
        found.want(value == wanted, || format!("{field} is {value}, not {wanted}"));
    }
    Ok(())
}

/// Not even root may, through the container's own mounts.
fn read_only(container: &Container, found: &mut Found) -> Result<()> {
    let root = container.root()?;
    for folder in ["", "etc", "tmp", "usr/local/bin", "usr/lib", "var/lib"] {
        let path = root.join(folder).join("dueline-was-here");
        let made = File::create(&path);
        let refused = made.as_ref().is_err_and(|error| error.kind() == ErrorKind::ReadOnlyFilesystem);
        found.want(refused, || format!("/{folder}: {made:?}"));
    }
    Ok(())
}
