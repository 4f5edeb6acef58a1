//! The store on fjall.
