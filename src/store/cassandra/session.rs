//! The driver's session and its execution profiles: the only place where consistency, retries and timeouts are set.
//!
//! | profile | consistency | retried | shuffles replicas |
//! |---|---|---|---|
//! | rows | QUORUM | on other nodes | yes |
//! | owner read | SERIAL | on other nodes, and asked twice when slow | no |
//! | compare-and-set | QUORUM with SERIAL | never | no |

use std::sync::Arc;
use std::time::Duration;

use scylla::client::execution_profile::ExecutionProfile;
use scylla::client::session::{Session, TlsContext};
use scylla::client::session_builder::SessionBuilder;
use scylla::errors::{DbError, RequestAttemptError};
use scylla::policies::load_balancing::{DefaultPolicy, LoadBalancingPolicy};
use scylla::policies::retry::{
    FallthroughRetryPolicy, RequestInfo, RetryDecision, RetryPolicy, RetrySession,
};
use scylla::policies::speculative_execution::SimpleSpeculativeExecutionPolicy;
use scylla::statement::{Consistency, SerialConsistency};

use super::errors;
use super::options::Options;
use crate::store::Error;

/// Other nodes that one request is sent to after an error.
const RETRIES_MAX: u32 = 2;
/// How long connecting to one node may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// How long reading the cluster's metadata may take.
const METADATA_TIMEOUT: Duration = Duration::from_secs(5);
/// A connection that does not answer for two of these is given up.
const KEEPALIVE: Duration = Duration::from_secs(3);
/// How long nodes may take to agree on a changed schema.
pub(super) const SCHEMA_AGREEMENT_TIMEOUT: Duration = Duration::from_secs(60);

/// The three ways to run a statement.
pub(super) struct Profiles {
    pub(super) rows: ExecutionProfile,
    pub(super) owner_read: ExecutionProfile,
    pub(super) compare_and_set: ExecutionProfile,
}

impl Profiles {
    pub(super) fn new(options: &Options) -> Profiles {
        let balancing = |shuffle| -> Arc<dyn LoadBalancingPolicy> {
            DefaultPolicy::builder()
                .prefer_datacenter(options.local_dc.clone())
                .permit_dc_failover(true)
                .enable_shuffling_replicas(shuffle)
                .build()
        };
        let base = ExecutionProfile::builder()
            .consistency(Consistency::Quorum)
            .serial_consistency(Some(SerialConsistency::Serial))
            .request_timeout(Some(options.request_timeout))
            .load_balancing_policy(balancing(true))
            .retry_policy(Arc::new(OtherNodes));
        let again =
            SimpleSpeculativeExecutionPolicy { max_retry_count: 1, retry_interval: options.owner_ask_again };
        Profiles {
            rows: base.clone().build(),
            owner_read: base
                .clone()
                .consistency(Consistency::Serial)
                .load_balancing_policy(balancing(false))
                .speculative_execution_policy(Some(Arc::new(again)))
                .build(),
            compare_and_set: base
                .load_balancing_policy(balancing(false))
                .retry_policy(Arc::new(FallthroughRetryPolicy::new()))
                .build(),
        }
    }
}

/// Checks that no profile can fall back to the driver's defaults, which do not intersect across data centres.
///
/// # Errors
/// [`Error::Misconfigured`] names the profile.
pub(super) fn check_consistency(profiles: &Profiles) -> Result<(), Error> {
    let all = [
        ("rows", &profiles.rows, Consistency::Quorum),
        ("owner read", &profiles.owner_read, Consistency::Serial),
        ("compare-and-set", &profiles.compare_and_set, Consistency::Quorum),
    ];
    for (name, profile, wanted) in all {
        let found = (profile.get_consistency(), profile.get_serial_consistency());
        if found != (wanted, Some(SerialConsistency::Serial)) {
            return Err(Error::Misconfigured(format!(
                "profile {name} runs at {found:?} instead of {wanted:?}"
            )));
        }
        if profile.get_request_timeout().is_none() {
            return Err(Error::Misconfigured(format!("profile {name} waits for ever")));
        }
    }
    Ok(())
}

