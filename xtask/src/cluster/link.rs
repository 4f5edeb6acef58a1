//! What the network from one place to another is like.

use std::fmt;

use anyhow::{Result, ensure};
use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

use super::plan::Place;
use super::router;
use super::state::Cluster;

/// One way from a place to another.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Link {
    pub(super) from: Place,
    pub(super) to: Place,
    /// Time of a packet on its way, in milliseconds, and how much more it may take.
    pub(super) delay_ms: f64,
    pub(super) jitter_ms: f64,
    /// Of a thousand packets so many never arrive.
    pub(super) loss_permille: f64,
    /// Megabits a second; `None` = as many as the machine carries.
    pub(super) mbit: Option<f64>,
    /// Nothing passes.
    pub(super) cut: bool,
}

impl Link {
    pub(super) fn plain(from: Place, to: Place) -> Link {
        Link { from, to, delay_ms: 0.0, jitter_ms: 0.0, loss_permille: 0.0, mbit: None, cut: false }
    }
}

impl fmt::Display for Link {
    fn fmt(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Link { from, to, delay_ms, jitter_ms, loss_permille, mbit, cut } = self;
        write!(text, "{} -> {}: {delay_ms} ms", from.word(), to.word())?;
        if *jitter_ms > 0.0 {
            write!(text, ", up to {jitter_ms} ms more")?;
        }
        if *loss_permille > 0.0 {
            write!(text, ", {loss_permille} of 1000 lost")?;
        }
        if let Some(mbit) = mbit {
            write!(text, ", {mbit} Mbit/s")?;
        }
        write!(text, "{}", if *cut { ", cut" } else { "" })
    }
}

/// Networks between data centres.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Wan {
    /// Round trips of 15, 25 and 40 ms
    #[default]
    Wide,
    /// No delay
    Near,
}

impl Wan {
    /// Every link between two places; home is near to all.
    pub(super) fn changes(self) -> Vec<Link> {
        let trips =
            [(Place::Dc1, Place::Dc2, 15.0), (Place::Dc1, Place::Dc3, 25.0), (Place::Dc2, Place::Dc3, 40.0)];
        let home = [Place::Dc1, Place::Dc2, Place::Dc3].map(|dc| (Place::Home, dc, 0.0));
        let one_way = |from, to, round_ms: f64| match self {
            Wan::Near => Link::plain(from, to),
            Wan::Wide => {
                Link { delay_ms: round_ms / 2.0, jitter_ms: round_ms / 40.0, ..Link::plain(from, to) }
            }
        };
        let all = trips.into_iter().chain(home);
        all.flat_map(|(a, b, ms)| [one_way(a, b, ms), one_way(b, a, ms)]).collect()
    }
}

/// A change that somebody asks for.
#[derive(Debug, Args)]
pub(super) struct Wanted {
    from: Place,
    to: Place,
    /// From the first to the second only
    #[arg(long)]
    one_way: bool,
    /// Time on the way, in milliseconds
    #[arg(long, value_name = "MS")]
    delay: Option<f64>,
    /// Up to so much more, in milliseconds
    #[arg(long, value_name = "MS")]
    jitter: Option<f64>,
    /// Of a thousand packets so many are lost
    #[arg(long, value_name = "PERMILLE")]
    loss: Option<f64>,
    /// Megabits a second; 0 = no bound
    #[arg(long)]
    mbit: Option<f64>,
    /// Nothing passes any more
    #[arg(long, conflicts_with = "open")]
    cut: bool,
    /// Packets pass again
    #[arg(long)]
    open: bool,
}

impl Wanted {
    /// The links as they are to be; those not named stay as they are.
    pub(super) fn changes(&self, cluster: &Cluster) -> Result<Vec<Link>> {
        ensure!(self.from != self.to, "within a place there is no network to change");
        for (name, value, most) in [
            ("delay", self.delay, 60_000.0),
            ("jitter", self.jitter, 60_000.0),
            ("loss", self.loss, 1_000.0),
            ("mbit", self.mbit, 1e6),
        ] {
            let fits = value.is_none_or(|value| (0.0..=most).contains(&value));
            ensure!(fits, "--{name} is a number from 0 to {most}");
        }
        let ways = [(self.from, self.to), (self.to, self.from)];
        let ways = if self.one_way { &ways[..1] } else { &ways[..] };
        let links = router::ask(&cluster.socket(), &[])?;
        Ok(links
            .into_iter()
            .filter(|link| ways.contains(&(link.from, link.to)))
            .map(|link| self.apply(link))
            .collect())
    }

    fn apply(&self, link: Link) -> Link {
        Link {
            delay_ms: self.delay.unwrap_or(link.delay_ms),
            jitter_ms: self.jitter.unwrap_or(link.jitter_ms),
            loss_permille: self.loss.unwrap_or(link.loss_permille),
            mbit: self.mbit.map_or(link.mbit, |mbit| (mbit > 0.0).then_some(mbit)),
            cut: (link.cut || self.cut) && !self.open,
            ..link
        }
    }
}
