//! HTTP callbacks.
