//! Headers of forwarded and rejected records.
