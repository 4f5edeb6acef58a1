//! The log on fjall.
