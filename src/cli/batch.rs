//! `dueline batch`: one verb for many tasks, carried out by the instances.

use std::time::Duration;

use serde_json::{Value, json};

use super::client::{Client, entries};
use super::output::{self, Format};
use super::task::{many, one};
use super::{Exit, Global};

/// One verb for many tasks: begin, watch, stop and resume. A batch goes on without whoever began it.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Verb {
    /// List batches, newest first.
    #[command(after_help = "Example: dueline batch list")]
    List,
    /// Show a batch and how far it got.
    #[command(after_help = "Example: dueline batch show 12")]
    Show {
        /// Its number.
        id: u64,
    },
    /// Stop a batch. What was asked stays asked.
    #[command(after_help = "Example: dueline batch stop 12 --reason \"wrong handler\"")]
    Stop(Change),
    /// Resume a batch that was stopped, where it was.
    #[command(after_help = "Example: dueline batch resume 12")]
    Resume(Change),
    Cancel(Box<Cancel>),
    Reschedule(Box<Reschedule>),
}

/// A batch to stop or resume.
#[derive(Debug, clap::Args)]
pub(super) struct Change {
    /// Its number.
    id: u64,
    #[command(flatten)]
    author: Author,
}

/// Who and why.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct Author {
    /// Who: the user name when not given.
    #[arg(long, env = "USER", hide_env_values = true)]
    by: Option<String>,
    /// Why.
    #[arg(long)]
    pub(super) reason: Option<String>,
}

/// How a batch is carried out.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct How {
    /// Count what would change, show the first, and change nothing.
    #[arg(long)]
    dry_run: bool,
    /// Tasks a second, at most.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rate: Option<u32>,
    /// Say its number and do not wait until it is done.
    #[arg(long)]
    detach: bool,
    #[command(flatten)]
    pub(super) author: Author,
}

/// Which tasks, by when they may start.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct Tasks {
    /// Only of this queue.
    #[arg(long)]
    queue: Option<String>,
    /// Only of this handler.
    #[arg(long)]
    handler: Option<String>,
    /// Only of this collection.
    #[arg(long)]
    collection: Option<String>,
    /// Those of every queue, handler and collection in the time given.
    #[arg(long, conflicts_with_all = ["queue", "handler", "collection"])]
    all: bool,
    /// Only those that may start from this time on, RFC 3339; a day ago when not given.
    #[arg(long)]
    from: Option<String>,
    /// Only those that may start before this time, RFC 3339; in a week when not given.
    #[arg(long)]
    to: Option<String>,
}

/// Cancel the tasks that a filter takes, of those that have not started and those between two attempts.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: dueline batch cancel --collection tenant-7 --dry-run")]
pub(super) struct Cancel {
    #[command(flatten)]
    tasks: Tasks,
    /// Only those in this state: scheduled, retrying, parked, running.
    #[arg(long)]
    state: Option<String>,
    #[command(flatten)]
    how: How,
}

/// Move the due times of the tasks that a filter takes, of those that have not started.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: dueline batch reschedule --handler log --shift 1h --dry-run")]
pub(super) struct Reschedule {
    #[command(flatten)]
    tasks: Tasks,
    /// How far: `1h`, `-30m`.
    #[arg(long, allow_hyphen_values = true)]
    shift: String,
    #[command(flatten)]
    how: How,
}

pub(super) async fn run(global: &Global, verb: Verb) -> anyhow::Result<()> {
    let client = Client::new(global)?;
    let format = global.output;
    match verb {
        Verb::List => list(&client, format).await,
        Verb::Show { id } => {
            one(format, &client.get(&format!("/v1/batches/{id}"), &[]).await?, text_of_batch)
        }
        Verb::Stop(change) => changed(&client, format, change, "stop").await,
        Verb::Resume(change) => changed(&client, format, change, "resume").await,
        Verb::Cancel(wanted) => {
            let mut body = wanted.tasks.body("cancel");
            put(&mut body, [("state", wanted.state)]);
            begin(&client, format, body, &wanted.how).await
        }
        Verb::Reschedule(wanted) => {
            let mut body = wanted.tasks.body("reschedule");
            put(&mut body, [("shift", Some(wanted.shift))]);
            begin(&client, format, body, &wanted.how).await
        }
    }
}

