//! HTTP callbacks: one POST per attempt, signed after Standard Webhooks, its answer mapped to an outcome.
//!
//! ```text
//! 2xx succeeded, or snoozed with Dueline-Snooze · 408 425 429 5xx retryable, Retry-After honoured
//! 409 with Dueline-Fenced aborted and fenced · redirects and all other statuses fatal
//! ```
//!
//! A redirect is never followed and a proxy never taken from the environment: the request goes to the operator's URL
//! or nowhere. There is no deadline here; the caller drops the call, and with it the connection. A connection that
//! breaks after the request may have arrived leaves the handler perhaps still at work: see [`Ending::lost`].

mod answer;
mod loopback;
mod resolve;
mod status;
#[cfg(test)]
mod tests;

use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
pub use reqwest::Url;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};

pub use loopback::{Loopback, LoopbackError, check_loopback};
pub use status::{StatusRange, StatusRangeError, StatusRules};

use super::signature::{self, Secret};
use super::{Call, Dispatch, Ending, headers, one_line, wall_now};
use crate::model::{Outcome, Wall};

/// Longest wait for a connection, in milliseconds; a handler that cannot be reached has not been called.
pub const CONNECT_MS_MAX: u64 = 10_000;
/// An idle connection is kept this long, in milliseconds: less than the five seconds after which common servers
/// close theirs, so that a request seldom meets a connection about to go. All are kept: starts come in waves, as
/// the store takes them, and there are no more connections than slots of handlers.
pub const IDLE_MS_MAX: u64 = 4_000;
/// Longest URL, in bytes.
pub const URL_BYTES_MAX: usize = 2_048;

/// How one HTTP handler is called.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where to; the operator's word is trusted.
    pub url: Url,
    /// What callbacks are signed with; none = not signed.
    pub secrets: Vec<Secret>,
    /// Which status means what.
    pub statuses: StatusRules,
}

/// A URL that cannot be called.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// Longer than [`URL_BYTES_MAX`].
    #[error("is longer than {URL_BYTES_MAX} bytes")]
    TooLong,
    /// No URL at all.
    #[error("is not a URL: {0}")]
    Malformed(String),
    /// Another scheme.
    #[error("has the scheme {0:?}; only http and https are called")]
    Scheme(String),
    /// A user name or password in it.
    #[error("holds credentials, which belong in a file of their own: secrets_file, otlp.headers")]
    Credentials,
    /// A link-local address.
    #[error("names a link-local address, which is not called")]
    LinkLocal,
}

