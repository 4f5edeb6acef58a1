//! Client verbs: requests to the HTTP interface, and what its answers mean for exit codes.

use std::path::Path;
use std::time::Duration;

use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::Value;

use super::{Exit, Global};
use crate::config::{Hidden, read_secret};

/// Longest time for one request, its wait included: the server's own bound comes first, so that its words are heard.
const TIMEOUT: Duration = Duration::from_secs(65);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A client of the HTTP interface that the command line names.
pub(super) struct Client {
    http: reqwest::Client,
    server: String,
    token: Option<Hidden>,
}

impl Client {
    pub(super) fn new(global: &Global) -> anyhow::Result<Client> {
        let http = reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(TIMEOUT);
        // Only https needs the certificates of this machine.
        let is_https = global.server.starts_with("https:");
        let http = if is_https { http } else { http.tls_certs_only([]) }.build()?;
        let token = token(global.token_file.as_deref())?;
        let server = global.server.trim_end_matches('/').to_owned();
        let url = reqwest::Url::parse(&server);
        if !url.is_ok_and(|url| matches!(url.scheme(), "http" | "https")) {
            let text = format!("the server {server:?} is no URL such as http://127.0.0.1:7420");
            return Err(Exit::Usage.with(text));
        }
        Ok(Client { http, server, token })
    }

    pub(super) async fn get(&self, path: &str, query: &[(&str, String)]) -> anyhow::Result<Value> {
        read(&self.get_text(path, query).await?)
    }

    /// The JSON text of an answer, as it was sent: a payload keeps its numbers.
    pub(super) async fn get_text(&self, path: &str, query: &[(&str, String)]) -> anyhow::Result<String> {
        self.get_text_waiting(path, query, None).await
    }

    /// The same, waiting so many seconds at most for something to tell.
    pub(super) async fn get_text_waiting(
        &self,
        path: &str,
        query: &[(&str, String)],
        wait: Option<u64>,
    ) -> anyhow::Result<String> {
        let pairs =
            query.iter().map(|(name, value)| format!("{name}={}", crate::wire::row::percent_encode(value)));
        let query = pairs.collect::<Vec<_>>().join("&");
        let path = if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") };
        let mut request = self.request(Method::GET, &path);
        if let Some(seconds) = wait {
            request = request.header("prefer", format!("wait={seconds}"));
        }
        self.send(request).await
    }

    /// Posts a JSON text; with a wait the answer says what was decided.
    pub(super) async fn post(&self, path: &str, body: String, wait: Option<u64>) -> anyhow::Result<Value> {
        self.post_keyed(path, body, wait, None).await
    }

    /// Posts a JSON text under an idempotency key.
    pub(super) async fn post_keyed(
        &self,
        path: &str,
        body: String,
        wait: Option<u64>,
        key: Option<&str>,
    ) -> anyhow::Result<Value> {
        let mut request =
            self.request(Method::POST, path).header("content-type", "application/json").body(body);
        if let Some(seconds) = wait {
            request = request.header("prefer", format!("wait={seconds}"));
        }
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        read(&self.send(request).await?)
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.http.request(method, format!("{}{path}", self.server));
        match &self.token {
            Some(token) => request.bearer_auth(token.expose()),
            None => request,
        }
    }

    /// The answer as it was sent.
    async fn send(&self, request: RequestBuilder) -> anyhow::Result<String> {
        let answer = request.send().await.map_err(|error| self.unreachable(&error))?;
        let status = answer.status();
        let text = answer.text().await.map_err(|error| self.unreachable(&error))?;
        if status.is_success() {
            return Ok(text);
        }
        let value: Value = serde_json::from_str(&text).unwrap_or_default();
        let detail =
            value["detail"].as_str().map_or_else(|| format!("the server answered {status}"), str::to_owned);
        Err(exit_of(status).with(named_as_flag(detail)))
    }