impl Tasks {
    fn body(&self, verb: &str) -> Value {
        let Tasks { queue, handler, collection, all, from, to } = self.clone();
        let mut body = json!({ "verb": verb, "all": all });
        let given =
            [("queue", queue), ("handler", handler), ("collection", collection), ("from", from), ("to", to)];
        put(&mut body, given);
        body
    }
}

/// Puts the fields that are given into a body.
pub(super) fn put<const N: usize>(body: &mut Value, fields: [(&str, Option<String>); N]) {
    for (name, value) in fields {
        if let Some(value) = value {
            body[name] = json!(value);
        }
    }
}

async fn list(client: &Client, format: Format) -> anyhow::Result<()> {
    let (mut batches, mut token) = (Vec::new(), None::<String>);
    loop {
        let query: Vec<_> = token.take().map(|token| ("page_token", token)).into_iter().collect();
        let page = client.get("/v1/batches", &query).await?;
        batches.extend(page["batches"].as_array().cloned().unwrap_or_default());
        token = page["next_page_token"].as_str().map(str::to_owned);
        if token.is_none() {
            break;
        }
    }
    many(format, &batches, "no batches", line_of_batch)
}

async fn changed(client: &Client, format: Format, change: Change, verb: &str) -> anyhow::Result<()> {
    let mut body = json!({});
    put(&mut body, [("by", change.author.by), ("reason", change.author.reason)]);
    let path = format!("/v1/batches/{}/{verb}", change.id);
    one(format, &client.post(&path, body.to_string(), None).await?, line_of_batch)
}

/// Time between looks at a batch.
const LOOK: Duration = Duration::from_millis(200);
/// Looks in a row that may fail, each waited for longer than the one before: about half a minute.
const LOOKS_MAX: u32 = 15;

/// Begins a batch, and waits until it is done unless it is to be left alone. Ctrl-C leaves it alone too.
pub(super) async fn begin(client: &Client, format: Format, mut body: Value, how: &How) -> anyhow::Result<()> {
    put(&mut body, [("by", how.author.by.clone()), ("reason", how.author.reason.clone())]);
    body["dry_run"] = json!(how.dry_run);
    if let Some(rate) = how.rate {
        body["rate"] = json!(rate);
    }
    let (id, begun) = post(client, &body).await?;
    if how.detach {
        return one(format, &begun, line_of_batch);
    }
    let goes_on = format!(
        "batch {id} goes on: `dueline batch show {id}` says how far it got, `dueline batch stop {id}` stops it"
    );
    let seen = tokio::select! {
        seen = until_over(client, id) => seen.map_err(|error| error.context(goes_on))?,
        _ = tokio::signal::ctrl_c() => anyhow::bail!(goes_on),
    };
    tell(format, &seen)
}

/// Has a batch begun, once however often it is sent; gives its number and the answer.
async fn post(client: &Client, body: &Value) -> anyhow::Result<(u64, Value)> {
    let key = uuid::Uuid::new_v4().to_string();
    let begun = client.post_keyed("/v1/batches", body.to_string(), None, Some(&key)).await?;
    Ok((begun["id"].as_u64().unwrap_or_default(), begun))
}

/// Counts the tasks that a filter takes, and changes nothing; says what would become of them.
pub(super) async fn count(
    client: &Client,
    format: Format,
    mut body: Value,
    would: &str,
) -> anyhow::Result<()> {
    body["dry_run"] = json!(true);
    let (id, _) = post(client, &body).await?;
    let seen = until_over(client, id).await?;
    if seen["state"] == "stopped" {
        let text = format!("batch {id}, which counts, was stopped: {} were found before", seen["found"]);
        return Err(Exit::PartlyFailed.with(text));
    }
    match format {
        Format::Text => output::text(&counted(&seen, would)),
        Format::Json | Format::Jsonl => output::json(format, &seen),
    }
}

fn counted(seen: &Value, would: &str) -> String {
    let sample: String = entries(&seen["sample"]).iter().map(line_of_key).collect();
    format!("{} {would}; the first:\n{sample}", seen["found"])
}