/// A session with the rows profile as its default; only metadata of `keyspaces` is kept.
pub(super) async fn connect(
    options: &Options,
    profiles: &Profiles,
    keyspaces: &[&str],
) -> Result<Session, Error> {
    let mut builder = SessionBuilder::new()
        .known_nodes(&options.nodes)
        .prefer_datacenter(options.local_dc.clone())
        .default_execution_profile_handle(profiles.rows.clone().into_handle_with_label("rows".into()))
        .connection_timeout(CONNECT_TIMEOUT)
        .keepalive_interval(KEEPALIVE)
        .keepalive_timeout(KEEPALIVE)
        .metadata_request_serverside_timeout(METADATA_TIMEOUT)
        .metadata_request_clientside_timeout(METADATA_TIMEOUT)
        .hostname_resolution_timeout(Some(CONNECT_TIMEOUT))
        .schema_agreement_timeout(SCHEMA_AGREEMENT_TIMEOUT)
        .keyspaces_to_fetch(keyspaces.iter().copied());
    if let Some((user, password)) = &options.credentials {
        builder = builder.user(user, password);
    }
    if let Some(tls) = &options.tls {
        builder = builder.tls_context(Some(TlsContext::Rustls023(tls.read()?)));
    }
    builder.build().await.map_err(|error| errors::of_connect(&error, &options.nodes))
}

/// Sends an idempotent request to other nodes when this one could not do it, [`RETRIES_MAX`] times.
#[derive(Debug)]
struct OtherNodes;

impl RetryPolicy for OtherNodes {
    fn new_session(&self) -> Box<dyn RetrySession> {
        Box::new(OtherNodesSession { retries: 0 })
    }
}

struct OtherNodesSession {
    retries: u32,
}

impl RetrySession for OtherNodesSession {
    fn decide_should_retry(&mut self, request: RequestInfo<'_>) -> RetryDecision {
        if !request.is_idempotent || self.retries == RETRIES_MAX || !another_may_do_it(request.error) {
            return RetryDecision::DontRetry;
        }
        self.retries += 1;
        RetryDecision::RetryNextTarget(None)
    }

    fn reset(&mut self) {
        self.retries = 0;
    }
}

fn another_may_do_it(error: &RequestAttemptError) -> bool {
    match error {
        RequestAttemptError::BrokenConnectionError(_) | RequestAttemptError::UnableToAllocStreamId => true,
        RequestAttemptError::DbError(error, _) => matches!(
            error,
            DbError::Unavailable { .. }
                | DbError::Overloaded
                | DbError::IsBootstrapping
                | DbError::ServerError
                | DbError::ReadTimeout { .. }
                | DbError::WriteTimeout { .. }
                | DbError::ReadFailure { .. }
                | DbError::WriteFailure { .. }
        ),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profiles() -> Profiles {
        Profiles::new(&Options::new(vec!["127.0.0.1:9042".into()], "dueline", "dc1"))
    }

    #[test]
    fn every_profile_is_quorum_and_serial() {
        assert!(check_consistency(&profiles()).is_ok());
        assert_eq!(profiles().owner_read.get_consistency(), Consistency::Serial);
    }

    #[test]
    fn a_profile_with_the_defaults_of_the_driver_is_refused() {
        let driver = ExecutionProfile::builder().build();
        for broken in [
            Profiles { rows: driver.clone(), ..profiles() },
            Profiles { owner_read: driver.clone(), ..profiles() },
            Profiles { compare_and_set: driver, ..profiles() },
        ] {
            assert!(matches!(check_consistency(&broken), Err(Error::Misconfigured(_))));
        }
    }

    #[test]
    fn only_errors_that_another_node_may_not_have_are_retried() {
        let unavailable = DbError::Unavailable { consistency: Consistency::Quorum, required: 2, alive: 1 };
        assert!(another_may_do_it(&RequestAttemptError::DbError(unavailable, String::new())));
        for error in [DbError::Invalid, DbError::Unauthorized, DbError::ConfigError, DbError::SyntaxError] {
            assert!(!another_may_do_it(&RequestAttemptError::DbError(error, String::new())));
        }
    }
}
