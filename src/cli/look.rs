//! `dueline queue`, `handler`, `rejected`: what there is, as the instances see it.

use std::collections::BTreeSet;

use serde_json::Value;

use super::Global;
use super::client::{Client, entries, segment};
use super::gate::line_of_gate;
use super::task::{explained, given, many, one};

/// Look at queues with ready tasks, pause and resume them.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Queue {
    /// List queues with ready tasks, by name.
    #[command(after_help = "Example: dueline queue list")]
    List,
    /// List queues that do not move, and why.
    #[command(after_help = "Example: dueline queue blocked")]
    Blocked,
    /// Pause a queue: its tasks wait until it is resumed.
    #[command(after_help = "Example: dueline queue pause greetings --reason \"incident 42\"")]
    Pause(Author),
    /// Resume a queue that was paused.
    #[command(after_help = "Example: dueline queue resume greetings")]
    Resume(Author),
    /// Say why a queue does not move: what its head waits for.
    #[command(after_help = "Example: dueline queue explain greetings")]
    Explain {
        /// Its name.
        queue: String,
    },
    /// Show one queue.
    #[command(after_help = "Example: dueline queue show greetings")]
    Show {
        /// Its name.
        queue: String,
    },
}

/// A queue, and who changes it why.
#[derive(Debug, clap::Args)]
pub(super) struct Author {
    /// Its name.
    queue: String,
    /// Who: the user name when not given.
    #[arg(long, env = "USER", hide_env_values = true)]
    by: Option<String>,
    /// Why.
    #[arg(long)]
    reason: Option<String>,
}

/// Look at handlers.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Handler {
    /// List the handlers of the instance that answers.
    #[command(after_help = "Example: dueline handler list")]
    List,
    /// Say what the tasks of a handler wait for, on each instance.
    #[command(after_help = "Example: dueline handler explain log")]
    Explain {
        /// Its name.
        handler: String,
    },
}

/// Look at rejected records.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Rejected {
    /// List rejected records; embedded only, on Kafka read the rejected topic.
    #[command(after_help = "Example: dueline rejected list")]
    List,
}

pub(super) async fn queue(global: &Global, verb: Queue) -> anyhow::Result<()> {
    let client = Client::new(global)?;
    match verb {
        Queue::Pause(author) => set_paused(global, &client, author, "pause").await,
        Queue::Resume(author) => set_paused(global, &client, author, "resume").await,
        Queue::List | Queue::Blocked => {
            let only = matches!(verb, Queue::Blocked).then(|| ("blocked", "true".to_owned()));
            let mut queues = Vec::new();
            let mut missing = Vec::new();
            let mut token: Option<String> = None;
            loop {
                let token_given = token.take().map(|token| ("page_token", token));
                let query: Vec<_> = only.iter().cloned().chain(token_given).collect();
                let page = client.get("/v1/queues", &query).await?;
                queues.extend(page["queues"].as_array().cloned().unwrap_or_default());
                missing.extend(page["missing"].as_array().cloned().unwrap_or_default());
                token = page["next_page_token"].as_str().map(str::to_owned);
                if token.is_none() {
                    break;
                }
            }
            tell_missing(&missing);
            let none = if only.is_some() { "no queue is blocked" } else { "no queue has ready tasks" };
            many(global.output, &queues, none, line_of_queue)
        }
        Queue::Explain { queue } => {
            let path = format!("/v1/queues/{}/explain", segment(&queue)?);
            one(global.output, &client.get(&path, &[]).await?, queue_explained)
        }
        Queue::Show { queue } => {
            let path = format!("/v1/queues/{}", segment(&queue)?);
            one(global.output, &client.get(&path, &[]).await?, line_of_queue)
        }
    }
}

fn line_of_queue(queue: &Value) -> String {
    let next = queue["next_try"].as_str().map(|at| format!(", tried again at {at}")).unwrap_or_default();
    let gate = queue["gate"].as_str().map(|gate| format!(", at a gate on {gate}")).unwrap_or_default();
    let held = if queue["blocked"] == "open_attempt" { ", an attempt may still be at work" } else { "" };
    let since = queue["head_ready_at"].as_str().map(|at| format!(" ready since {at}")).unwrap_or_default();
    let slot = match queue["held_up"]["detail"].as_str() {
        Some(detail) => format!(", waits for a slot: {detail}"),
        None if queue["blocked"] == "slot" => ", waits for a slot".to_owned(),
        None => String::new(),
    };
    let words = |head| format!("  head {head}{since}{next}{gate}{held}{slot}");
    let head = queue["head"].as_str().map(words).unwrap_or_default();
    let (name, shard) = (queue["queue"].as_str().unwrap_or("-"), &queue["shard"]);
    format!("{name}  shard {shard}  ready {}  running {}{head}\n", queue["ready"], queue["running"])
}

async fn set_paused(global: &Global, client: &Client, author: Author, verb: &str) -> anyhow::Result<()> {
    let path = format!("/v1/queues/{}/{verb}", segment(&author.queue)?);
    let body = given([("by", author.by), ("reason", author.reason)]);
    let answer = client.post(&path, body, None).await?;
    one(global.output, &answer, |gate| format!("{verb}d: {}", line_of_gate(gate)))
}

