//! The `dueline` binary.

fn main() -> std::process::ExitCode {
    dueline::cli::run()
}
