//! `dueline dead-letter`: tasks that are dead, and how they run again.

use serde_json::{Value, json};

use super::batch::{self, How, put};
use super::client::{Client, task_path};
use super::output::Format;
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
    Purge(Box<Purge>),
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

/// Run dead tasks again: one by its queue and id, or all that a filter takes, oldest first. Each is a new version with all its
/// attempts, and due now. Many are a batch: it goes on without this command.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: dueline dead-letter redrive --handler log --dry-run")]
pub(super) struct Redrive {
    /// The queue; of one task, or as a filter.
    queue: Option<String>,
    /// The id of one task.
    #[arg(requires = "queue", conflicts_with_all = ["dry_run", "rate", "detach", "handler", "collection", "died", "from", "to"])]
    id: Option<String>,
    #[command(flatten)]
    filter: Filter,
    /// Those of every queue, handler and collection.
    #[arg(long, conflicts_with_all = ["queue", "handler", "collection"])]
    all: bool,
    /// Another payload, JSON: of one task.
    #[arg(long, requires = "id")]
    payload: Option<String>,
    /// When, from now: of one task.
    #[arg(long, requires = "id", allow_hyphen_values = true)]
    delay: Option<String>,
    #[command(flatten)]
    how: How,
}

/// Take dead letters from the list, for good: one by its queue and id, or all that a filter takes. What is known of the tasks
/// stays until its retention is over.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: dueline dead-letter purge --handler log --died fatal --dry-run")]
pub(super) struct Purge {
    /// The queue; of one task, or as a filter.
    queue: Option<String>,
    /// The id of one task.
    #[arg(requires = "queue")]
    id: Option<String>,
    #[command(flatten)]
    filter: Filter,
    /// Those of every queue, handler and collection.
    #[arg(long, conflicts_with_all = ["queue", "handler", "collection"])]
    all: bool,
    #[command(flatten)]
    how: How,
}

/// Seconds that a redrive of one task waits for its answer.
const WAIT_S: u64 = 10;

pub(super) async fn run(global: &Global, verb: Verb) -> anyhow::Result<()> {
    let client = Client::new(global)?;
    let format = global.output;
    match verb {
        Verb::List(wanted) => list(&client, format, wanted).await,
        Verb::Show { queue, id } => show::run(&client, format, &queue, &id).await,
        Verb::Redrive(wanted) => match (&wanted.queue, &wanted.id) {
            (Some(queue), Some(id)) => redrive_one(&client, format, queue, id, &wanted).await,
            _ => {
                let body = wanted.filter.body("redrive", (wanted.queue.clone(), None), wanted.all)?;
                batch::begin(&client, format, body, &wanted.how).await
            }
        },
        Verb::Purge(wanted) => {
            let key = (wanted.queue.clone(), wanted.id.clone());
            let body = wanted.filter.body("purge", key, wanted.all)?;
            batch::begin(&client, format, body, &wanted.how).await
        }
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

    fn body(
        &self,
        verb: &str,
        (queue, id): (Option<String>, Option<String>),
        all: bool,
    ) -> anyhow::Result<Value> {
        let Filter { handler, collection, died, from, to } = self.clone();
        if queue.is_none() && handler.is_none() && collection.is_none() && !all {
            let text =
                "say which: QUEUE ID, QUEUE, --handler or --collection; or --all for those of every queue";
            return Err(Exit::Usage.with(text));
        }
        let mut body = json!({ "verb": verb, "all": all });
        put(&mut body, [("queue", queue), ("id", id), ("handler", handler), ("collection", collection)]);
        put(&mut body, [("died", died), ("from", from), ("to", to)]);
        Ok(body)
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
    many(format, &found, "no dead letters", line)?;
    if !pages.is_over {
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
    let mut body = given([("delay", wanted.delay.clone()), ("reason", wanted.how.author.reason.clone())]);
    if let Some(payload) = &wanted.payload {
        let _: &serde_json::value::RawValue = serde_json::from_str(payload)
            .map_err(|error| Exit::Usage.with(format!("--payload is not JSON: {error}")))?;
        let between = if body == "{}" { "" } else { "," };
        body.truncate(body.len() - 1);
        body.push_str(&format!("{between}\"payload\":{payload}}}"));
    }
    decided(format, &client.post(&path, body, Some(WAIT_S)).await?)
}