/// Says on stderr who did not answer, each once.
fn tell_missing(missing: &[Value]) {
    let missing: BTreeSet<&str> = missing.iter().filter_map(Value::as_str).collect();
    for one in missing {
        eprintln!("missing: {one}");
    }
}

fn queue_explained(found: &Value) -> String {
    let mut lines = gates_of(found);
    if let Some(detail) = found["not_running"]["detail"].as_str() {
        lines.push_str(&format!("- {detail}\n"));
    }
    match &found["head"] {
        Value::Null if found["not_running"].is_object() => {
            lines.push_str("No task of it is known to be ready.\n")
        }
        Value::Null => lines.push_str("No task of it is ready.\n"),
        head => {
            let id = head["id"].as_str().unwrap_or("-");
            lines.push_str(&format!("ready {}, running {}, head {id}\n", found["ready"], found["running"]));
            lines.push_str(&explained(head));
        }
    }
    if let (Some(id), Some(at)) = (found["next"]["id"].as_str(), found["next"]["ready_at"].as_str()) {
        lines.push_str(&format!("next: {id} at {at}\n"));
    }
    lines
}

fn gates_of(found: &Value) -> String {
    let gates = found["gates"].as_array().into_iter().flatten();
    gates.map(|gate| format!("- {}\n", gate["detail"].as_str().unwrap_or("-"))).collect()
}

fn handler_explained(found: &Value) -> String {
    let mut lines = gates_of(found);
    for one in found["instances"].as_array().into_iter().flatten() {
        let next = one["next_try"].as_str().map(|at| format!(" (first at {at})")).unwrap_or_default();
        let held = one["held_up"]["detail"].as_str().map(|why| format!(": {why}")).unwrap_or_default();
        lines.push_str(&format!(
            "{}  slots {} of {}  queues: running {}, in line {}, retrying {}{next}, at gates {}{held}\n",
            one["instance"].as_str().unwrap_or("-"),
            one["slots_taken"],
            one["concurrency"],
            one["running"],
            one["in_line"],
            one["retrying"],
            one["at_gates"]
        ));
        lines.push_str(&apart(one).map(|detail| format!("- some: {detail}\n")).collect::<String>());
    }
    lines
}

/// What holds up some of a handler's tasks.
fn apart(handler: &Value) -> impl Iterator<Item = &str> {
    let reasons = handler["held_up_apart"].as_array().into_iter().flatten();
    reasons.filter_map(|reason| reason["detail"].as_str())
}

pub(super) async fn handler(global: &Global, verb: Handler) -> anyhow::Result<()> {
    if let Handler::Explain { handler } = verb {
        let path = format!("/v1/handlers/{}/explain", segment(&handler)?);
        let found = Client::new(global)?.get(&path, &[]).await?;
        tell_missing(entries(&found["missing"]));
        return one(global.output, &found, handler_explained);
    }
    list(global, ("handlers", "handlers"), |one| {
        let text = |name: &str| one[name].as_str().unwrap_or("-").to_owned();
        let mut line = format!(
            "{}  {}  concurrency {}  timeout {} ms",
            text("name"),
            text("kind"),
            one["concurrency"],
            one["timeout_ms"]
        );
        for (name, words) in [("rate", "rate"), ("catch_up", "late ones"), ("intake", "takes in")] {
            if let Some(rate) = one[name].as_str() {
                line.push_str(&format!("  {words} {rate}"));
            }
        }
        if let Some(slots) = one["reserve_slots"].as_u64() {
            line.push_str(&format!("  {slots} kept for priority {} and above", one["reserve_priority"]));
        }
        if let Some(failures) = one["breaker_failures"].as_u64() {
            line.push_str(&format!("  breaker after {failures} failures, {} ms", one["breaker_pause_ms"]));
        }
        if let Some(detail) = one["held_up"]["detail"].as_str() {
            line.push_str(&format!("  held up: {detail}"));
        }
        line.extend(apart(one).map(|detail| format!("  some held up: {detail}")));
        line + "\n"
    })
    .await
}

pub(super) async fn rejected(global: &Global, _verb: Rejected) -> anyhow::Result<()> {
    list(global, ("rejected", "rejected records"), |one| {
        let text = |name: &str| one[name].as_str().unwrap_or("-").to_owned();
        format!("{}/{}  {}  {}\n", one["partition"], one["offset"], text("reason"), text("detail"))
    })
    .await
}

/// Writes the entries that `/v1/NAME` has under that name.
pub(super) async fn list(
    global: &Global,
    (name, none): (&str, &str),
    words: impl Fn(&Value) -> String,
) -> anyhow::Result<()> {
    let found = Client::new(global)?.get(&format!("/v1/{name}"), &[]).await?;
    tell_missing(entries(&found["missing"]));
    many(global.output, entries(&found[name]), &format!("no {none}"), words)
}
