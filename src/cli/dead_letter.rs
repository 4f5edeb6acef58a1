//! `dueline dead-letter`: tasks that are dead, and how they run again.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::client::{Client, task_path};
use super::output::{self, Format};
use super::task::{decided, given, many, show};
use super::{Exit, Global};

/// List, show and redrive tasks that are dead.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Verb {
    /// List dead letters, newest first; the first page, or all with --all.
    #[command(after_help = "Example: dueline dead-letter list --handler log")]
    List(List),
    /// Show a dead letter with every attempt.
    #[command(after_help = "Example: dueline dead-letter show greetings hello")]
    Show {
        /// Its queue.
        queue: String,
        /// Its id.
        id: String,
    },
    Redrive(Box<Redrive>),
}

/// What a list is narrowed down to.
#[derive(Clone, Debug, Default, clap::Args)]
struct Filter {
    /// Only of this handler.
    #[arg(long)]
    handler: Option<String>,
    /// Only of this collection.
    #[arg(long)]
    collection: Option<String>,
    /// Only those that died so: exhausted, fatal, interrupted.
    #[arg(long)]
    died: Option<String>,
    /// Only those that died from this time on, RFC 3339; 30 days ago when not given.
    #[arg(long)]
    from: Option<String>,
    /// Only those that died before this time, RFC 3339.
    #[arg(long)]
    to: Option<String>,
}

/// Which to list.
#[derive(Debug, clap::Args)]
pub(super) struct List {
    /// Only of this queue.
    #[arg(long)]
    queue: Option<String>,
    #[command(flatten)]
    filter: Filter,
    /// All pages.
    #[arg(long)]
    all: bool,
}

/// Run dead tasks again: one by its queue and id, or all that a filter takes. Each is a new version with all its attempts,
/// and due now. Ctrl-C stops; the same command goes on with what is still dead.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: dueline dead-letter redrive --handler log --dry-run")]
pub(super) struct Redrive {
    /// The queue; of one task, or as a filter.
    queue: Option<String>,
    /// The id of one task.
    #[arg(requires = "queue")]
    id: Option<String>,
    #[command(flatten)]
    filter: Filter,
    /// Everything that is dead, without a filter.
    #[arg(long, conflicts_with_all = ["queue", "handler", "collection", "died"])]
    all: bool,
    /// Count what would be redriven, show the newest, and change nothing.
    #[arg(long, conflicts_with = "id")]
    dry_run: bool,
    /// Tasks a second, at most.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rate: u32,
    /// Another payload, JSON: of one task.
    #[arg(long, requires = "id")]
    payload: Option<String>,
    /// When, from now: of one task.
    #[arg(long, requires = "id")]
    delay: Option<String>,
    /// Why.
    #[arg(long)]
    reason: Option<String>,
}

/// Seconds that a redrive of one task waits for its answer.
const WAIT_S: u64 = 10;
/// Dead letters of one page.
const PAGE: usize = 500;
/// Dead letters that a dry run shows.
const SHOWN: usize = 5;

pub(super) async fn run(global: &Global, verb: Verb) -> anyhow::Result<()> {
    let client = Client::new(global)?;
    let format = global.output;
    match verb {
        Verb::List(wanted) => list(&client, format, wanted).await,
        Verb::Show { queue, id } => show::run(&client, format, &queue, &id).await,
        Verb::Redrive(wanted) => match (&wanted.queue, &wanted.id) {
            (Some(queue), Some(id)) => redrive_one(&client, format, queue, id, &wanted).await,
            _ => redrive_many(&client, format, &wanted).await,
        },
    }
}

impl Filter {
    fn query(&self, queue: Option<&String>) -> Vec<(&'static str, String)> {
        let Filter { handler, collection, died, from, to } = self;
        let given = [
            ("queue", queue),
            ("handler", handler.as_ref()),
            ("collection", collection.as_ref()),
            ("reason", died.as_ref()),
            ("from", from.as_ref()),
            ("to", to.as_ref()),
        ];
        given.into_iter().filter_map(|(name, value)| Some((name, value?.clone()))).collect()
    }

    fn is_empty(&self) -> bool {
        self.handler.is_none() && self.collection.is_none() && self.died.is_none()
    }
}

/// The pages of a list, one after the other.
struct Pages<'a> {
    client: &'a Client,
    query: Vec<(&'static str, String)>,
    token: Option<String>,
    is_over: bool,
}

impl<'a> Pages<'a> {
    fn new(client: &'a Client, mut query: Vec<(&'static str, String)>, size: usize) -> Pages<'a> {
        query.push(("page_size", size.to_string()));
        Pages { client, query, token: None, is_over: false }
    }

    async fn next(&mut self) -> anyhow::Result<Option<Vec<Value>>> {
        if self.is_over {
            return Ok(None);
        }
        let mut query = self.query.clone();
        query.extend(self.token.take().map(|token| ("page_token", token)));
        let page = self.client.get("/v1/dead-letters", &query).await?;
        self.token = page["next_page_token"].as_str().map(str::to_owned);
        self.is_over = self.token.is_none();
        Ok(Some(page["dead_letters"].as_array().cloned().unwrap_or_default()))
    }
}

