//! The `dueline` binary.

/// Gives memory back after a burst, which the system's own keeps, and is faster with many threads.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> std::process::ExitCode {
    dueline::cli::run()
}
