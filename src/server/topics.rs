//! Topics of an embedded instance, read by offset: there is no group, and nobody is remembered. With Kafka they are read
//! with any client of Kafka's.

use axum::Json;
use axum::extract::{FromRequestParts, RawQuery};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::log::embedded::{EmbeddedLog, PartitionReader, Span, TopicReader};
use crate::log::{Header, Record};
use crate::wire::time::format_time;

use super::params::{NoParams, Params, decode, parameter, preferred_wait};
use super::problem::Problem;
use super::{Answer, App, limits};

/// The topics of an instance.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct TopicList {
    /// By name.
    topics: Vec<TopicView>,
}

/// A topic.
#[derive(Debug, Serialize, ToSchema)]
struct TopicView {
    /// Its name.
    topic: String,
    /// Its partitions, by number.
    partitions: Vec<PartitionView>,
}

/// A partition of a topic.
#[derive(Debug, Serialize, ToSchema)]
struct PartitionView {
    /// Its number.
    partition: u32,
    /// The first offset it holds.
    first: u64,
    /// The offset after the last: that of the next record.
    next: u64,
}

/// Records of one partition.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct RecordPage {
    /// By offset, without a gap.
    records: Vec<RecordView>,
    /// Give it as `from` for what follows.
    next_from: u64,
    /// The first offset that the partition holds.
    first: u64,
    /// The offset of its next record: with `next_from` there, nothing more is held yet.
    next: u64,
}

/// A record.
#[derive(Debug, Serialize, ToSchema)]
struct RecordView {
    /// Its partition.
    partition: u32,
    /// Its offset.
    offset: u64,
    /// When it was appended.
    time: String,
    /// Its key; absent when it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    /// A key that is no UTF-8, instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    key_base64: Option<String>,
    /// Its headers in order; a name may come twice.
    headers: Vec<HeaderView>,
    /// Its value: as it is where it is JSON, else as text; absent when it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    value: Option<Box<RawValue>>,
    /// A value that is no UTF-8, instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    value_base64: Option<String>,
}

/// A header of a record.
#[derive(Debug, Serialize, ToSchema)]
struct HeaderView {
    /// Its name.
    name: String,
    /// Its value; absent when it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    /// A value that is no UTF-8, instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    value_base64: Option<String>,
}

/// List the topics of an embedded instance with the offsets that each partition holds. With Kafka any client of Kafka's tells.
#[utoipa::path(get, path = "/v1/topics", responses((status = 200, body = TopicList), (status = 501, body = Problem)))]
pub(super) async fn list(app: App, _: NoParams) -> Answer<Json<TopicList>> {
    let view = |topic: TopicReader| {
        let spans = (0..).zip(topic.spans());
        let partitions =
            spans.map(|(partition, Span { first, next })| PartitionView { partition, first, next });
        TopicView { topic: topic.name().to_owned(), partitions: partitions.collect() }
    };
    let topics = embedded(&app, "TOPIC")?.topics();
    Ok(Json(TopicList { topics: topics.into_iter().map(view).collect() }))
}

/// Read a partition of an embedded instance's topic, `from` an offset (default: the first it holds), `limit` records at most
/// (default 100, at most 1,000; fewer where they are large). With `Prefer: wait=N` it waits so many seconds at most where nothing
/// more is held. An offset that is not held is an error, never passed over. With Kafka any client of Kafka's reads them.
#[utoipa::path(get, path = "/v1/topics/{topic}/{partition}", params(("topic" = String, Path), ("partition" = u32, Path),
    ("from" = Option<u64>, Query), ("limit" = Option<usize>, Query)),
    responses((status = 200, body = RecordPage), (status = 400, body = Problem), (status = 404, body = Problem),
    (status = 409, body = Problem), (status = 501, body = Problem)))]
pub(super) async fn read(
    app: App,
    path: PartitionPath,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Answer<Json<RecordPage>> {
    let params = Params::read(query.as_deref(), &["from", "limit"])?;
    let (from, limit) = (offset(&params)?, limit(&params)?);
    let reader = reader(embedded(&app, &path.topic)?, &path)?;
    let from = from.unwrap_or_else(|| reader.span().first);
    held(&path, from, reader.span())?;
    if let Some(wait) = preferred_wait(&headers) {
        // Nothing came: then the page is empty.
        let _ = tokio::time::timeout(wait, reader.reaches(from)).await;
    }
    let records = reader.read(from, limit, limits::RECORDS_BYTES_MAX).await?;
    let span = reader.span();
    if records.is_empty() {
        // What retention took away meanwhile looks like the end.
        held(&path, from, span)?;
    }
    let next_from = records.last().map_or(from, |last| last.offset + 1);
    let records = records.into_iter().map(|record| record_view(path.partition, record)).collect();
    Ok(Json(RecordPage { records, next_from, first: span.first, next: span.next }))
}

/// The log of an embedded instance.
///
/// # Errors
/// It is on Kafka, whose own clients read this topic.
pub(super) fn embedded<'a>(app: &'a App, topic: &str) -> Answer<&'a EmbeddedLog> {
    app.node.embedded_log().ok_or_else(|| {
        let brokers = app.node.config().kafka.brokers.as_deref().unwrap_or("BROKERS");
        let detail = format!(
            "This instance is on Kafka: read the topic itself with any client, for example: \
             kcat -b {brokers} -t {topic} -C -e -f '%h %s\\n'"
        );
        Problem::new(StatusCode::NOT_IMPLEMENTED, "read_the_topic", detail)
    })
}

/// The partition named by `/v1/topics/{topic}/{partition}`.
pub(super) struct PartitionPath {
    topic: String,
    partition: u32,
}

