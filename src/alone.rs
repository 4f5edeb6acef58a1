//! The engine, the model and the encodings as a crate of their own, without what performs: instructions are counted in it
//! (`counts/`).
//! Not a module of Dueline.

#![allow(dead_code, reason = "what only other rooms use")]
#![allow(
    clippy::eq_op,
    clippy::nonminimal_bool,
    clippy::overly_complex_bool_expr,
    reason = "no mistake is planted here: all of those words are `false`"
)]

// Their tests are Dueline's.
#[cfg(not(test))]
pub mod engine;
#[cfg(not(test))]
pub mod model;
#[cfg(not(test))]
pub mod log {
    //! The values of the log port alone.
    mod record;
    pub use record::{Header, Message, Record, Target, Topic};
}
#[cfg(not(test))]
pub mod wire;
