//! Resets of shards that are stopped: a person accepts that records of their logs are lost.
//!
//! A reset is an operation, as a gate is: the owner of the shard reads it in the store. It says of each shard what its owner says
//! that was lost, and is put on record only for shards that are stopped.

use std::collections::{BTreeMap, BTreeSet};

use axum::Json;
use axum::http::HeaderMap;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::model::{Change, Generation, Reset, Shard};

use super::body::Body;
use super::gates::field;
use super::params::NoParams;
use super::problem::Problem;
use super::tasks::read;
use super::views::ShardView;
use super::{Answer, App, shards};

/// Which shards go on. Exactly one of `shards` and `all`.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ResetBody {
    /// Their numbers: each has to be stopped.
    shards: Vec<u32>,
    /// Every shard that is stopped.
    all: bool,
    /// Who accepts the loss; with tokens it stands in brackets behind the name of the token.
    by: Option<String>,
    /// Why.
    reason: Option<String>,
}

/// A reset that is on record.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(super) struct ResetView {
    /// The shard.
    shard: u32,
    /// The generation that begins: versions and fencing tokens of it are higher than all before.
    generation: u32,
    /// The offset that is not there: what was accepted from it on and is not in the log any more never runs.
    wanted: u64,
    /// Where the shard goes on.
    first: u64,
}

/// The resets of a request.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(super) struct ResetPage {
    /// The operation that they are on record as.
    operation: u64,
    /// One for each shard.
    resets: Vec<ResetView>,
    /// Who did not say how their shards are; empty when all did. What is stopped there is not reset.
    missing: Vec<String>,
}

/// Accept that records of stopped shards are lost, and go on with what their logs hold now. A shard stops when its log has not the
/// record that comes next: the topic was made anew, or records were deleted before they were read. Tasks that it had taken in stay
/// and run; task events of decisions that were not published yet are lost with the records. The owner reads this within a second,
/// and `/v1/shards` says when the shard runs. It accepts the loss that is there now: a later one stops the shard again.
#[utoipa::path(post, path = "/v1/shards:reset", request_body = ResetBody, responses(
    (status = 200, body = ResetPage), (status = 409, body = Problem)))]
pub(super) async fn reset(
    app: App,
    _: NoParams,
    headers: HeaderMap,
    Body(body): Body,
) -> Answer<Json<ResetPage>> {
    let ResetBody { shards: named, all, by, reason } = read(&body)?;
    let named = named_shards(&named, all, app.node.cluster().shards)?;
    app.caller.note.about(told(named.as_ref()));
    let author = app.caller.author(by, reason)?;
    let (known, missing) = shards::everywhere(&app, &headers, true).await?;
    let stopped = to_reset(named, &known, &missing)?;
    let resets = stopped.into_iter().map(of_loss).collect::<Answer<Vec<(Reset, ResetView)>>>()?;
    let (resets, shown): (Vec<Reset>, Vec<ResetView>) = resets.into_iter().unzip();
    let now = app.node.service().clock().now().wall;
    let change = Change::ShardsReset(resets);
    let operation = app.node.service().gates().change(now, author, change).await?.number;
    Ok(Json(ResetPage { operation, resets: shown, missing }))
}

/// The reset of what a stopped shard lost, and how it is shown.
fn of_loss(view: &ShardView) -> Answer<(Reset, ResetView)> {
    let (Some(loss), Some(generation)) = (&view.stopped, view.generation.map(Generation)) else {
        let owner = view.owner.as_deref().unwrap_or("-");
        let detail = format!(
            "Shard {} is owned by {owner}, a build that knows no resets: drain or upgrade it, so that another takes the shard.",
            view.shard
        );
        return Err(Problem::conflict("owner_knows_no_reset", detail));
    };
    let next = generation.next().ok_or_else(|| {
        let (shard, times) = (view.shard, generation.0);
        Problem::conflict(
            "no_generation",
            format!("Shard {shard} was reset {times} times: there is no further generation."),
        )
    })?;
    let (shard, first, topic_id) = (Shard(view.shard), loss.first, loss.topic_id.clone());
    let next_offset = u64::try_from(view.applied + 1).unwrap_or(0);
    let shown = ResetView { shard: view.shard, generation: next.0, wanted: next_offset, first };
    Ok((Reset { shard, generation, next_offset, first, topic_id }, shown))
}

/// The shards that a body names; `None` = all that are stopped.
fn named_shards(named: &[u32], all: bool, shards: u32) -> Answer<Option<BTreeSet<u32>>> {
    match (named, all) {
        ([], true) => Ok(None),
        ([_, ..], false) => match named.iter().find(|shard| **shard >= shards) {
            None => Ok(Some(named.iter().copied().collect())),
            Some(shard) => {
                let detail = format!("has {shard}; the shards are 0 to {}", shards.saturating_sub(1));
                Err(field("/shards", detail))
            }
        },
        _ => {
            let detail = "The body says which shards are meant by exactly one of \"shards\" and \"all\".";
            Err(Problem::bad_request("invalid_body", detail).at(""))
        }
    }
}

