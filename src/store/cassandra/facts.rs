//! What the nodes say about themselves, each asked alone, and who has copies of what. Read for checks, never changed.
//!
//! Wants no right besides SELECT on the keyspace; where a node hides its settings, that is said in their place.

mod origin;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures::future::join_all;
use scylla::client::execution_profile::ExecutionProfile;
use scylla::client::session::Session;
use scylla::cluster::{ClusterState, Node as DriverNode};
use scylla::frame::response::result::TableSpec;
use scylla::policies::load_balancing::{NodeIdentifier, SingleTargetLoadBalancingPolicy};
use scylla::policies::retry::FallthroughRetryPolicy;
use scylla::response::query_result::QueryRowsResult;
use scylla::response::{PagingState, PagingStateResponse};
use scylla::statement::{Consistency, Statement};
use scylla::value::CqlTimestamp;
use uuid::Uuid;

use super::migrate::{self, MigrationStatus};
use super::replication::{self, Replication};
use super::session::{self, Profiles};
use super::singles::rows;
use super::{Options, errors};
use crate::model::{Drains, Wall};
use crate::store::Error;
use crate::wire::row as codec;
pub use origin::{Origin, keyspace_made};

/// Longest time that one node may take for one answer.
const NODE_TIMEOUT: Duration = Duration::from_secs(4);
/// Times that each node is asked for its clock; the quickest answer counts.
const CLOCK_TRIES: usize = 3;

/// A node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Where clients reach it, `host:port`.
    pub address: String,
    /// Its data centre.
    pub dc: String,
    /// Whether it answers, asked from here.
    pub is_up: bool,
}

/// Who has copies of what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Copies {
    /// All nodes.
    pub nodes: Vec<Node>,
    /// Copies of a row that make a quorum.
    pub quorum: usize,
    /// Every set of nodes, by index, that has the copies of some rows; none where they are not known.
    pub sets: BTreeSet<Vec<usize>>,
}

/// What a node says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// Its version.
    pub version: String,
    /// The version of the schema it has.
    pub schema: Uuid,
    /// This machine's wall time less the node's, in milliseconds, correct to half the time that asking took.
    pub clock_offset_ms: i64,
    /// Its settings by name; why not, when it does not tell.
    pub settings: Result<BTreeMap<String, String>, String>,
    /// How it came to its rows; `None` where no notes are kept; why not, when it does not tell.
    pub origin: Result<Option<Origin>, String>,
}

/// What the nodes say, and what is stored about the installation.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The keyspace's replication; `None` = there is no keyspace.
    pub replication: Option<Replication>,
    /// Who has copies.
    pub copies: Copies,
    /// What each node says, in the order of the nodes; why not.
    pub told: Vec<Result<Told, String>>,
    /// Every migration.
    pub migrations: Result<Vec<MigrationStatus>, String>,
    /// The stored number of shards; `None` before the first start.
    pub shards: Result<Option<u32>, String>,
    /// Names of instances, each with the time of its last heartbeat.
    pub instances: Result<Vec<(String, Wall)>, String>,
    /// What is drained.
    pub drains: Result<Drains, String>,
    /// When the last repair of all of the keyspace began that ended well. Asked only where a node may have wanted one.
    pub repaired: Result<Option<Wall>, String>,
}

/// Asks.
///
/// # Errors
/// [`Error::Unavailable`] when no node answers; [`Error::Misconfigured`] for wrong options or refused credentials.
pub async fn read(options: &Options) -> Result<Facts, Error> {
    options.check()?;
    let keyspace = &options.keyspace;
    let session = session::connect(options, &Profiles::new(options), &[keyspace]).await?;
    let state = session.get_cluster_state();
    let nodes = state.get_nodes_info();
    let told = join_all(nodes.iter().map(|node| ask_node(&session, node, keyspace)));
    let (told, migrations, shards, instances, drains) = tokio::join!(
        told,
        migrate::applied(&session, keyspace),
        shards(&session, keyspace),
        instances(&session, keyspace),
        drains(&session, keyspace)
    );
    let made = migrations.as_ref().ok().and_then(|migrations| keyspace_made(migrations));
    let mut origins = told.iter().flatten().filter_map(|told| told.origin.as_ref().ok()?.as_ref());
    let repaired = match made {
        Some(made) if origins.any(|origin| !origin.has_rows_since(made)) => {
            origin::repaired(&session, keyspace).await
        }
        _ => Ok(None),
    };
    let known = state.get_keyspace(keyspace).is_some();
    let replication = if known { Some(replication::read(&session, keyspace)?) } else { None };
    let mut copies = copies_in(&session, &state, keyspace);
    for (node, told) in copies.nodes.iter_mut().zip(&told) {
        node.is_up = told.is_ok();
    }
    let text = |error: Error| error.to_string();
    Ok(Facts {
        replication,
        copies,
        told: told.into_iter().map(|one| one.map_err(text)).collect(),
        migrations: migrations.map_err(text),
        shards: shards.map_err(text),
        instances: instances.map_err(text),
        drains: drains.map_err(text),
        repaired: repaired.map_err(text),
    })
}

/// Who has copies of the keyspace, and who is connected, as the driver knows it: nobody is asked.
pub(super) fn copies(session: &Session, keyspace: &str) -> Copies {
    copies_in(session, &session.get_cluster_state(), keyspace)
}

