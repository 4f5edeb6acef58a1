//! `dueline completions`: a completion script for a shell.

use clap::CommandFactory;

/// Write a completion script for a shell.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: dueline completions bash > /etc/bash_completion.d/dueline")]
pub(super) struct Args {
    /// The shell.
    #[arg(value_enum)]
    shell: clap_complete::Shell,
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut super::Cli::command(), "dueline", &mut script);
    super::output::text(&String::from_utf8_lossy(&script))
}
