//! The product as its users meet it: processes of `dueline serve` on a real Kafka and a real Cassandra, records from
//! clients nobody here wrote, and an HTTP server that keeps its own record of what it was called for.
//!
//! `cargo xtask test` sets DUELINE_TEST_KAFKA, DUELINE_TEST_CASSANDRA, DUELINE_TEST_PYTHON, DUELINE_TEST_KCAT and
//! DUELINE_TEST_XTASK; without servers every test says loudly that it was skipped. DUELINE_LONG=1 keeps servers away
//! for a minute. DUELINE_TEST_SECURED_KAFKA, _CASSANDRA and _TLS name the pair with TLS, passwords and rights.
#![cfg(all(feature = "kafka", feature = "cassandra", feature = "testing"))]

mod access;
mod away;
mod batches;
mod bench;
mod cancels;
mod checker;
mod client;
mod clock;
mod control;
mod dead;
mod drains;
mod fates;
mod gates;
mod instance;
mod ledger;
mod limits;
mod lost_log;
mod poison;
mod retention;
mod secured;
mod servers;
mod setup;
mod sink;
mod site;
mod survive;
mod told;
mod topic;
mod twins;
#[path = "../walk/mod.rs"]
mod walk;
