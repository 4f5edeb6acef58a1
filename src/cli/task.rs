//! `dueline task`: schedule, look at, cancel and reschedule tasks.

mod list;
mod schedule;
pub(super) mod show;

use serde_json::{Value, json};

use super::Global;
use super::client::{Client, task_path};
use super::output::{self, Format};

/// Schedule, show, list, cancel, reschedule, run, abort and explain tasks.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Verb {
    Schedule(Box<schedule::Args>),
    /// Show a task with every attempt.
    #[command(after_help = "Example: dueline task show greetings hello")]
    Show(Named),
    /// List tasks by queue and time; the first page, or all with --all.
    #[command(after_help = "Example: dueline task list --queue greetings --state succeeded")]
    List(list::Args),
    /// Cancel a task; exit code 4 when it is too late.
    #[command(after_help = "Example: dueline task cancel greetings hello --reason resolved")]
    Cancel(Cancel),
    /// Run a task at another time; exit code 4 when it is too late.
    #[command(after_help = "Example: dueline task reschedule greetings hello --delay 1h")]
    Reschedule(Reschedule),
    /// Run a task now that is not due yet, or waits for its next try; exit code 4 when it is too late.
    #[command(after_help = "Example: dueline task run greetings hello")]
    Run(Cancel),
    /// Break off the attempt of a task; exit code 4 when nothing runs.
    #[command(after_help = "Example: dueline task abort greetings hello --reason hangs")]
    Abort(Cancel),
    /// Say why a task is not running.
    #[command(after_help = "Example: dueline task explain greetings hello")]
    Explain(Named),
}

/// A task.
#[derive(Debug, clap::Args)]
pub(super) struct Named {
    /// Its queue.
    queue: String,
    /// Its id.
    id: String,
}

/// A task, and why.
#[derive(Debug, clap::Args)]
pub(super) struct Cancel {
    #[command(flatten)]
    task: Named,
    /// Why.
    #[arg(long)]
    reason: Option<String>,
}

/// What to move, and where to.
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("when").required(true).args(["due_at", "delay"]))]
pub(super) struct Reschedule {
    #[command(flatten)]
    task: Named,
    /// The new due time: 2026-11-21T10:00:00Z.
    #[arg(long, value_name = "TIME")]
    due_at: Option<String>,
    /// The new due time, from now: 10s, 1h30m, PT10M.
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    delay: Option<String>,
    /// Why.
    #[arg(long)]
    reason: Option<String>,
}

/// Seconds that a cancel or reschedule waits for its answer.
const WAIT_S: u64 = 10;

pub(super) async fn run(global: &Global, verb: Verb) -> anyhow::Result<()> {
    let client = Client::new(global)?;
    let format = global.output;
    match verb {
        Verb::Schedule(wanted) => schedule::run(&client, format, *wanted).await,
        Verb::Show(task) => show::run(&client, format, &task.queue, &task.id).await,
        Verb::List(wanted) => list::run(&client, format, wanted).await,
        Verb::Cancel(wanted) => ask(&client, format, wanted, "cancel").await,
        Verb::Run(wanted) => ask(&client, format, wanted, "run").await,
        Verb::Abort(wanted) => ask(&client, format, wanted, "abort").await,
        Verb::Reschedule(wanted) => {
            let path = task_path(&wanted.task.queue, &wanted.task.id)? + "/reschedule";
            let body = given([("due_at", wanted.due_at), ("delay", wanted.delay), ("reason", wanted.reason)]);
            decided(format, &client.post(&path, body, Some(WAIT_S)).await?)
        }
        Verb::Explain(task) => {
            let path = task_path(&task.queue, &task.id)? + "/explain";
            one(format, &client.get(&path, &[]).await?, explained)
        }
    }
}

/// Asks for something about a task, with a reason.
async fn ask(client: &Client, format: Format, wanted: Cancel, verb: &str) -> anyhow::Result<()> {
    let path = task_path(&wanted.task.queue, &wanted.task.id)? + "/" + verb;
    let body = given([("reason", wanted.reason)]);
    decided(format, &client.post(&path, body, Some(WAIT_S)).await?)
}

pub(super) fn given<const N: usize>(fields: [(&str, Option<String>); N]) -> String {
    let fields = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), json!(value?))));
    Value::Object(fields.collect()).to_string()
}

/// Writes one value, in words or as JSON.
pub(super) fn one(format: Format, value: &Value, words: impl Fn(&Value) -> String) -> anyhow::Result<()> {
    match format {
        Format::Text => output::text(&words(value)),
        format => output::json(format, value),
    }
}

/// Writes values, one a line in words and as JSON lines. Where there are none, people are told `none`.
pub(super) fn many(
    format: Format,
    values: &[Value],
    none: &str,
    words: impl Fn(&Value) -> String,
) -> anyhow::Result<()> {
    match format {
        Format::Text if values.is_empty() => {
            eprintln!("{none}");
            Ok(())
        }
        Format::Text => output::text(&values.iter().map(words).collect::<String>()),
        format => output::json_each(format, values),
    }
}

pub(super) fn decided(format: Format, answer: &Value) -> anyhow::Result<()> {
    one(format, answer, |answer| {
        let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
        let decision = &answer["decision"];
        let word = decision["decision"].as_str().unwrap_or("accepted");
        let due = decision["due_at"].as_str().map(|at| format!(", due at {at}")).unwrap_or_default();
        let (queue, id) = (text(&answer["queue"]), text(&answer["id"]));
        let hint = if word == "repeated" {
            format!("nothing changed: the same came within 24 hours; see dueline task show {queue} {id}\n")
        } else {
            String::new()
        };
        format!("{word}: queue {queue}, id {id}{due}\n{hint}")
    })
}

pub(super) fn explained(found: &Value) -> String {
    let mut lines = format!("state: {}\n", found["state"].as_str().unwrap_or("-"));
    for reason in found["reasons"].as_array().into_iter().flatten() {
        lines.push_str(&format!("- {}\n", reason["detail"].as_str().unwrap_or("-")));
    }
    if let Some(at) = found["earliest_start"].as_str() {
        lines.push_str(&format!("earliest start: {at}\n"));
    }
    lines
}
