//! All metrics, defined once.
