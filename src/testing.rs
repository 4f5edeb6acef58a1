//! What tests, benches and the chaos crate share: conformance suites of the ports, histories and their checker.

pub mod checker;
pub mod history;
pub mod log_conformance;
pub mod rng;
pub mod scheduler;
pub mod store_conformance;

pub use scheduler::TestScheduler;