/// Looks until a batch is done or stopped. A server that does not answer for a while is asked again.
async fn until_over(client: &Client, id: u64) -> anyhow::Result<Value> {
    let bar = indicatif::ProgressBar::new_spinner().with_style(style());
    let mut failures = 0;
    loop {
        tokio::time::sleep(LOOK).await;
        let seen = match client.get(&format!("/v1/batches/{id}"), &[]).await {
            Ok(seen) => seen,
            Err(error) if failures >= LOOKS_MAX => return Err(error),
            Err(_) => {
                failures += 1;
                tokio::time::sleep(LOOK * failures).await;
                continue;
            }
        };
        failures = 0;
        if matches!(seen["state"].as_str(), Some("done" | "stopped")) {
            bar.finish_and_clear();
            return Ok(seen);
        }
        bar.set_message(line_of_batch(&seen).trim_end().to_owned());
        bar.tick();
    }
}

fn style() -> indicatif::ProgressStyle {
    indicatif::ProgressStyle::with_template("{spinner} {elapsed} {msg}")
        .unwrap_or_else(|_| indicatif::ProgressStyle::default_spinner())
}

fn tell(format: Format, seen: &Value) -> anyhow::Result<()> {
    let count = |name: &str| seen[name].as_u64().unwrap_or_default();
    let done = match seen["verb"].as_str() {
        Some("cancel") => "cancelled",
        Some("reschedule") => "rescheduled",
        Some("redrive") => "redriven",
        _ => "purged",
    };
    if format != Format::Text {
        output::json(format, seen)?;
    } else if seen["dry_run"] == Value::Bool(true) {
        output::text(&counted(seen, &format!("would be {done}")))?;
    } else {
        let (asked, failed) = (count("asked"), count("failed"));
        output::text(&format!("{asked} asked to be {done}, {failed} failed (batch {})\n", seen["id"]))?;
    }
    if seen["task_id"].is_string() && count("found") == 0 {
        return Err(
            Exit::NotFound.with("there is no such dead letter in the time that was looked at".to_owned())
        );
    }
    if seen["state"] == "stopped" {
        return Err(
            Exit::PartlyFailed.with(format!("batch {0} was stopped: `dueline batch resume {0}`", seen["id"]))
        );
    }
    if count("failed") > 0 {
        let text = format!(
            "{} of {} failed: the log of {} names them",
            count("failed"),
            count("found"),
            seen["instance"]
        );
        return Err(Exit::PartlyFailed.with(text));
    }
    Ok(())
}

fn line_of_key(key: &Value) -> String {
    let text = |name: &str| key[name].as_str().unwrap_or("-");
    format!("{}  {}\n", text("queue"), text("id"))
}

/// A batch, on one line.
fn line_of_batch(batch: &Value) -> String {
    let text = |name: &str| batch[name].as_str();
    let mut line = format!(
        "{}  {}  {}  {}",
        batch["id"],
        text("begun_at").unwrap_or("-"),
        text("verb").unwrap_or("-"),
        text("state").unwrap_or("-")
    );
    if batch["dry_run"] == Value::Bool(true) {
        line.push_str(&format!("  dry run, {} found", batch["found"]));
    } else {
        line.push_str(&format!("  {} asked, {} failed", batch["asked"], batch["failed"]));
    }
    line.push_str(&format!(", {} of {} shards", batch["shards_done"], batch["shards"]));
    for (name, word) in FIELDS {
        if let Some(value) = text(name) {
            line.push_str(&format!("  {word} {value}"));
        }
    }
    output::on_one_line(&line)
}

/// What a line says when it is there.
const FIELDS: [(&str, &str); 10] = [
    ("queue", "queue"),
    ("task_id", "id"),
    ("handler", "handler"),
    ("collection", "collection"),
    ("task_state", "state"),
    ("died", "died"),
    ("shift", "shift"),
    ("by", "by"),
    ("reason", "-"),
    ("trouble", "waits:"),
];

fn text_of_batch(batch: &Value) -> String {
    let text = |name: &str| batch[name].as_str().unwrap_or("-");
    let mut lines = line_of_batch(batch);
    lines.push_str(&format!(
        "  from {} to before {}, at most {} a second\n",
        text("from"),
        text("to"),
        batch["rate"]
    ));
    if let Some(instance) = batch["instance"].as_str() {
        lines.push_str(&format!("  carried out by {instance}, last heard of at {}\n", text("updated_at")));
    }
    for key in entries(&batch["sample"]) {
        lines.push_str(&format!("  {}", line_of_key(key)));
    }
    lines
}
