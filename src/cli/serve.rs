//! `dueline serve`: one instance, on Kafka and Cassandra or on a folder of its own.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use super::{Exit, Global};
use crate::config::{Config, Loaded, load_embedded};
use crate::node::{self, Node};
use crate::server::Server;
use crate::{log, store};

/// Run an instance on Kafka and Cassandra; or, with --embedded, the only one, on a folder and without servers.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: dueline serve --config dueline.toml\n\
Example without servers: dueline serve --embedded ./dueline-data --config dueline.toml")]
pub(super) struct Args {
    /// Keep everything in this folder: no Kafka, no Cassandra, 8 shards, always. One process at a time has it, and nobody takes
    /// over. Handlers are those of the config, of kind http, topic or log; who may ask is as without this flag.
    #[arg(long, value_name = "DIR")]
    embedded: Option<PathBuf>,
}

/// First and longest wait between tries to reach the servers.
const WAIT_FIRST: Duration = Duration::from_millis(500);
const WAIT_MAX: Duration = Duration::from_secs(5);
/// Time for answers under way once the node has stopped: whoever sent half a request is not waited for.
const LAST_ANSWERS: Duration = Duration::from_secs(2);

pub(super) async fn run(global: &Global, args: Args) -> anyhow::Result<()> {
    let (loaded, ignored) = match &args.embedded {
        None => (on_servers(global)?, Vec::new()),
        Some(dir) => on_folder(global, dir)?,
    };
    let config = loaded.config;
    crate::telemetry::init(&config.log)?;
    super::config::warn(&config);
    super::config::warn_of_ignored(&ignored, "serve --embedded");
    #[cfg(feature = "testing")]
    plant()?;
    let server = Server::guarded(&config).map_err(|problems| Exit::Usage.with(problems.to_string()))?;
    let listener = bind(config.http.listen, "another http.listen").await?;
    let serving = || tracing::info!(listen = %config.http.listen, instance = config.instance.name, "serving");
    until_stopped(server, listener, start(&config), serving).await
}

fn on_servers(global: &Global) -> anyhow::Result<Loaded> {
    let loaded = super::config::loaded(global, Vec::new())?;
    super::config::expect_servers(&loaded)?;
    Ok(loaded)
}

/// The configuration of an instance without servers, and the keys that are of no use to it.
fn on_folder(global: &Global, dir: &Path) -> anyhow::Result<(Loaded, Vec<String>)> {
    let sources = super::config::sources(global, Vec::new())?;
    let (loaded, ignored) =
        load_embedded(sources, dir).map_err(|problems| Exit::Usage.with(problems.to_string()))?;
    super::config::expect_embedded(&loaded)?;
    Ok((loaded, ignored))
}

/// A build for tests makes the mistake that `TESTING_PLANT` names: chaos shows with it that it finds mistakes.
#[cfg(feature = "testing")]
fn plant() -> anyhow::Result<()> {
    let Ok(name) = std::env::var("TESTING_PLANT") else { return Ok(()) };
    let plant = crate::engine::plant::set_everywhere(&name).map_err(|why| Exit::Usage.with(why))?;
    tracing::warn!(mistake = name, "this instance is broken on purpose: {}", plant.what());
    Ok(())
}

