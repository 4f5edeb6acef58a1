//! Handlers in this process.