/// Those of them that are stopped: all that were named, or nothing is done.
fn to_reset<'a>(
    named: Option<BTreeSet<u32>>,
    known: &'a BTreeMap<u32, ShardView>,
    missing: &[String],
) -> Answer<Vec<&'a ShardView>> {
    let is_stopped = |view: &&ShardView| view.phase == "stopped";
    let Some(named) = named else {
        let stopped: Vec<&ShardView> = known.values().filter(is_stopped).collect();
        if stopped.is_empty() {
            let unheard = if missing.is_empty() {
                String::new()
            } else {
                format!(" Not heard: {}.", missing.join("; "))
            };
            let detail = format!(
                "No shard says that it is stopped: there is no loss to accept. `dueline shard list` shows them.{unheard}"
            );
            return Err(Problem::conflict("nothing_stopped", detail));
        }
        return Ok(stopped);
    };
    let chosen = named.iter().filter_map(|shard| known.get(shard));
    let (stopped, others): (Vec<&ShardView>, Vec<&ShardView>) = chosen.partition(is_stopped);
    if others.is_empty() {
        return Ok(stopped);
    }
    let others: Vec<String> = others.iter().map(|view| format!("{} is {}", view.shard, view.phase)).collect();
    let detail = format!(
        "Only a shard that is stopped can be reset, or what is there would be taken in twice: shard {}. Nothing was changed.",
        others.join(", ")
    );
    Err(Problem::conflict("not_stopped", detail))
}

/// Shards, as the audit log names them.
fn told(named: Option<&BTreeSet<u32>>) -> String {
    named.map_or_else(
        || "all stopped shards".to_owned(),
        |named| format!("shards {}", named.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")),
    )
}

#[cfg(test)]
mod tests {
    use super::super::views::LossView;
    use super::*;

    fn view(shard: u32, phase: &str) -> (u32, ShardView) {
        let loss = || LossView { why: "gone".to_owned(), first: 2, topic_id: "t".to_owned() };
        let view = ShardView {
            shard,
            owner: None,
            epoch: 1,
            generation: Some(0),
            phase: phase.to_owned(),
            stopped: (phase == "stopped").then(loss),
            applied: 6,
            lag: None,
            watermark: None,
            tasks_in_memory: 0,
        };
        (shard, view)
    }

    #[test]
    fn a_body_names_shards_or_all_of_them() {
        assert_eq!(named_shards(&[], true, 4), Ok(None));
        assert_eq!(named_shards(&[3, 0, 3], false, 4), Ok(Some([0, 3].into())));
        for (named, all) in [(&[][..], false), (&[1][..], true)] {
            assert_eq!(named_shards(named, all, 4).expect_err("refused").code, "invalid_body");
        }
        let problem = named_shards(&[4], false, 4).expect_err("refused");
        assert!(problem.detail.contains("0 to 3"), "{}", problem.detail);
    }

    #[test]
    fn a_shard_that_is_not_stopped_is_not_reset_and_neither_are_the_others() {
        let known: BTreeMap<u32, ShardView> =
            [view(0, "running"), view(1, "stopped"), view(2, "unknown"), view(3, "stopped")].into();
        let chosen = |named: &[u32]| {
            let named = (!named.is_empty()).then(|| named.iter().copied().collect());
            let found = to_reset(named, &known, &[]).map_err(|problem| problem.code);
            found.map(|views| views.iter().map(|view| view.shard).collect::<Vec<_>>())
        };
        assert_eq!(chosen(&[]), Ok(vec![1, 3]));
        assert_eq!(chosen(&[3]), Ok(vec![3]));
        assert_eq!(chosen(&[1, 2]), Err("not_stopped".into()));
        let none = to_reset(None, &[view(0, "running")].into(), &["i-2".to_owned()]).expect_err("refused");
        assert!(none.code == "nothing_stopped" && none.detail.contains("i-2"), "{none:?}");
    }

    #[test]
    fn a_reset_says_what_its_owner_says_and_is_refused_when_that_says_too_little() {
        let (_, stopped) = view(3, "stopped");
        let (reset, shown) = of_loss(&stopped).expect("a reset");
        assert_eq!((reset.next_offset, reset.first, &*reset.topic_id), (7, 2, "t"));
        assert_eq!((shown.generation, shown.wanted, shown.first), (1, 7, 2));
        let code = |view: ShardView| of_loss(&view).expect_err("refused").code;
        assert_eq!(code(ShardView { generation: None, ..stopped.clone() }), "owner_knows_no_reset");
        assert_eq!(code(ShardView { stopped: None, ..stopped.clone() }), "owner_knows_no_reset");
        let last = ShardView { generation: Some(Generation::MAX.0), ..stopped };
        assert_eq!(code(last), "no_generation");
    }
}
