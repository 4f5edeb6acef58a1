//! The producer API.
