//! `dueline task schedule`: every field of a schedule event as a flag.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::PathBuf;

use serde_json::value::RawValue;

use crate::cli::Exit;
use crate::cli::client::Client;
use crate::cli::output::Format;
use crate::model::limits::EVENT_BYTES_MAX;
use crate::wire::event::request::{
    Misfire, OnConflict, OnDead, OnFailure, Request, Retry, ScheduleRequest, encode,
};

/// Schedule a task.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example: dueline task schedule --queue greetings --delay 5s --handler log --payload '{\"text\":\"hi\"}'"
)]
pub(in crate::cli) struct Args {
    /// The queue: its tasks run in order, one at a time. Default: the id, no ordering.
    #[arg(long)]
    queue: Option<String>,
    /// The task's name within its queue. Default: made up.
    #[arg(long)]
    id: Option<String>,
    /// The handler that runs it.
    #[arg(long)]
    handler: String,
    /// When it is due, from now: 10s, 1h30m, PT10M.
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, conflicts_with = "due_at")]
    delay: Option<String>,
    /// When it is due: 2026-11-21T10:00:00Z. Default: now.
    #[arg(long, value_name = "TIME")]
    due_at: Option<String>,
    /// What the handler is given, JSON. Default: {}.
    #[arg(long, value_name = "JSON", conflicts_with = "payload_file")]
    payload: Option<String>,
    /// File with the payload; - for standard input.
    #[arg(long, value_name = "FILE")]
    payload_file: Option<PathBuf>,
    /// 0 to 9, 9 first, between queues. Default: 5.
    #[arg(long, value_parser = clap::value_parser!(u8).range(0..=9))]
    priority: Option<u8>,
    /// A tag for bulk work.
    #[arg(long)]
    collection: Option<String>,
    /// Time for one attempt. Default: the handler's.
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    timeout: Option<String>,
    /// Not started after this time.
    #[arg(long, value_name = "TIME")]
    expires_at: Option<String>,
    /// What happens when it is late. Default: run.
    #[arg(long, value_enum)]
    misfire: Option<MisfireWord>,
    /// How late is late. Default: 0s.
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    misfire_grace: Option<String>,
    /// What this does to an unfinished task of the id with other content. Default: replace.
    #[arg(long, value_enum)]
    on_conflict: Option<OnConflictWord>,
    /// What its failure does to its queue: with `park` it waits aside for its next try. Default: block.
    #[arg(long, value_enum)]
    on_failure: Option<OnFailureWord>,
    /// What its death does to its queue: `stop` halts it until a person resumes it. Default: continue.
    #[arg(long, value_enum)]
    on_dead: Option<OnDeadWord>,
    /// A label; may be given several times.
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = label)]
    labels: Vec<(String, String)>,
    /// Who asks for it.
    #[arg(long, value_name = "NAME")]
    created_by: Option<String>,
    /// The retry policy, JSON: {"max_attempts":3,"initial":"1s"}. Default: the handler's.
    #[arg(long, value_name = "JSON")]
    retry: Option<String>,
    /// Why, for people.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// The event's id: sent again with the same key it changes nothing.
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// Seconds to wait until it is stored; 0 does not wait.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(0..=30))]
    wait: u64,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum MisfireWord {
    Run,
    Skip,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum OnConflictWord {
    Replace,
    Keep,
    Reject,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum OnFailureWord {
    Block,
    Park,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum OnDeadWord {
    Continue,
    Stop,
}

pub(super) async fn run(client: &Client, format: Format, args: Args) -> anyhow::Result<()> {
    let wait = Some(args.wait).filter(|seconds| *seconds > 0);
    let key = args.idempotency_key.clone();
    let body = encode(&Request::Schedule(Box::new(request(args)?)));
    let body = String::from_utf8(body.into()).expect("JSON is UTF-8");
    let answer = client.post_keyed("/v1/tasks", body, wait, key.as_deref()).await?;
    if wait.is_some() && answer["decision"].is_null() {
        eprintln!("accepted, not stored yet: it is durable in the log");
    }
    super::decided(format, &answer)
}

fn request(args: Args) -> anyhow::Result<ScheduleRequest> {
    let labels = labels(args.labels)?;
    Ok(ScheduleRequest {
        queue: args.queue,
        id: args.id,
        due_at: args.due_at,
        delay: args.delay,
        handler: args.handler,
        payload: payload(args.payload, args.payload_file)?,
        priority: args.priority,
        collection: args.collection,
        timeout: args.timeout,
        expires_at: args.expires_at,
        misfire: args.misfire.map(|word| match word {
            MisfireWord::Run => Misfire::Run,
            MisfireWord::Skip => Misfire::Skip,
        }),
        misfire_grace: args.misfire_grace,
        on_conflict: args.on_conflict.map(|word| match word {
            OnConflictWord::Replace => OnConflict::Replace,
            OnConflictWord::Keep => OnConflict::Keep,
            OnConflictWord::Reject => OnConflict::Reject,
        }),
        on_failure: args.on_failure.map(|word| match word {
            OnFailureWord::Block => OnFailure::Block,
            OnFailureWord::Park => OnFailure::Park,
        }),
        on_dead: args.on_dead.map(|word| match word {
            OnDeadWord::Continue => OnDead::Continue,
            OnDeadWord::Stop => OnDead::Stop,
        }),
        labels: Some(labels).filter(|labels| !labels.is_empty()),
        created_by: args.created_by,
        retry: args.retry.as_deref().map(retry).transpose()?,
        reason: args.reason,
        ..ScheduleRequest::default()
    })
}

fn labels(given: Vec<(String, String)>) -> anyhow::Result<BTreeMap<String, String>> {
    let mut labels = BTreeMap::new();
    for (name, value) in given {
        if labels.insert(name.clone(), value).is_some() {
            return Err(Exit::Usage.with(format!("--label {name} is given twice")));
        }
    }
    Ok(labels)
}

fn payload(text: Option<String>, file: Option<PathBuf>) -> anyhow::Result<Option<Box<RawValue>>> {
    let text = match (text, file) {
        (Some(text), _) => text,
        (None, None) => return Ok(None),
        (None, Some(file)) => {
            let wrong = |error: std::io::Error| {
                Exit::Usage.with(format!("--payload-file {}: {error}", file.display()))
            };
            let mut text = String::new();
            let reader: Box<dyn std::io::Read> = match file.as_os_str() == "-" {
                true => Box::new(std::io::stdin()),
                false => Box::new(std::fs::File::open(&file).map_err(wrong)?),
            };
            reader.take(EVENT_BYTES_MAX as u64 + 1).read_to_string(&mut text).map_err(wrong)?;
            text
        }
    };
    let wrong = |error: serde_json::Error| {
        Exit::Usage
            .with(format!("the payload is not JSON: {error}; a text needs quotes of its own: '\"text\"'"))
    };
    RawValue::from_string(text.trim().to_owned()).map(Some).map_err(wrong)
}

fn retry(text: &str) -> anyhow::Result<Retry> {
    serde_json::from_str(text).map_err(|error| Exit::Usage.with(format!("--retry: {error}")))
}

fn label(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("a label is NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}