async fn list(client: &Client, format: Format, wanted: List) -> anyhow::Result<()> {
    let mut pages = Pages::new(client, wanted.filter.query(wanted.queue.as_ref()), 100);
    let mut found = Vec::new();
    while let Some(page) = pages.next().await? {
        found.extend(page);
        if !wanted.all && !found.is_empty() {
            break;
        }
    }
    many(format, &found, line)?;
    if found.is_empty() && format == Format::Text {
        eprintln!("no dead letters");
    } else if !pages.is_over {
        eprintln!("there are more: --all lists them");
    }
    Ok(())
}

fn line(letter: &Value) -> String {
    let text = |name: &str| letter[name].as_str().unwrap_or("-").to_owned();
    let error = letter["error"].as_str().map(|error| format!("  {error}")).unwrap_or_default();
    format!(
        "{}  {}  {}  {}  {} after {} attempt(s){error}\n",
        text("died_at"),
        text("queue"),
        text("id"),
        text("handler"),
        text("reason"),
        letter["attempts"]
    )
}

async fn redrive_one(
    client: &Client,
    format: Format,
    queue: &str,
    id: &str,
    wanted: &Redrive,
) -> anyhow::Result<()> {
    let path = task_path(queue, id)? + "/redrive";
    let mut body = given([("delay", wanted.delay.clone()), ("reason", wanted.reason.clone())]);
    if let Some(payload) = &wanted.payload {
        let _: &serde_json::value::RawValue = serde_json::from_str(payload)
            .map_err(|error| Exit::Usage.with(format!("--payload is not JSON: {error}")))?;
        let between = if body == "{}" { "" } else { "," };
        body.truncate(body.len() - 1);
        body.push_str(&format!("{between}\"payload\":{payload}}}"));
    }
    decided(format, &client.post(&path, body, Some(WAIT_S)).await?)
}

async fn redrive_many(client: &Client, format: Format, wanted: &Redrive) -> anyhow::Result<()> {
    if wanted.queue.is_none() && wanted.filter.is_empty() && !wanted.all {
        let text =
            "say which: QUEUE ID, QUEUE, --handler, --collection or --died; or --all for every dead letter";
        return Err(Exit::Usage.with(text));
    }
    let mut query = wanted.filter.query(wanted.queue.as_ref());
    if wanted.filter.to.is_none() {
        // Those that die while this runs are left for the next time: a task that dies at once would be redriven for ever.
        query.push(("to", jiff::Timestamp::now().to_string()));
    }
    let mut pages = Pages::new(client, query, PAGE);
    let (mut counts, mut shown) = (Counts::default(), Vec::new());
    let bar = indicatif::ProgressBar::new_spinner().with_style(style());
    let pause = Duration::from_secs(1) / wanted.rate;
    let began = Instant::now();
    while let Some(page) = pages.next().await? {
        for letter in page {
            counts.found += 1;
            if wanted.dry_run {
                if shown.len() < SHOWN {
                    shown.push(letter);
                }
                continue;
            }
            tokio::time::sleep_until((began + pause * counts.asked).into()).await;
            counts.asked += 1;
            match redrive_listed(client, &letter, wanted.reason.as_deref()).await {
                Ok(()) => counts.redriven += 1,
                Err(error) => {
                    counts.failed += 1;
                    bar.suspend(|| eprintln!("{}: {error:#}", line(&letter).trim_end()));
                }
            }
            bar.set_message(format!("{} redriven, {} failed", counts.redriven, counts.failed));
            bar.tick();
        }
    }
    bar.finish_and_clear();
    counts.tell(format, wanted.dry_run, &shown)
}

fn style() -> indicatif::ProgressStyle {
    indicatif::ProgressStyle::with_template("{spinner} {elapsed} {msg}")
        .unwrap_or_else(|_| indicatif::ProgressStyle::default_spinner())
}

async fn redrive_listed(client: &Client, letter: &Value, reason: Option<&str>) -> anyhow::Result<()> {
    let text = |name: &str| letter[name].as_str().unwrap_or_default();
    let path = task_path(text("queue"), text("id"))? + "/redrive";
    let body = given([("reason", reason.map(str::to_owned))]);
    client.post(&path, body, None).await.map(drop)
}

#[derive(Default)]
struct Counts {
    found: u64,
    asked: u32,
    redriven: u64,
    failed: u64,
}

impl Counts {
    fn tell(&self, format: Format, is_dry: bool, shown: &[Value]) -> anyhow::Result<()> {
        let Counts { found, redriven, failed, .. } = self;
        match format {
            Format::Text if is_dry => {
                let samples: String = shown.iter().map(line).collect();
                output::text(&format!("{found} would be redriven; the newest:\n{samples}"))?;
            }
            Format::Text => output::text(&format!("{redriven} asked to run again, {failed} failed\n"))?,
            format if is_dry => output::json(format, &json!({ "found": found, "newest": shown }))?,
            format => {
                output::json(format, &json!({ "found": found, "redriven": redriven, "failed": failed }))?
            }
        }
        if *failed > 0 {
            return Err(Exit::PartlyFailed.with(format!("{failed} of {found} failed: run the same again")));
        }
        Ok(())
    }
}
