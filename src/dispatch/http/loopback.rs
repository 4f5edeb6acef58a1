//! Handlers named by a loopback URL, for `dueline dev`: the event says where to call.
//!
//! An event must not be able to make this process call anything but the machine it runs on, so: http only,
//! 127.0.0.1, `[::1]` or localhost only, every address that localhost resolves to is checked and the checked ones are
//! what the connection uses, no redirect, no proxy, no credentials.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use futures::future::BoxFuture;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use super::{
    ClientError, OpenAttempts, Options, StatusRules, Url, UrlError, build, builder, parse_url, post,
};
use crate::dispatch::{Call, Dispatch, Ending, one_line};
use crate::model::Outcome;

/// A handler name that is not a loopback URL.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoopbackError {
    /// Not a URL that can be called at all.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// Not http.
    #[error("has the scheme \"https\"; a URL as handler is plain http")]
    Scheme,
    /// Not this machine.
    #[error("names the host {0:?}; a URL as handler may only name 127.0.0.1, [::1] or localhost")]
    Host(String),
}

/// Reads a handler name as a loopback URL.
///
/// # Errors
/// Says why it is none.
pub fn check_loopback(name: &str) -> Result<Url, LoopbackError> {
    let url = parse_url(name)?;
    if url.scheme() != "http" {
        return Err(LoopbackError::Scheme);
    }
    match url.host_str() {
        Some("127.0.0.1" | "[::1]" | "localhost") => Ok(url),
        other => Err(LoopbackError::Host(other.unwrap_or_default().to_owned())),
    }
}

/// Calls handlers whose name is their loopback URL.
#[derive(Debug)]
pub struct Loopback {
    client: reqwest::Client,
}

impl Loopback {
    /// A dispatcher with connections of its own.
    ///
    /// # Errors
    /// The client cannot be set up.
    pub fn new() -> Result<Loopback, ClientError> {
        let builder = builder().tls_certs_only([]).dns_resolver(LoopbackOnly);
        Ok(Loopback { client: build(builder)? })
    }
}

impl Dispatch for Loopback {
    fn call(&self, call: Call) -> BoxFuture<'static, Ending> {
        let client = self.client.clone();
        match check_loopback(call.handler.as_str()) {
            Err(error) => {
                let error = one_line(&format!("the handler's URL {error}"));
                Box::pin(async move { Ending::failed(Outcome::Fatal, error) })
            }
            Ok(url) => {
                let options = Options {
                    url,
                    secrets: Vec::new(),
                    statuses: StatusRules::default(),
                    open_attempts: OpenAttempts::Wait,
                };
                Box::pin(post(client, Arc::new(options), call))
            }
        }
    }
}

#[derive(Debug)]
struct LoopbackOnly;

impl Resolve for LoopbackOnly {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            match found.iter().find(|address| !is_loopback(address)) {
                None => Ok(Box::new(found.into_iter()) as Addrs),
                Some(other) => {
                    Err(format!("{} resolves to {}, not loopback", name.as_str(), other.ip()).into())
                }
            }
        })
    }
}

fn is_loopback(address: &SocketAddr) -> bool {
    match address {
        SocketAddr::V4(v4) => *v4.ip() == Ipv4Addr::LOCALHOST,
        SocketAddr::V6(v6) => *v6.ip() == Ipv6Addr::LOCALHOST,
    }
}

#[cfg(test)]
mod tests {
    use super::{LoopbackError, check_loopback, is_loopback};

    #[test]
    fn only_this_machine_is_a_loopback_url() {
        for good in [
            "http://127.0.0.1:9000/notify",
            "http://[::1]:9000/",
            "http://localhost/x?y=1",
            "HTTP://LOCALHOST",
        ] {
            assert!(check_loopback(good).is_ok(), "{good}");
        }
        for host in [
            "http://example.com/",
            "http://localhost.example.com/",
            "http://127.0.0.1.example.com/",
            "http://10.0.0.1/",
            "http://169.254.169.254/latest",
            "http://[::ffff:127.0.0.1]/",
            "http://[fe80::1]/",
            "http://0.0.0.0/",
            "http://127.0.0.2/",
            "http://localhost./",
        ] {
            assert!(matches!(check_loopback(host), Err(LoopbackError::Host(_))), "{host}");
        }
        for other in
            ["notify", "", "ftp://127.0.0.1/", "file:///etc/passwd", "http://u:p@127.0.0.1/", "http://"]
        {
            assert!(matches!(check_loopback(other), Err(LoopbackError::Url(_))), "{other}");
        }
        assert_eq!(check_loopback("https://127.0.0.1/"), Err(LoopbackError::Scheme));
    }

    #[test]
    fn addresses_written_in_another_way_are_read_as_what_they_are() {
        assert!(check_loopback("http://2130706433/").is_ok(), "127.0.0.1 as one number");
        assert!(check_loopback("http://0x7f.1/").is_ok(), "127.0.0.1 in hex");
        assert!(check_loopback("http://0xa000001/").is_err(), "10.0.0.1 in hex");
    }

    #[test]
    fn a_resolved_address_off_this_machine_is_seen() {
        for (address, loopback) in [
            ("127.0.0.1:0", true),
            ("[::1]:0", true),
            ("10.1.2.3:0", false),
            ("[::ffff:127.0.0.1]:0", false),
            ("[fd00::1]:0", false),
        ] {
            assert_eq!(is_loopback(&address.parse().expect("an address")), loopback, "{address}");
        }
    }
}
