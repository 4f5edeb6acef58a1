//! What other instances of the installation make doubtful about this one, told in the log at start.
//!
//! Names and addresses are settings of each instance alone, so that two can have the same, or one that nobody else
//! reaches. Nothing is refused: an instance that just ended looks the same as one that runs.

use std::sync::Arc;

use crate::config::Config;
use crate::model::Wall;
use crate::runtime::clock::Clock;
use crate::store::{Instance, Store};

/// An instance seen within this time may be running, in milliseconds.
const SEEN_MS: u64 = 30_000;

/// Looks at the other instances. A store that does not answer is no reason not to start.
pub(super) async fn warn(config: &Config, store: &Arc<dyn Store>) {
    let now = Clock::start().now().wall;
    match store.instances().await {
        Ok(instances) => {
            for doubt in doubts(config, &instances, now) {
                tracing::warn!("{doubt}");
            }
        }
        Err(error) => tracing::debug!(%error, "other instances are not known"),
    }
}

fn doubts(config: &Config, instances: &[Instance], now: Wall) -> Vec<String> {
    let (name, own) = (&config.instance.name, &config.http.advertise);
    let seen = instances.iter().filter(|one| one.seen_within(now, SEEN_MS) && one.advertise != *own);
    let (namesakes, others): (Vec<&Instance>, Vec<&Instance>) = seen.partition(|one| one.name == *name);
    let namesake = namesakes.first().map(|one| {
        format!(
            "an instance named {name} was seen at {} within the last 30 s: if it runs, give each its own instance.name",
            one.advertise
        )
    });
    let unreachable = others.first().filter(|_| is_loopback(own)).map(|one| {
        format!("http.advertise is {own}, where {} on another machine does not reach this instance", one.name)
    });
    namesake.into_iter().chain(unreachable).collect()
}

fn is_loopback(url: &str) -> bool {
    let host = url.split_once("://").map_or(url, |(_, rest)| rest);
    host.starts_with("127.") || host.starts_with("localhost") || host.starts_with("[::1]")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instance(name: &str, advertise: &str, seen_at: i64) -> Instance {
        Instance {
            name: name.to_owned(),
            dc: "dc1".to_owned(),
            advertise: advertise.to_owned(),
            version: "0".to_owned(),
            started_at: Wall(0),
            seen_at: Wall(seen_at),
        }
    }

    #[test]
    fn a_namesake_and_an_address_that_others_do_not_reach_are_told() {
        let mut config = Config::dev("/tmp/d".as_ref(), std::net::SocketAddr::from(([127, 0, 0, 1], 7420)));
        config.instance.name = "host".to_owned();
        let told = |config: &Config, others: &[Instance]| doubts(config, others, Wall(100_000)).join("\n");
        let itself = instance("host", "http://127.0.0.1:7420", 99_000);
        assert_eq!(told(&config, std::slice::from_ref(&itself)), "", "it was restarted");
        assert_eq!(told(&config, &[instance("host", "http://127.0.0.1:7421", 1_000)]), "", "long ago");
        let both = told(&config, &[itself, instance("host", "http://127.0.0.1:7421", 99_000)]);
        assert!(both.contains("named host was seen at http://127.0.0.1:7421"), "{both}");
        let far = instance("other", "http://10.0.0.2:7420", 99_000);
        assert!(
            told(&config, std::slice::from_ref(&far)).contains("http.advertise is http://127.0.0.1:7420")
        );
        config.http.advertise = "http://10.0.0.1:7420".to_owned();
        assert_eq!(told(&config, &[far]), "");
    }
}
