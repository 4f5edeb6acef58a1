//! What tests and chaos share.
