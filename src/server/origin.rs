//! From where may be asked, with tokens and without: by programs, and by the pages of this server itself.
//!
//! A web page that someone on this machine looks at can send requests here, either from its own site (the browser then
//! names it as `Origin`) or under a name of its own that it lets point here (`Host` then has that name). Both are
//! refused. An IP address as host is nobody's name, and is taken. Knows nothing of paths and bodies.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::{HOST, ORIGIN};
use axum::http::uri::Authority;
use axum::middleware::Next;
use axum::response::Response;

use crate::config::Http;

use super::problem::Problem;
use super::{Answer, Shared};

/// Refuses what a foreign web page may have sent.
pub(super) async fn check(
    State(shared): State<Arc<Shared>>,
    request: Request,
    next: Next,
) -> Answer<Response> {
    if let Some(node) = shared.node.get() {
        let text = |name| request.headers().get(name).map(|value| String::from_utf8_lossy(value.as_bytes()));
        let host = request.uri().authority().map(|host| host.as_str().into()).or_else(|| text(HOST));
        expect_own(&node.config().http, host.as_deref(), text(ORIGIN).as_deref())?;
    }
    Ok(next.run(request).await)
}

fn expect_own(http: &Http, host: Option<&str>, origin: Option<&str>) -> Result<(), Problem> {
    let forbidden = |code: &str, detail: String| Err(Problem::new(StatusCode::FORBIDDEN, code, detail));
    if let Some(host) = host.filter(|host| !is_own(http, host)) {
        let shown: String = host.chars().take(100).collect();
        let detail = format!(
            "This server does not know {shown:?} as a name of its own: ask by its address, or add the name to http.hosts."
        );
        return forbidden("foreign_host", detail);
    }
    if let Some(origin) = origin.filter(|origin| !is_same(origin, host)) {
        let shown: String = origin.chars().take(100).collect();
        let detail = format!("Web pages of {shown:?} may not ask this server: ask from a program.");
        return forbidden("foreign_origin", detail);
    }
    Ok(())
}

fn is_own(http: &Http, host: &str) -> bool {
    let Ok(authority) = host.parse::<Authority>() else { return false };
    let name = authority.host().trim_start_matches('[').trim_end_matches(']');
    let same = |other: &str| name.eq_ignore_ascii_case(other);
    name.parse::<IpAddr>().is_ok()
        || same("localhost")
        || http.advertised_host().is_some_and(|host| same(&host))
        || http.hosts.iter().any(|host| same(host))
}

/// Whether a page of this origin came from this server.
fn is_same(origin: &str, host: Option<&str>) -> bool {
    let authority = origin.split_once("://").map(|(_, rest)| rest);
    authority.zip(host).is_some_and(|(origin, host)| origin.eq_ignore_ascii_case(host))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(host: Option<&str>, origin: Option<&str>) -> String {
        let http = Http {
            listen: std::net::SocketAddr::from(([127, 0, 0, 1], 7420)),
            advertise: "http://dl-1.example:7420/".to_owned(),
            hosts: vec!["dueline.example".to_owned()],
            access: crate::config::Access::Open,
            is_open_on_purpose: false,
        };
        expect_own(&http, host, origin).map_or_else(|problem| problem.code, |()| "taken".to_owned())
    }

    #[test]
    fn only_names_of_its_own_and_addresses_are_taken_as_host() {
        for host in [
            "127.0.0.1:7420",
            "localhost:7420",
            "LOCALHOST",
            "[::1]:7420",
            "10.0.0.7:80",
            "dl-1.example:7420",
            "Dueline.example",
        ] {
            assert_eq!(asked(Some(host), None), "taken", "{host}");
        }
        for host in
            ["attacker.example:7420", "localhost.attacker.example", "127.0.0.1.attacker.example", "a b", ""]
        {
            assert_eq!(asked(Some(host), None), "foreign_host", "{host}");
        }
        assert_eq!(asked(None, None), "taken");
    }

    #[test]
    fn only_its_own_pages_may_ask() {
        assert_eq!(asked(Some("localhost:7420"), Some("http://localhost:7420")), "taken");
        for origin in
            ["http://attacker.example", "http://localhost:9999", "null", "", "http://127.0.0.1:7420"]
        {
            assert_eq!(asked(Some("localhost:7420"), Some(origin)), "foreign_origin", "{origin}");
        }
    }
}
