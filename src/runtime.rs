//! Performs effects, decides nothing.
