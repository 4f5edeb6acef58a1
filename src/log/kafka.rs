//! The log on Kafka: one member of the consumer group and a client beside it that reads, one idempotent producer, the topics' plan.
//!
//! ```text
//! engine ── seek, fetch ──▶ Consumer ── Command ──▶ member (own thread: polls both clients, rebalances, pauses)
//!        ◀─ Assignment ───   board of shard buffers ◀── records ──┘
//!        ── end ─────────▶ leaders (own thread: asks first and last offsets, topic id)
//!        ── produce ─────▶ Producer ── enqueued before the call returns ──▶ delivery thread answers
//! ```
//! Rules: no committed offset is ever believed, a partition delivers nothing before its `seek`; callbacks run on the
//! member's thread and wait for nobody; every buffer has a bound; an error of the client library is never dropped.

mod board;
mod consumer;
mod context;
mod error;
pub mod facts;
mod leaders;
mod member;
mod options;
mod producer;
#[allow(unsafe_code)]
mod raw;
mod reason;
mod recall;
mod shared;
pub mod topics;

pub use consumer::Consumer;
pub use options::{Options, Protocol};
pub use producer::Producer;
