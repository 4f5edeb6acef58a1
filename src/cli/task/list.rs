//! `dueline task list`: tasks on stdout; what was looked at, and what was left out, on stderr.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::cli::client::{Client, read};
use crate::cli::output::{self, Format};

/// What to list.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Args {
    /// Only of this queue.
    #[arg(long)]
    queue: Option<String>,
    /// Only in this state.
    #[arg(long)]
    state: Option<String>,
    /// Only of this handler.
    #[arg(long)]
    handler: Option<String>,
    /// Only with this tag.
    #[arg(long)]
    collection: Option<String>,
    /// Ready at or after, RFC 3339. Default: a day ago, of one queue a week ago.
    #[arg(long, value_name = "TIME")]
    from: Option<String>,
    /// Ready before, RFC 3339. Default: in a day, of one queue in a week; with --newest now.
    #[arg(long, value_name = "TIME")]
    to: Option<String>,
    /// The newest first, by the time they were ready.
    #[arg(long)]
    newest: bool,
    /// Tasks of one page.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=1000))]
    page_size: u64,
    /// Go on where a list ended that named this token.
    #[arg(long, value_name = "TOKEN")]
    page_token: Option<String>,
    /// Every page.
    #[arg(long)]
    all: bool,
}

/// A page; the tasks as they were sent, as results of handlers are in them.
#[derive(Deserialize)]
struct Page {
    tasks: Vec<Box<RawValue>>,
    from: String,
    to: String,
    #[serde(default)]
    next_page_token: Option<String>,
}

/// What a line shows of a task.
#[derive(Deserialize)]
struct Line {
    state: String,
    ready_at: String,
    queue: String,
    id: String,
    handler: String,
}

pub(super) async fn run(client: &Client, format: Format, wanted: Args) -> anyhow::Result<()> {
    let given = [
        ("queue", wanted.queue),
        ("state", wanted.state),
        ("handler", wanted.handler),
        ("collection", wanted.collection),
        ("from", wanted.from),
        ("to", wanted.to),
        ("order", wanted.newest.then(|| "newest".to_owned())),
    ];
    let mut query: Vec<(&str, String)> =
        given.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
    query.push(("page_size", wanted.page_size.to_string()));
    let mut tasks = Vec::new();
    let mut token = wanted.page_token;
    let window = loop {
        let mut asked = query.clone();
        asked.extend(token.take().map(|token| ("page_token", token)));
        let page: Page = read(&client.get_text("/v1/tasks", &asked).await?)?;
        tasks.extend(page.tasks);
        token = page.next_page_token;
        let enough = !wanted.all && tasks.len() as u64 >= wanted.page_size;
        if token.is_none() || enough {
            break format!("ready from {} to before {} (--from, --to)", page.from, page.to);
        }
    };
    match (tasks.is_empty(), format) {
        (true, _) => eprintln!("no tasks {window}"),
        (false, Format::Text) => eprintln!("tasks {window}:\n{}", head()),
        (false, Format::Json | Format::Jsonl) => eprintln!("tasks {window}"),
    }
    match format {
        Format::Text => {
            let lines: anyhow::Result<String> =
                tasks.iter().map(|task| Ok(line(&read(task.get())?))).collect();
            output::text(&lines?)?;
        }
        format => output::json_each(format, &tasks)?,
    }
    if let Some(token) = token {
        eprintln!("there are more: --all shows them, --page-token {token} goes on");
    }
    Ok(())
}

fn head() -> String {
    format!("{:<10} {:<24}  queue  id  handler", "state", "ready_at")
}

fn line(task: &Line) -> String {
    format!("{:<10} {:<24}  {}  {}  {}\n", task.state, task.ready_at, task.queue, task.id, task.handler)
}
