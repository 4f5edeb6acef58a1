//! The two servers of a pair, and the two pairs of a checkout.

use super::secured::{self, Secured};
use super::state::{Cache, Run};
use super::{cassandra, jars, kafka};
use anyhow::Result;
use clap::ValueEnum;
use std::net::Ipv4Addr;
use std::path::PathBuf;

/// One of the two servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    Kafka,
    Cassandra,
}

impl Kind {
    pub(crate) const ALL: [Kind; 2] = [Kind::Kafka, Kind::Cassandra];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Kafka => "kafka",
            Kind::Cassandra => "cassandra",
        }
    }

    pub(super) fn bundle(self) -> &'static jars::Bundle {
        match self {
            Kind::Kafka => &jars::KAFKA,
            Kind::Cassandra => &jars::CASSANDRA,
        }
    }

    pub(super) fn answers(self, run: &Run, port: u16) -> bool {
        let at = (Ipv4Addr::LOCALHOST, port).into();
        let answer = match (Secured::of(run), self) {
            (Some(_), _) => secured::answers(at),
            (None, Kind::Kafka) => kafka::answers(at),
            (None, Kind::Cassandra) => cassandra::answers(at),
        };
        answer.unwrap_or(false)
    }
}

/// Servers that answer.
#[derive(Debug)]
pub(crate) struct Up {
    /// Kafka's bootstrap address, host:port.
    pub(crate) kafka: String,
    /// Cassandra's contact point, host:port.
    pub(crate) cassandra: String,
    /// What secured ones show and trust.
    pub(crate) tls: Option<PathBuf>,
    /// Those that did not run before.
    pub(crate) started: Vec<Kind>,
    pub(super) run: Run,
}

/// Which of the two pairs of a checkout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pair {
    /// Whoever asks is answered.
    Plain,
    /// TLS, passwords, rights.
    Secured,
}

impl Pair {
    /// Its run folder.
    pub(super) fn run(self, cache: &Cache) -> Result<Run> {
        match self {
            Pair::Plain => Run::open(cache, None),
            Pair::Secured => Run::open(cache, Some(&cache.secured_dir()?)),
        }
    }
}
