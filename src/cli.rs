//! The command line: `dueline <noun> <verb>`. Data on stdout, all else on stderr; exit codes that scripts can rely on.

mod batch;
mod bench;
mod client;
mod completions;
mod config;
mod dead_letter;
mod dev;
mod doctor;
mod exit;
mod gate;
mod instance;
mod look;
mod migrate;
mod output;
mod serve;
mod shard;
mod task;
mod topics;
mod wait;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};

use exit::Exit;

/// An event-driven task scheduler: in order per queue, on a single owner, with fencing.
#[derive(Debug, Parser)]
#[command(name = "dueline", version, arg_required_else_help = true, propagate_version = true)]
#[command(after_help = "Example: dueline dev")]
pub(super) struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    noun: Noun,
}

/// What every verb takes.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Global {
    /// Config file, TOML.
    #[arg(long, global = true, env = "DUELINE_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where the HTTP interface of any instance answers; for client verbs.
    #[arg(
        long,
        global = true,
        env = "DUELINE_SERVER",
        value_name = "URL",
        default_value = "http://127.0.0.1:7420"
    )]
    server: String,
    /// File with the token for the HTTP interface; for client verbs.
    #[arg(long, global = true, env = "DUELINE_TOKEN_FILE", value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// How data is written.
    #[arg(short, long, global = true, value_enum, default_value = "text")]
    output: output::Format,
}

#[derive(Debug, Subcommand)]
enum Noun {
    Dev(dev::Args),
    Serve(serve::Args),
    #[command(subcommand)]
    Task(task::Verb),
    #[command(subcommand)]
    Queue(look::Queue),
    #[command(subcommand)]
    Gate(gate::Verb),
    #[command(subcommand)]
    DeadLetter(dead_letter::Verb),
    #[command(subcommand)]
    Batch(batch::Verb),
    #[command(subcommand)]
    Shard(shard::Verb),
    #[command(subcommand)]
    Instance(instance::Verb),
    #[command(subcommand)]
    Handler(look::Handler),
    #[command(subcommand)]
    Rejected(look::Rejected),
    #[command(subcommand)]
    Topics(topics::Verb),
    Migrate(migrate::Args),
    Doctor(doctor::Args),
    #[command(subcommand)]
    Config(config::Verb),
    Bench(Box<bench::Args>),
    Completions(completions::Args),
}

/// Runs the command line of this process.
pub fn run() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return exit::of_usage(&error),
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return exit::report(&anyhow::Error::from(error).context("the async runtime")),
    };
    let code = match runtime.block_on(dispatch(cli)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => exit::report(&error),
    };
    // A client library may be waiting for a server that does not answer: nobody waits for that.
    runtime.shutdown_timeout(LEFT_TO_END);
    code
}

/// Time for what is under way when the last word is said.
const LEFT_TO_END: Duration = Duration::from_secs(2);

async fn dispatch(cli: Cli) -> anyhow::Result<()> {
    let global = cli.global;
    match cli.noun {
        Noun::Dev(args) => dev::run(&global, args).await,
        Noun::Serve(args) => serve::run(&global, args).await,
        Noun::Task(verb) => task::run(&global, verb).await,
        Noun::Queue(verb) => look::queue(&global, verb).await,
        Noun::Gate(verb) => gate::run(&global, verb).await,
        Noun::DeadLetter(verb) => dead_letter::run(&global, verb).await,
        Noun::Batch(verb) => batch::run(&global, verb).await,
        Noun::Shard(verb) => shard::run(&global, verb).await,
        Noun::Instance(verb) => instance::run(&global, verb).await,
        Noun::Handler(verb) => look::handler(&global, verb).await,
        Noun::Rejected(verb) => look::rejected(&global, verb).await,
        Noun::Topics(verb) => topics::run(&global, verb).await,
        Noun::Migrate(args) => migrate::run(&global, args).await,
        Noun::Doctor(args) => doctor::run(&global, args).await,
        Noun::Config(verb) => config::run(&global, &verb),
        Noun::Bench(args) => bench::run(&global, *args).await,
        Noun::Completions(args) => completions::run(&args),
    }
}
