//! Waiting for what becomes of the shards.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::Exit;
use super::client::{Client, entries};
use crate::wire::time::parse_duration_ms;

/// Time between two looks at the shards.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// How long a verb waits that has a flag `--no-wait`.
#[derive(Debug, clap::Args)]
pub(super) struct Patience {
    /// Wait at most so long.
    #[arg(
        long,
        value_name = "DURATION",
        allow_hyphen_values = true,
        default_value = "2m",
        conflicts_with = "no_wait"
    )]
    timeout: String,
}

impl Patience {
    /// # Errors
    /// It is no duration.
    pub(super) fn duration(&self) -> anyhow::Result<Duration> {
        let ms = parse_duration_ms(&self.timeout)
            .map_err(|why| Exit::Usage.with(format!("--timeout {:?} {why}", self.timeout)))?;
        Ok(Duration::from_millis(ms))
    }
}

/// Looks at the shards until they are as they are to be; `look` says whether they are, and how they are in words. Says that on
/// stderr whenever it changes, and gives the last words. A question that fails is asked again.
///
/// # Errors
/// They are not until then; `stands` = what is on record all the same.
pub(super) async fn for_shards(
    client: &Client,
    until: Instant,
    look: impl Fn(&[Value]) -> (bool, String),
    stands: &str,
) -> anyhow::Result<String> {
    let mut said = None;
    loop {
        let words = match client.get("/v1/shards", &[]).await.map(|page| look(entries(&page["shards"]))) {
            Ok((true, words)) => return Ok(words),
            Ok((false, words)) => words,
            Err(error) => error.to_string(),
        };
        if Instant::now() >= until {
            return Err(Exit::Timeout.with(format!("{words}: {stands}")));
        }
        if said.as_ref() != Some(&words) {
            eprintln!("{words}");
            said = Some(words);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
