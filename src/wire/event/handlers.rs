//! Which handlers an event may name.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr};

use crate::model::HeadPolicies;

/// The handlers of an installation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Handlers {
    /// Names in the config.
    pub names: BTreeSet<String>,
    /// Whether an event may give an http URL of this very machine in place of a name.
    pub loopback_urls: bool,
    /// What a failed or dead task does to its queue where its event does not say.
    pub heads: HeadPolicies,
}

impl Handlers {
    /// Whether an event may name this handler.
    pub fn knows(&self, handler: &str) -> bool {
        self.names.contains(handler) || (self.loopback_urls && is_loopback_url(handler))
    }
}

/// Whether `handler` is an http URL whose host is `localhost`, 127.0.0.0/8 or `[::1]`.
///
/// Takes only what every URL parser reads in the same way: no user info, no backslash, no white space, no short
/// forms of addresses. Who calls it still has to check what `localhost` resolves to.
pub fn is_loopback_url(handler: &str) -> bool {
    let Some(rest) = handler.strip_prefix("http://") else { return false };
    let plain = rest.bytes().all(|byte| byte.is_ascii_graphic() && !b"\\<>\"^`{|}".contains(&byte));
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (authority, None),
    };
    let port_is_fine = port.is_none_or(|port| {
        port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|port| port > 0)
    });
    plain && port_is_fine && is_loopback_host(host)
}

fn is_loopback_host(host: &str) -> bool {
    let ipv6 = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    host == "localhost"
        || host.parse::<Ipv4Addr>().is_ok_and(|address| address.is_loopback())
        || ipv6.is_some_and(|host| host.parse::<Ipv6Addr>().is_ok_and(|address| address.is_loopback()))
}

#[cfg(test)]
mod tests {
    use super::is_loopback_url;

    #[test]
    fn a_url_of_this_machine_is_told_from_any_other() {
        for url in [
            "http://127.0.0.1:9000/notify?x=1#y",
            "http://127.8.9.1",
            "http://localhost:1/",
            "http://[::1]:9000/",
            "http://[::1]",
        ] {
            assert!(is_loopback_url(url), "{url}");
        }
        for url in [
            "notify",
            "http://",
            "http:///x",
            "https://127.0.0.1/",
            "HTTP://127.0.0.1/",
            "http://example.com/",
            "http://127.0.0.1.example.com/",
            "http://127.1/",
            "http://0x7f.0.0.1/",
            "http://2130706433/",
            "http://0.0.0.0/",
            "http://10.0.0.1/",
            "http://127.0.0.1@example.com/",
            "http://localhost@example.com",
            "http://example.com#@127.0.0.1",
            "http://127.0.0.1\\@example.com/",
            "http://127.0.0.1:/",
            "http://127.0.0.1:0/",
            "http://127.0.0.1:+80/",
            "http://127.0.0.1:99999/",
            "http://127.0.0.1:80:80/",
            "http://127.0.0.1/a b",
            "http://127.0.0.1/\n",
            "http://localhost./",
            "http://[::ffff:127.0.0.1]/",
            "http://[::1",
            "http://::1/",
            "file:///etc/passwd",
        ] {
            assert!(!is_loopback_url(url), "{url}");
        }
    }
}
