//! Handlers named by a loopback URL, for `dueline dev`: the event says where to call.
//!
//! An event must not be able to make this process call anything but the machine it runs on, so: http only,
//! 127.0.0.0/8, `[::1]` or localhost only, every address that localhost resolves to is checked and the checked ones are
//! what the connection uses, no redirect, no proxy, no credentials.

use std::net::IpAddr;
use std::sync::Arc;

use futures::future::BoxFuture;

use super::{ClientError, Options, StatusRules, Url, UrlError, build, builder, parse_url, post, resolve};
use crate::dispatch::{Call, Dispatch, Ending, one_line};
use crate::model::Outcome;
use crate::wire::event::is_loopback_url;

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
    #[error(
        "names the host {0:?}; a URL as handler may only name 127.0.0.1, [::1] or localhost, written plainly"
    )]
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
    let loopback = match url.host_str() {
        Some("localhost") => true,
        Some(host) => host.trim_matches(['[', ']']).parse().is_ok_and(|ip: IpAddr| ip.is_loopback()),
        None => false,
    };
    if loopback && is_loopback_url(name) {
        Ok(url)
    } else {
        Err(LoopbackError::Host(url.host_str().unwrap_or_default().to_owned()))
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
        let builder = builder().tls_certs_only([]).dns_resolver(resolve::LOOPBACK);
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
                let options = Options { url, secrets: Vec::new(), statuses: StatusRules::default() };
                Box::pin(post(client, Arc::new(options), call))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{LoopbackError, check_loopback};

    #[test]
    fn only_this_machine_is_a_loopback_url() {
        for good in ["http://127.0.0.1:9000/notify", "http://[::1]:9000/", "http://localhost/x?y=1"] {
            assert!(check_loopback(good).is_ok(), "{good}");
        }
        for host in [
            "http://example.com/",
            "http://localhost.example.com/",
            "http://127.0.0.1.example.com/",
            "http://10.0.0.1/",
            "http://[::ffff:127.0.0.1]/",
            "http://0.0.0.0/",
            "http://localhost./",
        ] {
            assert!(matches!(check_loopback(host), Err(LoopbackError::Host(_))), "{host}");
        }
        for other in [
            "notify",
            "",
            "ftp://127.0.0.1/",
            "file:///etc/passwd",
            "http://u:p@127.0.0.1/",
            "http://",
            "http://169.254.169.254/latest",
            "http://[fe80::1]/",
        ] {
            assert!(matches!(check_loopback(other), Err(LoopbackError::Url(_))), "{other}");
        }
        assert_eq!(check_loopback("https://127.0.0.1/"), Err(LoopbackError::Scheme));
    }

    #[test]
    fn an_address_written_in_another_way_is_refused() {
        for odd in [
            "http://2130706433/",
            "http://0x7f.1/",
            "http://0xa000001/",
            "HTTP://127.0.0.1/",
            "http://LOCALHOST/",
        ] {
            assert!(check_loopback(odd).is_err(), "{odd}");
        }
    }
}
