//! Waiting for what becomes of the shards.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::Exit;
use super::client::{Client, entries};

/// Time between two looks at the shards.
const LOOK_EVERY: Duration = Duration::from_millis(500);

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