/// Reads a handler's URL: http or https, at most 2,048 bytes, without credentials, not of a link-local address.
///
/// # Errors
/// Says which of these it is not.
pub fn parse_url(text: &str) -> Result<Url, UrlError> {
    if text.len() > URL_BYTES_MAX {
        return Err(UrlError::TooLong);
    }
    let url = Url::parse(text).map_err(|error| UrlError::Malformed(error.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(UrlError::Scheme(url.scheme().to_owned()));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(UrlError::Credentials);
    }
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    if host.parse().is_ok_and(|ip| resolve::is_link_local(&ip)) {
        return Err(UrlError::LinkLocal);
    }
    Ok(url)
}

/// The client could not be made: no usable TLS on this machine, as a rule missing CA certificates.
#[derive(Debug, Clone, thiserror::Error)]
#[error("cannot set up the HTTP client: {0}")]
pub struct ClientError(String);

/// The connections of all HTTP handlers of a process.
#[derive(Clone, Debug)]
pub struct Connections {
    plain: reqwest::Client,
    tls: Option<reqwest::Client>,
}

impl Connections {
    /// Connections without TLS; [`Connections::with_tls`] adds it.
    ///
    /// # Errors
    /// The client cannot be set up.
    pub fn new() -> Result<Connections, ClientError> {
        let plain = builder().tls_certs_only([]).dns_resolver(resolve::NOT_LINK_LOCAL);
        Ok(Connections { plain: build(plain)?, tls: None })
    }

    /// Adds TLS, trusting the machine's CA certificates.
    ///
    /// # Errors
    /// The machine has no CA certificates, or they cannot be read.
    pub fn with_tls(self) -> Result<Connections, ClientError> {
        Ok(Connections { tls: Some(build(builder().dns_resolver(resolve::NOT_LINK_LOCAL))?), ..self })
    }

    fn of(&self, url: &Url) -> Option<reqwest::Client> {
        if url.scheme() == "https" { self.tls.clone() } else { Some(self.plain.clone()) }
    }
}

/// A client that follows nothing, tries nothing again and uses no proxy.
pub(crate) fn builder() -> reqwest::ClientBuilder {
    reqwest::Client::builder()
        .user_agent(concat!("dueline/", env!("CARGO_PKG_VERSION")))
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        .no_proxy()
        .http1_only()
        .connect_timeout(Duration::from_millis(CONNECT_MS_MAX))
        .pool_idle_timeout(Duration::from_millis(IDLE_MS_MAX))
}

fn build(builder: reqwest::ClientBuilder) -> Result<reqwest::Client, ClientError> {
    builder.build().map_err(|error| ClientError(error_chain(&error)))
}

/// Calls one configured HTTP handler.
#[derive(Debug)]
pub struct Http {
    client: reqwest::Client,
    options: Arc<Options>,
}

impl Http {
    /// A dispatcher over shared connections.
    ///
    /// # Errors
    /// The URL is https and the connections are without TLS.
    pub fn new(connections: &Connections, options: Options) -> Result<Http, ClientError> {
        let client = connections
            .of(&options.url)
            .ok_or_else(|| ClientError("an https URL, but the connections are without TLS".to_owned()))?;
        Ok(Http { client, options: Arc::new(options) })
    }
}

impl Dispatch for Http {
    fn call(&self, call: Call) -> BoxFuture<'static, Ending> {
        Box::pin(post(self.client.clone(), self.options.clone(), call))
    }
}

async fn post(client: reqwest::Client, options: Arc<Options>, call: Call) -> Ending {
    let request = client
        .post(options.url.clone())
        .headers(header_map(&call, &options.secrets, wall_now()))
        .body(Bytes::from_owner(call.payload.clone()));
    match request.send().await {
        Ok(response) => answer::ending(response, &options).await,
        Err(error) => unsent_or_lost(error),
    }
}

fn header_map(call: &Call, secrets: &[Secret], now: Wall) -> HeaderMap {
    let mut map = HeaderMap::new();
    map.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let timestamp_s = now.0.div_euclid(1_000);
    let mut pairs = headers::of_call(call);
    pairs.push(("webhook-timestamp", timestamp_s.to_string()));
    if !secrets.is_empty() {
        let id = headers::encode_name(&call.call_id);
        pairs.push(("webhook-signature", signature::sign(secrets, &id, timestamp_s, &call.payload)));
    }
    for (name, value) in pairs {
        let name = HeaderName::from_bytes(name.as_bytes()).expect("our header names are tokens");
        map.insert(name, HeaderValue::try_from(value).expect("our header values are printable ASCII"));
    }
    map
}

fn unsent_or_lost(error: reqwest::Error) -> Ending {
    if error.is_builder() {
        Ending::failed(
            Outcome::Fatal,
            one_line(&format!("the request cannot be made: {}", error_chain(&error))),
        )
    } else if error.is_connect() {
        Ending::failed(Outcome::Retryable, one_line(&format!("not reached: {}", error_chain(&error))))
    } else {
        lost(&error)
    }
}

/// The request may have arrived, and no end of it will: the handler may be at work until the deadline.
fn lost(error: &reqwest::Error) -> Ending {
    let error = one_line(&format!("connection lost before the answer was complete: {}", error_chain(error)));
    Ending { lost: true, ..Ending::failed(Outcome::Retryable, error) }
}

/// The causes of an error, without the URL, which may hold a token in its query.
pub(crate) fn error_chain(error: &reqwest::Error) -> String {
    let mut text = String::new();
    let mut cause = error.source();
    while let Some(error) = cause {
        if !text.is_empty() {
            text.push_str(": ");
        }
        text.push_str(&error.to_string());
        cause = error.source();
    }
    if text.is_empty() { "no cause given".to_owned() } else { text }
}
