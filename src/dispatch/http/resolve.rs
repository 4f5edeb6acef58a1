//! Which addresses a name may resolve to. Every answer is looked at, and the connection uses the ones that were: a name that
//! resolves to something else a moment later changes nothing.

use std::net::{IpAddr, SocketAddr};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// Resolves names as the machine does, without the answers that may not be called.
#[derive(Clone, Copy, Debug)]
pub(super) struct Checked {
    may: fn(&IpAddr) -> bool,
    /// One wrong answer is one too many.
    all: bool,
    otherwise: &'static str,
}

/// This machine alone.
pub(super) const LOOPBACK: Checked =
    Checked { may: IpAddr::is_loopback, all: true, otherwise: "not loopback" };

/// Anything but link-local addresses: those of clouds give credentials to whoever asks. A machine may have one beside others.
pub(super) const NOT_LINK_LOCAL: Checked = Checked {
    may: |ip| !is_link_local(ip),
    all: false,
    otherwise: "a link-local address, which is not called",
};

/// 169.254.0.0/16 and fe80::/10, also written as an IPv4 address in an IPv6 one.
pub(super) fn is_link_local(ip: &IpAddr) -> bool {
    match ip.to_canonical() {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

impl Checked {
    fn choose(self, name: &str, found: Vec<SocketAddr>) -> Result<Vec<SocketAddr>, String> {
        let (good, bad): (Vec<_>, Vec<_>) = found.into_iter().partition(|address| (self.may)(&address.ip()));
        match bad.first() {
            Some(other) if self.all || good.is_empty() => {
                Err(format!("{name} resolves to {}, {}", other.ip(), self.otherwise))
            }
            _ => Ok(good),
        }
    }
}

impl Resolve for Checked {
    fn resolve(&self, name: Name) -> Resolving {
        let checked = *self;
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            Ok(Box::new(checked.choose(name.as_str(), found)?.into_iter()) as Addrs)
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

    #[test]
    fn answers_that_may_not_be_called_are_left_out_or_refuse_the_name() {
        let of = |checked: Checked, found: &[&str]| {
            let found = found.iter().map(|text| SocketAddr::new(text.parse().expect("an address"), 0));
            let chosen = checked.choose("n", found.collect());
            chosen.map(|all| all.iter().map(|one| one.ip().to_string()).collect::<Vec<_>>().join(" "))
        };
        assert_eq!(of(NOT_LINK_LOCAL, &["fe80::1", "10.0.0.1"]), Ok("10.0.0.1".to_owned()));
        let why = "n resolves to 169.254.169.254, a link-local address, which is not called";
        assert_eq!(of(NOT_LINK_LOCAL, &["169.254.169.254"]), Err(why.to_owned()));
        assert_eq!(of(LOOPBACK, &["127.0.0.1", "::1"]), Ok("127.0.0.1 ::1".to_owned()));
        assert_eq!(
            of(LOOPBACK, &["127.0.0.1", "10.0.0.1"]),
            Err("n resolves to 10.0.0.1, not loopback".to_owned())
        );
    }

    #[tokio::test]
    async fn this_machine_is_resolved() {
        for checked in [LOOPBACK, NOT_LINK_LOCAL] {
            let found = checked.resolve("localhost".parse().expect("a name")).await;
            assert!(found.is_ok_and(|mut found| found.next().is_some()), "{checked:?}");
        }
    }
}
