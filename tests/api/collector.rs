//! A collector of spans on loopback: it takes OTLP over HTTP as it comes, decodes it, and answers as it is told.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value::Value};
use opentelemetry_proto::tonic::trace::v1::status::StatusCode as SpanStatus;
use prost::Message as _;
use tokio::net::TcpSocket;
use tokio::sync::watch;

/// How requests are answered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Mode {
    /// 200.
    Take,
    /// 403.
    Refuse,
    /// Not at all.
    Hang,
}

/// A span as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    pub(crate) trace: String,
    pub(crate) id: String,
    pub(crate) parent: String,
    pub(crate) name: String,
    pub(crate) start_ns: u64,
    pub(crate) end_ns: u64,
    pub(crate) is_error: bool,
    /// Texts as they are, numbers in decimal.
    pub(crate) attributes: BTreeMap<String, String>,
    pub(crate) resource: BTreeMap<String, String>,
}

impl Span {
    pub(crate) fn attribute(&self, name: &str) -> &str {
        self.attributes.get(name).map_or("", String::as_str)
    }
}

/// A request that was taken.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) path: String,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Bytes,
}

/// A port of loopback that nobody listens on, and nobody else gets.
pub(crate) fn held_port() -> TcpSocket {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind(([127, 0, 0, 1], 0).into()).expect("a free port");
    socket
}

/// The collector; it goes with the test's runtime.
pub(crate) struct Collector {
    taken: Taken,
    mode: watch::Sender<Mode>,
    pub(crate) port: u16,
}

impl Collector {
    /// Listens on a free port.
    pub(crate) async fn start(mode: Mode) -> Collector {
        Collector::over(held_port(), mode)
    }

    /// Listens on a port that was held.
    pub(crate) fn over(socket: TcpSocket, mode: Mode) -> Collector {
        let listener = socket.listen(64).expect("it listens");
        let port = listener.local_addr().expect("bound").port();
        let (mode, told) = watch::channel(mode);
        let taken = Taken::default();
        let app = Router::new().fallback(answer).with_state((taken.clone(), told));
        tokio::spawn(async move { axum::serve(listener, app).await });
        Collector { taken, mode, port }
    }

    /// Answers so from now on.
    pub(crate) fn set(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Every request that was taken.
    pub(crate) fn requests(&self) -> Vec<Request> {
        self.taken.lock().expect("lock").clone()
    }

    /// Every span that was taken, in order.
    pub(crate) fn spans(&self) -> Vec<Span> {
        self.requests().iter().flat_map(|request| spans(&request.body)).collect()
    }

    /// The spans of a task, in order.
    pub(crate) fn of(&self, id: &str) -> Vec<Span> {
        self.spans().into_iter().filter(|span| span.attribute("dueline.task_id") == id).collect()
    }
}

type Taken = Arc<Mutex<Vec<Request>>>;

async fn answer(
    State((taken, mut mode)): State<(Taken, watch::Receiver<Mode>)>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> StatusCode {
    let mode = *mode.wait_for(|mode| *mode != Mode::Hang).await.expect("the collector is there");
    if mode == Mode::Refuse {
        return StatusCode::FORBIDDEN;
    }
    let text = |value: &axum::http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let headers = headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect();
    taken.lock().expect("lock").push(Request { path: uri.path().to_owned(), headers, body });
    StatusCode::OK
}

fn spans(body: &Bytes) -> Vec<Span> {
    let request = ExportTraceServiceRequest::decode(body.as_ref()).expect("protobuf of OTLP");
    let mut spans = Vec::new();
    for of_resource in request.resource_spans {
        let resource = texts(&of_resource.resource.expect("a resource").attributes);
        for span in of_resource.scope_spans.into_iter().flat_map(|scope| scope.spans) {
            let status = span.status.as_ref().map(|status| status.code());
            spans.push(Span {
                trace: hex(&span.trace_id),
                id: hex(&span.span_id),
                parent: hex(&span.parent_span_id),
                name: span.name,
                start_ns: span.start_time_unix_nano,
                end_ns: span.end_time_unix_nano,
                is_error: status == Some(SpanStatus::Error),
                attributes: texts(&span.attributes),
                resource: resource.clone(),
            });
        }
    }
    spans
}

fn texts(attributes: &[KeyValue]) -> BTreeMap<String, String> {
    let text = |attribute: &KeyValue| match attribute.value.as_ref().and_then(|value| value.value.as_ref()) {
        Some(Value::StringValue(text)) => text.clone(),
        Some(Value::IntValue(number)) => number.to_string(),
        other => panic!("{}: {other:?}", attribute.key),
    };
    attributes.iter().map(|attribute| (attribute.key.clone(), text(attribute))).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
