//! `dueline dev`: everything in one process, no servers, durable.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::Global;
use crate::config::Config;
use crate::node::Node;

/// Run everything in this process: no Kafka, no Cassandra, no config; tasks survive restarts.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: dueline dev --data ./dueline-data")]
pub(super) struct Args {
    /// Where everything is kept.
    #[arg(long, value_name = "DIR", default_value = "./dueline-data")]
    data: PathBuf,
    /// Where the HTTP interface listens.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:7420")]
    listen: SocketAddr,
}

pub(super) async fn run(_global: &Global, args: Args) -> anyhow::Result<()> {
    let mut config = Config::dev(&args.data, args.listen);
    crate::telemetry::init(&config.log)?;
    let listener = super::serve::bind(args.listen).await?;
    let address = listener.local_addr()?;
    config.http.listen = address;
    config.http.advertise = format!("http://{address}");
    let start = async { Ok(Node::builder(config).start().await?) };
    let greet = || eprintln!("{}", greeting(address, &args.data));
    super::serve::until_stopped(listener, start, greet).await
}

fn greeting(address: SocketAddr, data: &std::path::Path) -> String {
    format!(
        "dueline dev: listening on http://{address}, keeping everything in {data}\n\
         \n\
         Schedule a task that runs in 5 seconds (it shows up here as a log line):\n\
         \n  curl -sS http://{address}/v1/tasks -H 'content-type: application/json' \\\n    \
         -d '{{\"queue\":\"greetings\",\"id\":\"hello\",\"delay\":\"5s\",\"handler\":\"log\",\"payload\":{{\"text\":\"hello\"}}}}'\n\
         \n  dueline task schedule --server http://{address} --queue greetings --delay 5s --handler log --payload '{{\"text\":\"hi\"}}'\n\
         \n\
         A handler may also be a URL of this machine: \"handler\":\"http://127.0.0.1:9000/notify\". Ctrl-C stops.\n",
        data = data.display(),
    )
}
