//! `dueline task`: schedule, look at, cancel and reschedule tasks.

mod schedule;

use serde_json::{Value, json};

use super::Global;
use super::client::{Client, task_path};
use super::output::{self, Format};

/// Schedule, show, list, cancel, reschedule and explain tasks.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Verb {
    Schedule(Box<schedule::Args>),
    /// Show a task with every attempt.
    #[command(after_help = "Example: dueline task show greetings hello")]
    Show(Named),
    /// List tasks by queue and time; the first page, or all with --all.
    #[command(after_help = "Example: dueline task list --queue greetings --state succeeded")]
    List(List),
    /// Cancel a task; exit code 4 when it is too late.
    #[command(after_help = "Example: dueline task cancel greetings hello --reason resolved")]
    Cancel(Cancel),
    /// Run a task at another time; exit code 4 when it is too late.
    #[command(after_help = "Example: dueline task reschedule greetings hello --delay 1h")]
    Reschedule(Reschedule),
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

/// What to list.
#[derive(Debug, clap::Args)]
pub(super) struct List {
    /// Only of this queue.
    #[arg(long)]
    queue: Option<String>,
    /// Only in this state.
    #[arg(long)]
    state: Option<String>,
    /// Only of this handler.
    #[arg(long)]
    handler: Option<String>,
    /// Ready at or after, RFC 3339. Default: a day ago.
    #[arg(long)]
    from: Option<String>,
    /// Ready before, RFC 3339. Default: in a day.
    #[arg(long)]
    to: Option<String>,
    /// Tasks of one page.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=1000))]
    page_size: u64,
    /// Every page.
    #[arg(long)]
    all: bool,
}

/// What to cancel.
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
pub(super) struct Reschedule {
    #[command(flatten)]
    task: Named,
    /// The new due time, RFC 3339.
    #[arg(long, conflicts_with = "delay", required_unless_present = "delay")]
    due_at: Option<String>,
    /// The new due time, from now.
    #[arg(long)]
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
        Verb::Show(task) => {
            let path = task_path(&task.queue, &task.id)?;
            match format {
                Format::Text => output::text(&shown(&client.get(&path, &[]).await?)),
                Format::Json | Format::Jsonl => output::text(&client.get_text(&path).await?),
            }
        }
        Verb::List(wanted) => list(&client, format, wanted).await,
        Verb::Cancel(wanted) => {
            let path = task_path(&wanted.task.queue, &wanted.task.id)? + "/cancel";
            let body = given([("reason", wanted.reason)]);
            decided(format, &client.post(&path, body, Some(WAIT_S)).await?)
        }
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

fn given<const N: usize>(fields: [(&str, Option<String>); N]) -> String {
    let fields = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), json!(value?))));
    Value::Object(fields.collect()).to_string()
}

async fn list(client: &Client, format: Format, wanted: List) -> anyhow::Result<()> {
    let given = [
        ("queue", wanted.queue),
        ("state", wanted.state),
        ("handler", wanted.handler),
        ("from", wanted.from),
        ("to", wanted.to),
    ];
    let mut query: Vec<(&str, String)> =
        given.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
    query.push(("page_size", wanted.page_size.to_string()));
    let mut tasks = Vec::new();
    let mut rest = None;
    loop {
        let mut asked = query.clone();
        asked.extend(rest.take().map(|token| ("page_token", token)));
        let page = client.get("/v1/tasks", &asked).await?;
        tasks.extend(page["tasks"].as_array().cloned().unwrap_or_default());
        rest = page["next_page_token"].as_str().map(str::to_owned);
        let enough = !wanted.all && tasks.len() as u64 >= wanted.page_size;
        if rest.is_none() || enough {
            break;
        }
    }
    if rest.is_some() && format == Format::Text {
        eprintln!("there are more: --all shows them");
    }
    many(format, &tasks, |task| {
        let text = |name: &str| task[name].as_str().unwrap_or("-").to_owned();
        format!(
            "{:<10} {}  {}  {}  {}\n",
            text("state"),
            text("ready_at"),
            text("queue"),
            text("id"),
            text("handler")
        )
    })
}

/// Writes one value, in words or as JSON.
pub(super) fn one(format: Format, value: &Value, words: impl Fn(&Value) -> String) -> anyhow::Result<()> {
    match format {
        Format::Text => output::text(&words(value)),
        format => output::json(format, value),
    }
}

/// Writes values, one a line in words and as JSON lines.
pub(super) fn many(format: Format, values: &[Value], words: impl Fn(&Value) -> String) -> anyhow::Result<()> {
    match format {
        Format::Text => output::text(&values.iter().map(words).collect::<String>()),
        Format::Json => output::json(format, &values),
        Format::Jsonl => values.iter().try_for_each(|value| output::json(format, value)),
    }
}

fn decided(format: Format, answer: &Value) -> anyhow::Result<()> {
    one(format, answer, |answer| {
        let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
        let decision = &answer["decision"];
        let word = decision["decision"].as_str().unwrap_or("accepted");
        let due = decision["due_at"].as_str().map(|at| format!(", due at {at}")).unwrap_or_default();
        format!("{word}: queue {}, id {}{due}\n", text(&answer["queue"]), text(&answer["id"]))
    })
}

fn shown(task: &Value) -> String {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let mut lines = String::new();
    for name in [
        "queue",
        "id",
        "state",
        "reason",
        "due_at",
        "next_at",
        "expires_at",
        "handler",
        "priority",
        "collection",
        "labels",
        "created_by",
        "shard",
        "payload",
        "result",
    ] {
        if !task[name].is_null() {
            lines.push_str(&format!("{name:<10} {}\n", text(&task[name])));
        }
    }
    for attempt in task["attempts"].as_array().into_iter().flatten() {
        let outcome = attempt["outcome"].as_str().unwrap_or("open");
        let error = attempt["error"].as_str().map(|error| format!(": {error}")).unwrap_or_default();
        let at = text(&attempt["started_at"]);
        lines.push_str(&format!("attempt {}  {at}  {outcome}{error}\n", attempt["attempt"]));
    }
    for event in task["events"].as_array().into_iter().flatten() {
        let at = text(&event["appended_at"]);
        lines.push_str(&format!("event      {at}  {}: {}\n", text(&event["verb"]), text(&event["decision"])));
    }
    lines
}

fn explained(found: &Value) -> String {
    let mut lines = format!("state: {}\n", found["state"].as_str().unwrap_or("-"));
    for reason in found["reasons"].as_array().into_iter().flatten() {
        lines.push_str(&format!("- {}\n", reason["detail"].as_str().unwrap_or("-")));
    }
    if let Some(at) = found["earliest_start"].as_str() {
        lines.push_str(&format!("earliest start: {at}\n"));
    }
    lines
}
