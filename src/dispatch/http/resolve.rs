//! Which addresses a name may resolve to. Every answer is looked at, and the connection uses the ones that were: a name that
//! resolves to something else a moment later changes nothing.

use std::net::{IpAddr, SocketAddr};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// Resolves names as the machine does, and refuses those with an answer that may not be called.
#[derive(Clone, Copy, Debug)]
pub(super) struct Checked {
    may: fn(&IpAddr) -> bool,
    otherwise: &'static str,
}

/// This machine alone.
pub(super) const LOOPBACK: Checked = Checked { may: IpAddr::is_loopback, otherwise: "not loopback" };

/// Anything but link-local addresses: those of clouds give credentials to whoever asks.
pub(super) const NOT_LINK_LOCAL: Checked =
    Checked { may: |ip| !is_link_local(ip), otherwise: "a link-local address, which is not called" };

/// 169.254.0.0/16 and fe80::/10, also written as an IPv4 address in an IPv6 one.
pub(super) fn is_link_local(ip: &IpAddr) -> bool {
    match ip.to_canonical() {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

impl Resolve for Checked {
    fn resolve(&self, name: Name) -> Resolving {
        let Checked { may, otherwise } = *self;
        Box::pin(async move {
            let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            match found.iter().find(|address| !may(&address.ip())) {
                None => Ok(Box::new(found.into_iter()) as Addrs),
                Some(other) => {
                    Err(format!("{} resolves to {}, {otherwise}", name.as_str(), other.ip()).into())
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_local_addresses_are_known_in_every_form() {
        let of = |text: &str| is_link_local(&text.parse().expect("an address"));
        for bad in ["169.254.169.254", "169.254.0.1", "fe80::1", "febf::1", "::ffff:169.254.169.254"] {
            assert!(of(bad), "{bad}");
        }
        for good in ["169.253.255.255", "10.0.0.1", "127.0.0.1", "::1", "fd00::1", "fec0::1", "2001:db8::1"] {
            assert!(!of(good), "{good}");
        }
    }

    #[tokio::test]
    async fn a_name_with_a_refused_answer_is_refused_and_says_why() {
        let asked = |checked: Checked| checked.resolve("localhost".parse().expect("a name"));
        assert!(asked(LOOPBACK).await.is_ok());
        assert!(asked(NOT_LINK_LOCAL).await.is_ok());
        let none = Checked { may: |_| false, otherwise: "not this" };
        let why = asked(none).await.err().expect("refused").to_string();
        assert!(why.starts_with("localhost resolves to ") && why.ends_with(", not this"), "{why}");
    }
}
