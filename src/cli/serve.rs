//! `dueline serve`: one instance on Kafka and Cassandra.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context as _;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use super::{Exit, Global};
use crate::config::Config;
use crate::node::{self, Node};
use crate::server::Server;
use crate::{log, store};

/// Run an instance on Kafka and Cassandra.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: dueline serve --config dueline.toml")]
pub(super) struct Args {}

/// First and longest wait between tries to reach the servers.
const WAIT_FIRST: Duration = Duration::from_millis(500);
const WAIT_MAX: Duration = Duration::from_secs(5);
/// Time for answers under way once the node has stopped: whoever sent half a request is not waited for.
const LAST_ANSWERS: Duration = Duration::from_secs(2);

pub(super) async fn run(global: &Global, _args: Args) -> anyhow::Result<()> {
    let loaded = super::config::loaded(global, Vec::new())?;
    super::config::expect_servers(&loaded)?;
    let config = loaded.config;
    crate::telemetry::init(&config.log)?;
    super::config::warn(&config);
    #[cfg(feature = "testing")]
    plant()?;
    let server = Server::guarded(&config).map_err(|problems| Exit::Usage.with(problems.to_string()))?;
    let listener = bind(config.http.listen, "another http.listen").await?;
    let serving = || tracing::info!(listen = %config.http.listen, instance = config.instance.name, "serving");
    until_stopped(server, listener, start(&config), serving).await
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