/// The same of one state of the cluster, with the nodes in its order.
fn copies_in(session: &Session, state: &ClusterState, keyspace: &str) -> Copies {
    let all = state.get_nodes_info();
    let nodes = all.iter().map(|node| Node {
        address: node.address.to_string(),
        dc: node.datacenter.clone().unwrap_or_default(),
        is_up: node.is_connected(),
    });
    let mut copies = Copies { nodes: nodes.collect(), ..Copies::default() };
    let (Some(found), Ok(replication)) = (state.get_keyspace(keyspace), replication::read(session, keyspace))
    else {
        return copies;
    };
    if replication.strategy != replication::STRATEGY {
        return copies;
    }
    copies.quorum = replication.quorum();
    let index: BTreeMap<Uuid, usize> = all.iter().enumerate().map(|(n, node)| (node.host_id, n)).collect();
    let locator = state.replica_locator();
    let table = TableSpec::borrowed(keyspace, "due");
    for (token, _) in locator.ring().iter() {
        let replicas = locator.replicas_for_token(*token, &found.strategy, None, &table);
        let mut set: Vec<usize> =
            replicas.into_iter().filter_map(|(node, _)| index.get(&node.host_id).copied()).collect();
        set.sort_unstable();
        copies.sets.insert(set);
    }
    // The driver does not know all of them: where a keyspace has tablets it learns them as it meets them.
    if copies.sets.iter().any(Vec::is_empty) {
        copies.sets.clear();
    }
    copies
}

async fn ask_node(
    session: &Session,
    node: &std::sync::Arc<DriverNode>,
    keyspace: &str,
) -> Result<Told, Error> {
    let target = SingleTargetLoadBalancingPolicy::new(NodeIdentifier::Node(node.clone()), None);
    let profile = ExecutionProfile::builder()
        .consistency(Consistency::One)
        .request_timeout(Some(NODE_TIMEOUT))
        .retry_policy(std::sync::Arc::new(FallthroughRetryPolicy::new()))
        .load_balancing_policy(target)
        .build()
        .into_handle();
    let ask = |text: String| {
        let mut statement = Statement::new(text);
        statement.set_execution_profile_handle(Some(profile.clone()));
        query(session, statement)
    };
    const WHO: &str = "SELECT release_version, schema_version, toUnixTimestamp(now()) FROM system.local";
    let mut quickest: Option<(i64, Told)> = None;
    for _ in 0..CLOCK_TRIES {
        let before = now_ms();
        let page = ask(WHO.to_owned()).await?;
        let after = now_ms();
        let (version, schema, node_ms) = rows::<(String, Uuid, i64)>("system.local", &page)?
            .pop()
            .ok_or_else(|| Error::Corrupt("system.local is empty".into()))?;
        let clock_offset_ms = (before + after) / 2 - node_ms;
        let told = Told { version, schema, clock_offset_ms, settings: Ok(BTreeMap::new()), origin: Ok(None) };
        if quickest.as_ref().is_none_or(|(took, _)| after - before < *took) {
            quickest = Some((after - before, told));
        }
    }
    let (_, mut told) = quickest.ok_or_else(|| Error::Corrupt("a node that was not asked".into()))?;
    let settings = ask("SELECT name, value FROM system_views.settings".to_owned()).await;
    told.settings = settings
        .and_then(|page| rows::<(String, Option<String>)>("system_views.settings", &page))
        .map(|pairs| pairs.into_iter().filter_map(|(name, value)| Some((name, value?))).collect())
        .map_err(|error| error.to_string());
    told.origin = origin::ask(keyspace, ask).await.map_err(|error| error.to_string());
    Ok(told)
}

async fn shards(session: &Session, keyspace: &str) -> Result<Option<u32>, Error> {
    let page = query(session, Statement::new(format!("SELECT shards FROM {keyspace}.cluster"))).await?;
    let found = rows::<(i32,)>("cluster", &page)?.pop();
    Ok(found.and_then(|(shards,)| u32::try_from(shards).ok()))
}

async fn instances(session: &Session, keyspace: &str) -> Result<Vec<(String, Wall)>, Error> {
    let text = format!("SELECT name, seen_at FROM {keyspace}.instance WHERE part = 0");
    let page = query(session, Statement::new(text)).await?;
    let found = rows::<(String, CqlTimestamp)>("instance", &page)?;
    Ok(found.into_iter().map(|(name, seen_at)| (name, Wall(seen_at.0))).collect())
}

/// Of all that people ever changed, which no statement can tell apart.
async fn drains(session: &Session, keyspace: &str) -> Result<Drains, Error> {
    let text = format!("SELECT number, id, data FROM {keyspace}.operation WHERE part = 0");
    let mut drains = Drains::default();
    pages(session, Statement::new(text), |page| {
        for (number, id, data) in rows::<(i64, Uuid, &str)>("operation", page)? {
            drains.apply(&codec::decode_operation(number as u64, id.as_u128(), data.as_bytes()));
        }
        Ok(())
    })
    .await?;
    Ok(drains)
}

/// Reads an answer of any length, page by page.
async fn pages(
    session: &Session,
    mut statement: Statement,
    mut each: impl FnMut(&QueryRowsResult) -> Result<(), Error>,
) -> Result<(), Error> {
    statement.set_is_idempotent(true);
    let mut next = Some(PagingState::start());
    while let Some(state) = next {
        let answer = session.query_single_page(statement.clone(), (), state).await;
        let (page, following) = answer.map_err(|error| errors::of_request(&error))?;
        let page = page.into_rows_result().map_err(|error| Error::Corrupt(error.to_string()))?;
        each(&page)?;
        next = match following {
            PagingStateResponse::HasMorePages { state } => Some(state),
            PagingStateResponse::NoMorePages => None,
        };
    }
    Ok(())
}

async fn query(session: &Session, mut statement: Statement) -> Result<QueryRowsResult, Error> {
    statement.set_is_idempotent(true);
    let answer = session.query_unpaged(statement, ()).await.map_err(|error| errors::of_request(&error))?;
    answer.into_rows_result().map_err(|error| Error::Corrupt(error.to_string()))
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
