//! The `dueline` binary.

fn main() {}