    fn unreachable(&self, error: &reqwest::Error) -> anyhow::Error {
        if error.is_builder() {
            return Exit::Usage.with(format!("the request cannot be made: {error}"));
        }
        let no_answer = error.is_timeout() && !error.is_connect();
        let exit = if no_answer { Exit::Timeout } else { Exit::Unavailable };
        let mut why: &dyn std::error::Error = error;
        while let Some(cause) = why.source() {
            why = cause;
        }
        let server = &self.server;
        exit.with(format!(
            "{server} does not answer ({why}): start one with `dueline dev`, or name another with --server"
        ))
    }
}

/// What a body is refused for begins with the pointer of a field, which people gave as a flag.
fn named_as_flag(detail: String) -> String {
    let Some((pointer, rest)) = detail.strip_prefix('/').and_then(|detail| detail.split_once(' ')) else {
        return detail;
    };
    let (field, inner) = pointer
        .split_once('/')
        .map_or((pointer, String::new()), |(field, inner)| (field, format!(" /{inner}")));
    match field {
        // Verbs about a task take these without a flag.
        "queue" | "id" => detail,
        "labels" => format!("--label{inner} {rest}"),
        _ if field.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_') => {
            format!("--{}{inner} {rest}", field.replace('_', "-"))
        }
        _ => detail,
    }
}

/// The variable with the token itself; on the command line everyone could read it.
const TOKEN: &str = "DUELINE_TOKEN";

/// The token that is given, if one is.
fn token(file: Option<&Path>) -> anyhow::Result<Option<Hidden>> {
    let variable = std::env::var_os(TOKEN).filter(|token| !token.is_empty());
    let wrong = |what: &str| Err(Exit::Usage.with(what));
    match (file, variable) {
        (None, None) => Ok(None),
        (Some(_), Some(_)) => wrong(
            "a token is given twice: by --token-file or DUELINE_TOKEN_FILE, and by DUELINE_TOKEN: leave out one",
        ),
        (Some(file), None) => match read_secret(file) {
            Ok(token) => Ok(Some(Hidden::from(token))),
            Err(why) => wrong(&format!("--token-file or DUELINE_TOKEN_FILE {why}")),
        },
        (None, Some(token)) => match token.into_string() {
            Ok(token) => Ok(Some(Hidden::from(token))),
            Err(_) => wrong("DUELINE_TOKEN is not UTF-8"),
        },
    }
}

/// The entries of a list; none of what is no list.
pub(super) fn entries(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Reads an answer.
pub(super) fn read<'a, T: serde::Deserialize<'a>>(text: &'a str) -> anyhow::Result<T> {
    serde_json::from_str(text)
        .map_err(|error| Exit::Error.with(format!("the answer cannot be read: {error}")))
}

fn exit_of(status: StatusCode) -> Exit {
    match status.as_u16() {
        400 | 405 | 413 | 422 => Exit::Usage,
        401 | 403 => Exit::Denied,
        404 => Exit::NotFound,
        409 => Exit::Conflict,
        408 | 504 => Exit::Timeout,
        429 | 502 | 503 => Exit::Unavailable,
        _ => Exit::Error,
    }
}

/// `/v1/tasks/{queue}/{id}` with both percent-encoded.
pub(super) fn task_path(queue: &str, id: &str) -> anyhow::Result<String> {
    Ok(format!("/v1/tasks/{}/{}", segment(queue)?, segment(id)?))
}

/// A name as a segment of a path. Dots alone walk through a path however they are encoded: no client can send them.
pub(super) fn segment(name: &str) -> anyhow::Result<String> {
    if matches!(name, "." | "..") {
        let text = format!("{name:?} cannot stand in a URL: list its tasks with `dueline task list`");
        return Err(Exit::Usage.with(text));
    }
    Ok(crate::wire::row::percent_encode(name))
}

#[cfg(test)]
mod tests {
    use super::named_as_flag;

    #[test]
    fn a_field_that_is_refused_is_named_as_the_flag_it_came_from() {
        let told = |detail: &str| named_as_flag(detail.to_owned());
        assert_eq!(told("/due_at is no time."), "--due-at is no time.");
        assert_eq!(told("/retry/max is long."), "--retry /max is long.");
        assert_eq!(told("/labels/a is no text."), "--label /a is no text.");
        for other in ["/id is empty.", "/v1/tasks is gone", "No task /a of b.", "/", ""] {
            assert_eq!(told(other), other);
        }
    }
}
