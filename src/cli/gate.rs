//! `dueline gate`: stop and go on; and who did what.

use serde_json::{Value, json};

use super::batch;
use super::client::{Client, entries, segment};
use super::output;
use super::task::{many, one};
use super::{Exit, Global};

/// Stop tasks of a handler, queue or collection, or all of them; go on again.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Verb {
    /// List the gates that are set.
    #[command(after_help = "Example: dueline gate list")]
    List,
    Set(Box<Set>),
    Clear(Clear),
    /// List who set and cleared gates, and why, newest first.
    #[command(after_help = "Example: dueline gate history")]
    History,
}

/// What a gate stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum What {
    All,
    Handler,
    Queue,
    Collection,
}

#[derive(Debug, clap::Args)]
struct Target {
    /// What it stops.
    #[arg(value_enum)]
    what: What,
    /// The name of the handler, queue or collection.
    #[arg(required_if_eq_any([("what", "handler"), ("what", "queue"), ("what", "collection")]))]
    of: Option<String>,
    /// Tells it from others of the same target.
    #[arg(long, default_value = "manual")]
    name: String,
    /// Who: the user name when not given.
    #[arg(long, env = "USER", hide_env_values = true)]
    by: Option<String>,
    /// Why.
    #[arg(long)]
    reason: Option<String>,
}

/// Set a gate: tasks wait at it, and their queues with them.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: dueline gate set handler log --reason \"incident 42\" --for 1h")]
pub(super) struct Set {
    #[command(flatten)]
    target: Target,
    /// Until then, RFC 3339.
    #[arg(long, conflicts_with = "duration")]
    until: Option<String>,
    /// For so long from now.
    #[arg(long = "for", value_name = "DURATION", allow_hyphen_values = true)]
    duration: Option<String>,
    /// Close the tasks that come to it as dropped, instead of letting them wait.
    #[arg(long)]
    drop: bool,
    /// Break off attempts under way, too.
    #[arg(long)]
    abort_running: bool,
    /// Only on these days, from one time to another, in an IANA zone.
    #[arg(long, value_name = "DAYS TIMES ZONE")]
    blackout: Option<String>,
    /// Count the tasks that would come to it, of those that may start from a day ago to in seven days, show the first, and set
    /// nothing. It is a dry run of a batch, and on record as one.
    #[arg(long, conflicts_with_all = ["until", "duration", "blackout", "drop", "abort_running"])]
    dry_run: bool,
}

/// Clear a gate: what waited at it goes on.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: dueline gate clear handler log --reason \"incident 42 is over\"")]
pub(super) struct Clear {
    #[command(flatten)]
    target: Target,
}

pub(super) async fn run(global: &Global, verb: Verb) -> anyhow::Result<()> {
    let client = Client::new(global)?;
    let format = global.output;
    match verb {
        Verb::List => {
            let found = client.get("/v1/gates", &[]).await?;
            many(format, entries(&found["gates"]), "no gates", line_of_gate)
        }
        Verb::Set(set) if set.dry_run => {
            let mut body = set.target.body()?;
            if let Some(handler) = body["handler"].as_str() {
                // Refused by name, as a gate on it would be.
                client.get(&format!("/v1/handlers/{}/explain", segment(handler)?), &[]).await?;
            }
            // A gate's name tells it from others; a cancel takes just what has not started, as a gate does.
            body.as_object_mut().map(|fields| fields.remove("name"));
            body["verb"] = json!("cancel");
            batch::count(&client, format, body, "would come to the gate").await
        }
        Verb::Set(set) => {
            let mut body = set.target.body()?;
            let given = [("until", set.until), ("for", set.duration), ("blackout", set.blackout)];
            for (name, value) in given {
                if let Some(value) = value {
                    body[name] = json!(value);
                }
            }
            body["action"] = json!(if set.drop { "drop" } else { "pause" });
            body["abort_running"] = json!(set.abort_running);
            let answer = client.post("/v1/gates", body.to_string(), None).await?;
            one(format, &answer, |gate| format!("set: {}", line_of_gate(gate)))
        }
        Verb::Clear(clear) => {
            let answer = client.post("/v1/gates:clear", clear.target.body()?.to_string(), None).await?;
            one(format, &answer, |gate| format!("cleared: {}", line_of_gate(gate)))
        }
        Verb::History => {
            let (mut operations, mut token) = (Vec::new(), None::<String>);
            loop {
                let query: Vec<_> = token.take().map(|token| ("page_token", token)).into_iter().collect();
                let page = client.get("/v1/operations", &query).await?;
                operations.extend(page["operations"].as_array().cloned().unwrap_or_default());
                token = page["next_page_token"].as_str().map(str::to_owned);
                if token.is_none() {
                    break;
                }
            }
            many(format, &operations, "no operations", line_of_operation)
        }
    }
}

