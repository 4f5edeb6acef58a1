//! What tests, benches and the chaos crate share: conformance suites of the ports.

pub mod log_conformance;
pub mod store_conformance;