/// Starts as soon as the servers answer; what needs a person is an error at once.
async fn start(config: &Config) -> anyhow::Result<Node> {
    if let Some(embedded) = &config.embedded {
        tracing::info!(data = %embedded.data_dir.display(), "opening the folder");
        return Ok(Node::builder(config.clone()).start().await?);
    }
    let mut wait = WAIT_FIRST;
    let brokers = config.kafka.brokers.as_deref().unwrap_or_default();
    tracing::info!(brokers, nodes = config.cassandra.nodes.join(","), "connecting to Kafka and Cassandra");
    loop {
        match try_start(config).await? {
            Ok(node) => return Ok(node),
            Err(error) if is_away(&error) => {
                tracing::warn!(%error, "waiting for Kafka and Cassandra");
                tokio::time::sleep(wait).await;
                wait = (wait * 2).min(WAIT_MAX);
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// The outer error is that topics are not as they have to be.
async fn try_start(config: &Config) -> anyhow::Result<Result<Node, node::Error>> {
    match bad_topics(config).await {
        Err(error) => Ok(Err(error.into())),
        Ok(bad) if bad.is_empty() => Ok(Node::builder(config.clone()).start().await),
        Ok(bad) => {
            let bad = bad.join("\n");
            Err(Exit::Error
                .with(format!("topics are not as they have to be (`dueline topics check`):\n{bad}")))
        }
    }
}

/// Topics that are missing or would break a promise: they are never made or changed silently. Brokers that are down are
/// no reason to wait: what is stored runs on time without them.
#[cfg(feature = "kafka")]
async fn bad_topics(config: &Config) -> Result<Vec<String>, log::Error> {
    use crate::log::kafka::topics::{Level, check, plan};
    let plan = plan(&node::wanted_topics(config));
    let mut bad = Vec::new();
    for finding in check(&node::kafka_options(config), &plan).await? {
        match finding.level {
            Level::Fail if !finding.passes => bad.push(format!("{}: {}", finding.what, finding.todo)),
            Level::Fail | Level::Warn => tracing::warn!(todo = finding.todo, "{}", finding.what),
            Level::Ok => {}
        }
    }
    Ok(bad)
}

#[cfg(not(feature = "kafka"))]
async fn bad_topics(_config: &Config) -> Result<Vec<String>, log::Error> {
    Ok(Vec::new())
}

fn is_away(error: &node::Error) -> bool {
    matches!(
        error,
        node::Error::Store(store::Error::Unavailable(_)) | node::Error::Log(log::Error::Unavailable(_))
    )
}

/// Takes the address before anything else is done.
pub(super) async fn bind(address: SocketAddr, instead: &str) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address)
        .await
        .with_context(|| format!("cannot listen on {address}: is another instance running? choose {instead}"))
        .map_err(|error| Exit::Error.with(format!("{error:#}")))
}

/// Answers from now on, with the node as soon as it has started, which `opened` is told; when the process is told to
/// stop, stops in order.
pub(super) async fn until_stopped(
    server: Server,
    listener: TcpListener,
    start: impl Future<Output = anyhow::Result<Node>>,
    opened: impl FnOnce(),
) -> anyhow::Result<()> {
    let (stop, stopping) = tokio::sync::oneshot::channel::<()>();
    let mut served = {
        let server = server.clone();
        tokio::spawn(async move {
            let stopping = async {
                let _ = stopping.await;
            };
            server.run(listener, stopping).await
        })
    };
    let mut told = std::pin::pin!(stop_signal()?);
    let node = tokio::select! {
        node = start => node?,
        () = &mut told => return Ok(()),
    };
    server.open(node.clone());
    opened();
    told.await;
    let again = stop_signal()?;
    eprintln!("stopping: waiting for running calls; once more to exit at once");
    server.turn_away();
    let in_order = async {
        // Who asks what becomes of the shards is answered until they are let go.
        node.let_go().await;
        let _ = stop.send(());
        node.finish().await;
        tokio::time::timeout(LAST_ANSWERS, &mut served).await.unwrap_or(Ok(Ok(())))
    };
    tokio::select! {
        served = in_order => Ok(served??),
        () = again => Err(Exit::Error.with("stopped at once: calls under way are left to their deadline")),
    }
}

/// Waits for SIGTERM or Ctrl-C.
fn stop_signal() -> anyhow::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

#[cfg(test)]
mod tests {
    use super::Args;
    use crate::config::EMBEDDED_SHARDS;

    #[test]
    fn the_help_says_how_many_shards_a_folder_has() {
        let command = <Args as clap::Args>::augment_args(clap::Command::new("serve"));
        let help = command.get_arguments().find_map(|argument| argument.get_help().map(ToString::to_string));
        assert!(help.is_some_and(|help| help.contains(&format!("{EMBEDDED_SHARDS} shards"))));
    }
}