impl<S: Sync> FromRequestParts<S> for PartitionPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Answer<PartitionPath> {
        let wrong = |what: &str, why: &str| {
            Problem::bad_request("invalid_path", format!("The {what} in the path {why}."))
        };
        let mut segments = parts.uri.path().trim_start_matches('/').split('/').skip(2);
        let mut next = || segments.next().unwrap_or_default();
        let topic = decode(next()).map_err(|why| wrong("topic", &why))?;
        let partition = next().parse().map_err(|_| wrong("partition", "is no number from 0 on"))?;
        Ok(PartitionPath { topic, partition })
    }
}

fn offset(params: &Params) -> Answer<Option<u64>> {
    let offset = params.text("from").map(str::parse).transpose();
    offset.map_err(|_| parameter("from", "must be an offset: a number from 0 on"))
}

fn limit(params: &Params) -> Answer<usize> {
    let Some(text) = params.text("limit") else { return Ok(limits::PAGE_SIZE) };
    let limit = text.parse().ok().filter(|limit| (1..=limits::PAGE_SIZE_MAX).contains(limit));
    limit.ok_or_else(|| parameter("limit", &format!("must be a number from 1 to {}", limits::PAGE_SIZE_MAX)))
}

fn reader(log: &EmbeddedLog, path: &PartitionPath) -> Answer<PartitionReader> {
    let PartitionPath { topic, partition } = path;
    let found = log.topics().into_iter().find(|known| known.name() == topic).ok_or_else(|| {
        let detail = format!("There is no topic {topic:?} here; /v1/topics lists those that there are.");
        Problem::not_found("unknown_topic", detail)
    })?;
    found.partition(*partition).ok_or_else(|| {
        let last = found.spans().len().saturating_sub(1);
        let detail = format!("Topic {topic} has no partition {partition}: its partitions are 0 to {last}.");
        Problem::not_found("unknown_partition", detail)
    })
}

/// Checks that an offset is held, or is the next one.
fn held(path: &PartitionPath, from: u64, Span { first, next }: Span) -> Answer<()> {
    if (first..=next).contains(&from) {
        return Ok(());
    }
    let PartitionPath { topic, partition } = path;
    let detail = format!(
        "Partition {partition} of {topic} holds no offset {from}: its records have {first} and on, its next one gets {next}."
    );
    Err(Problem::conflict("offset_not_held", detail))
}

fn record_view(partition: u32, record: Record) -> RecordView {
    let (key, key_base64) = text(record.key.as_deref());
    let (value, value_base64) = text(record.value.as_deref());
    RecordView {
        partition,
        offset: record.offset,
        time: format_time(record.appended),
        key,
        key_base64,
        headers: record.headers.iter().map(header_view).collect(),
        value: value.map(json),
        value_base64,
    }
}

fn header_view((name, value): &Header) -> HeaderView {
    let (value, value_base64) = text(value.as_deref());
    HeaderView { name: name.to_string(), value, value_base64 }
}

/// Bytes as text where they are, else as base64.
fn text(bytes: Option<&[u8]>) -> (Option<String>, Option<String>) {
    match bytes.map(|bytes| std::str::from_utf8(bytes).map_err(|_| BASE64_STANDARD.encode(bytes))) {
        None => (None, None),
        Some(Ok(text)) => (Some(text.to_owned()), None),
        Some(Err(base64)) => (None, Some(base64)),
    }
}

/// A text as it is where it is JSON, else as a string.
fn json(text: String) -> Box<RawValue> {
    let string = |_| serde_json::value::to_raw_value(&text).expect("a text is JSON");
    serde_json::from_str(&text).unwrap_or_else(string)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::model::Wall;

    #[test]
    fn a_record_is_shown_as_json_or_text_and_else_as_base64() {
        let shown = |value: Option<&'static [u8]>| {
            let record = Record {
                offset: 7,
                appended: Wall(0),
                leader_epoch: None,
                key: Some(Bytes::from_static(b"\xff\x00")),
                headers: vec![
                    ("a".into(), None),
                    ("a".into(), Some(Bytes::from_static(b"1"))),
                    ("b".into(), Some(Bytes::from_static(b"\xfe"))),
                ],
                value: value.map(Bytes::from_static),
            };
            serde_json::to_string(&record_view(3, record)).expect("JSON")
        };
        let head = "{\"partition\":3,\"offset\":7,\"time\":\"1970-01-01T00:00:00.000Z\",\"key_base64\":\"/wA=\",\
            \"headers\":[{\"name\":\"a\"},{\"name\":\"a\",\"value\":\"1\"},{\"name\":\"b\",\"value_base64\":\"/g==\"}]";
        for (value, rest) in [
            (None, ""),
            (Some(&b"{\"n\":1.00}"[..]), ",\"value\":{\"n\":1.00}"),
            (Some(b"null"), ",\"value\":null"),
            (Some(b"so \"it\" is"), ",\"value\":\"so \\\"it\\\" is\""),
            (Some(b""), ",\"value\":\"\""),
            (Some(b"\xc3\x28"), ",\"value_base64\":\"wyg=\""),
        ] {
            assert_eq!(shown(value), format!("{head}{rest}}}"));
        }
    }

    #[test]
    fn only_what_is_held_and_the_next_offset_are_read_from() {
        let path = PartitionPath { topic: "t".to_owned(), partition: 2 };
        let held = |from| held(&path, from, Span { first: 10, next: 20 }).map_err(|no| no.detail);
        assert_eq!((held(10), held(20)), (Ok(()), Ok(())));
        for from in [9, 21, u64::MAX] {
            let no = held(from).expect_err("it is not held");
            assert!(no.contains(&format!("no offset {from}")) && no.contains("have 10 and on"), "{no}");
        }
    }
}