impl Target {
    fn body(self) -> anyhow::Result<Value> {
        let Target { what, of, name, by, reason } = self;
        let mut body = json!({ "name": name });
        match (what, of) {
            (What::All, None) => body["all"] = json!(true),
            (What::All, Some(of)) => {
                return Err(Exit::Usage
                    .with(format!("`all` stops everything and takes no name: {of:?} is left over")));
            }
            (What::Handler, of) => body["handler"] = json!(of),
            (What::Queue, of) => body["queue"] = json!(of),
            (What::Collection, of) => body["collection"] = json!(of),
        }
        for (field, value) in [("by", by), ("reason", reason)] {
            if let Some(value) = value {
                body[field] = json!(value);
            }
        }
        Ok(body)
    }
}

/// A gate, on one line.
pub(super) fn line_of_gate(gate: &Value) -> String {
    let text = |name: &str| gate[name].as_str().map(str::to_owned);
    let mut line = target_of(gate);
    line.push_str(&format!("  {}", text("action").unwrap_or_default()));
    if gate["in_force"] != Value::Bool(true) {
        line.push_str("  not in force");
    }
    for (name, word) in
        [("until", "until"), ("blackout", "only"), ("set_at", "set"), ("by", "by"), ("reason", "-")]
    {
        if let Some(value) = text(name) {
            line.push_str(&format!("  {word} {value}"));
        }
    }
    if let Some(name) = text("name").filter(|name| name != "manual") {
        line.push_str(&format!("  (name {name})"));
    }
    output::on_one_line(&line)
}

fn line_of_operation(operation: &Value) -> String {
    let text = |name: &str| operation[name].as_str().unwrap_or("-").to_owned();
    let mut line =
        format!("{}  {}  {}  {}", operation["number"], text("at"), text("change"), target_of(operation));
    if let Some(batch) = operation["batch"].as_u64() {
        line = format!("{}  {}  {}  batch {batch}", operation["number"], text("at"), text("change"));
    }
    for (name, word) in [("action", ""), ("by", "by "), ("reason", "- ")] {
        if let Some(value) = operation[name].as_str() {
            line.push_str(&format!("  {word}{value}"));
        }
    }
    output::on_one_line(&line)
}

fn target_of(value: &Value) -> String {
    let target = value["target"].as_str().unwrap_or("-");
    value["of"].as_str().map_or_else(|| target.to_owned(), |of| format!("{target} {of}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_adds_no_line_of_its_own() {
        let forged = "x\n8  2030-01-01T00:00:00Z  gate_set  all\u{1b}[2K";
        let operation = json!({"number": 9, "at": "now", "change": "gate_cleared", "target": "all", "by": forged, "reason": forged});
        let line = line_of_operation(&operation);
        assert!(line.starts_with("9  now  gate_cleared  all  by x\u{fffd}8  2030"), "{line}");
        let gate = json!({"target": "all", "name": forged, "action": "drop", "in_force": true, "by": forged, "reason": forged});
        for line in [line, line_of_gate(&gate)] {
            let body = line.strip_suffix('\n').expect("a line");
            assert!(!body.contains(char::is_control) && body.contains("x\u{fffd}8"), "{line:?}");
        }
    }
}
