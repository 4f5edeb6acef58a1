//! `dueline topics read`: records of an embedded instance's topic; those of several partitions by time.

use std::collections::VecDeque;

use futures::{TryStreamExt as _, stream};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::cli::client::{Client, read, segment};
use crate::cli::output::{self, Format};
use crate::cli::{Exit, Global};
use crate::model::Wall;
use crate::wire::time::{Round, parse_time};

/// Read a topic of an embedded instance, oldest records first; on Kafka any client of Kafka's does.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: dueline topics read dueline.events --from first")]
pub(in crate::cli) struct Args {
    /// Its name: `dueline topics list` has those that there are.
    topic: String,
    /// Only this partition; all of them when not given.
    #[arg(long, value_name = "N")]
    partition: Option<u32>,
    /// Where to begin: first, end, or an offset of one partition.
    #[arg(long, default_value = "first", value_parser = parse_from, value_name = "OFFSET")]
    from: Start,
    /// Go on with what comes, until stopped.
    #[arg(long)]
    follow: bool,
}

/// Where reading begins.
#[derive(Clone, Copy, Debug)]
enum Start {
    First,
    End,
    Offset(u64),
}

fn parse_from(text: &str) -> Result<Start, String> {
    match text {
        "first" => Ok(Start::First),
        "end" => Ok(Start::End),
        text => text.parse().map(Start::Offset).map_err(|_| "it is first, end or an offset".to_owned()),
    }
}

/// Records of one page.
const PAGE_RECORDS: u32 = 500;
/// Seconds that one request waits for a record.
const WAIT_S: u64 = 20;

/// The topics that there are.
#[derive(Deserialize)]
struct Topics {
    topics: Vec<Topic>,
}

#[derive(Deserialize)]
struct Topic {
    topic: String,
    partitions: Vec<Partition>,
}

#[derive(Clone, Copy, Deserialize)]
struct Partition {
    partition: u32,
    first: u64,
    next: u64,
}

/// A page; the records as they were sent, as payloads are in them.
#[derive(Deserialize)]
struct Page {
    records: Vec<Box<RawValue>>,
    next_from: u64,
}

/// A record, and by what it is sorted.
struct Record {
    time: Wall,
    offset: u64,
    raw: Box<RawValue>,
}

/// How far a partition is read.
struct Reading<'a> {
    client: &'a Client,
    path: String,
    number: u32,
    /// The offset to ask for next.
    at: u64,
    /// Where its records ended when the command began.
    end: u64,
    read: VecDeque<Record>,
}

pub(super) async fn run(global: &Global, wanted: Args) -> anyhow::Result<()> {
    if wanted.follow && global.output == Format::Json {
        return Err(Exit::Usage.with("--follow has no end, and one JSON document has: use -o jsonl"));
    }
    let client = Client::new(global)?;
    let mut readings = begin(&client, &wanted).await?;
    let (mut all, mut is_empty) = (Vec::new(), true);
    loop {
        let records = next_by_time(&mut readings).await?;
        if records.is_empty() {
            break;
        }
        is_empty = false;
        match global.output {
            Format::Json => all.extend(records),
            format => write(format, &records)?,
        }
    }
    match global.output {
        Format::Json => write(Format::Json, &all)?,
        _ if is_empty && !wanted.follow => eprintln!("no records"),
        _ => {}
    }
    if wanted.follow { follow(global.output, readings).await } else { Ok(()) }
}

/// The partitions that are meant, each at its beginning.
async fn begin<'a>(client: &'a Client, wanted: &Args) -> anyhow::Result<Vec<Reading<'a>>> {
    let Topics { topics } = read(&client.get_text("/v1/topics", &[]).await?)?;
    let Some(topic) = topics.iter().find(|known| known.topic == wanted.topic) else {
        let known: Vec<&str> = topics.iter().map(|known| known.topic.as_str()).collect();
        let text = format!("there is no topic {:?} here; there are {}", wanted.topic, known.join(", "));
        return Err(Exit::NotFound.with(text));
    };
    let is_meant = |one: &&Partition| wanted.partition.is_none_or(|number| number == one.partition);
    let meant: Vec<Partition> = topic.partitions.iter().filter(is_meant).copied().collect();
    if meant.is_empty() {
        let last = topic.partitions.len().saturating_sub(1);
        return Err(Exit::NotFound.with(format!("the partitions of {} are 0 to {last}", topic.topic)));
    }
    if meant.len() > 1 && matches!(wanted.from, Start::Offset(_)) {
        let text = "an offset is one of a partition: name it with --partition";
        return Err(Exit::Usage.with(text));
    }
    let name = segment(&topic.topic)?;
    let reading = |one: Partition| Reading {
        client,
        path: format!("/v1/topics/{name}/{}", one.partition),
        number: one.partition,
        at: match wanted.from {
            Start::First => one.first,
            Start::End => one.next,
            Start::Offset(offset) => offset,
        },
        end: one.next,
        read: VecDeque::new(),
    };
    let mut readings: Vec<Reading<'_>> = meant.into_iter().map(reading).collect();
    if let (Start::Offset(_), [only]) = (wanted.from, &mut readings[..]) {
        // The answer says whether it is held.
        only.fetch().await?;
    }
    Ok(readings)
}

