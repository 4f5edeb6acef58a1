//! What tests and chaos share.

pub mod store_conformance;
