//! Encodings: the only room with serde. Schedule events, headers of forwarded and rejected records, stored rows, times.

pub mod blackout;
pub mod dead_letter;
pub mod event;
pub mod forward;
pub mod row;
pub mod task_event;
pub mod time;

/// Bytes as lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