/// The next records of all partitions, by time; none at the end.
async fn next_by_time(readings: &mut [Reading<'_>]) -> anyhow::Result<Vec<Record>> {
    for reading in readings.iter_mut().filter(|reading| reading.read.is_empty() && reading.has_more()) {
        reading.fetch().await?;
    }
    let mut records = Vec::new();
    // Of a partition that has more, the next one may be the earliest of all.
    while readings.iter().all(|reading| !reading.read.is_empty() || !reading.has_more()) {
        let with_time = readings.iter_mut().filter_map(|reading| Some((reading.read.front()?.time, reading)));
        let Some((_, next)) = with_time.min_by_key(|(time, reading)| (*time, reading.number)) else { break };
        records.extend(next.read.pop_front());
    }
    Ok(records)
}

/// Writes what comes, of each partition in order.
async fn follow(format: Format, readings: Vec<Reading<'_>>) -> anyhow::Result<()> {
    let pages = readings.into_iter().map(|reading| {
        Box::pin(stream::try_unfold(reading, |mut reading| async move {
            let page = reading.page(Some(WAIT_S)).await?;
            anyhow::Ok(Some((page, reading)))
        }))
    });
    let mut pages = stream::select_all(pages);
    while let Some(page) = pages.try_next().await? {
        write(format, &page)?;
    }
    Ok(())
}

impl Reading<'_> {
    /// Whether it was not read to its end yet.
    fn has_more(&self) -> bool {
        self.at < self.end
    }

    /// Reads on up to its end.
    async fn fetch(&mut self) -> anyhow::Result<()> {
        let (page, end) = (self.page(None).await?, self.end);
        self.read.extend(page.into_iter().filter(|record| record.offset < end));
        Ok(())
    }

    /// The next records.
    async fn page(&mut self, wait: Option<u64>) -> anyhow::Result<Vec<Record>> {
        let query = [("from", self.at.to_string()), ("limit", PAGE_RECORDS.to_string())];
        let text = self.client.get_text_waiting(&self.path, &query, wait).await?;
        let page: Page = read(&text)?;
        self.at = page.next_from;
        page.records.into_iter().map(Record::read).collect()
    }
}

impl Record {
    fn read(raw: Box<RawValue>) -> anyhow::Result<Record> {
        #[derive(Deserialize)]
        struct Head {
            time: String,
            offset: u64,
        }
        let Head { time, offset } = read(raw.get())?;
        let time = parse_time(&time, Round::Down)
            .map_err(|why| Exit::Error.with(format!("the time of a record cannot be read: {why}")))?;
        Ok(Record { time, offset, raw })
    }
}

fn write(format: Format, records: &[Record]) -> anyhow::Result<()> {
    match format {
        Format::Text => {
            let lines: Result<Vec<String>, _> = records.iter().map(|record| line(record.raw.get())).collect();
            output::text(&lines?.concat())
        }
        Format::Json => output::json(format, &Vec::from_iter(records.iter().map(|record| &record.raw))),
        Format::Jsonl => {
            // Line ends of JSON lie between its tokens.
            let one_line = |record: &Record| record.raw.get().replace(['\n', '\r'], " ") + "\n";
            output::text(&records.iter().map(one_line).collect::<String>())
        }
    }
}

/// When, where, of which key and, where it is a CloudEvent, of which type; then the value.
fn line(raw: &str) -> anyhow::Result<String> {
    #[derive(Deserialize)]
    struct Shown<'a> {
        time: String,
        partition: u32,
        offset: u64,
        key: Option<String>,
        headers: Vec<Value>,
        #[serde(borrow)]
        value: Option<&'a RawValue>,
        value_base64: Option<String>,
    }
    let shown: Shown<'_> = read(raw)?;
    let key = shown.key.as_deref().unwrap_or("-");
    let kind = shown.headers.iter().find(|header| header["name"] == "ce_type");
    let kind = kind.and_then(|header| header["value"].as_str()).unwrap_or("-");
    let value = shown.value.map_or(shown.value_base64.as_deref().unwrap_or("-"), RawValue::get);
    let Shown { time, partition, offset, .. } = shown;
    Ok(output::on_one_line(&format!("{time:<24}  {partition}/{offset}  {key}  {kind}  {value}")))
}
