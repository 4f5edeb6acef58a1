//! `dueline dev`: everything in one process, no servers, durable.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use super::{Exit, Global};
use crate::config::{Flag, load_dev};
use crate::node::Node;
use crate::server::Server;

/// Run everything in this process: no Kafka, no Cassandra; tasks survive restarts. Needs no config; of one it takes
/// handlers, limits, retention, http, log and otlp, and of topics task_events and dead_letters.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: dueline dev --data ./dueline-data")]
pub(super) struct Args {
    /// Where everything is kept.
    #[arg(long, value_name = "DIR", default_value = "./dueline-data")]
    data: PathBuf,
    /// Where the HTTP interface listens. Default: 127.0.0.1:7420.
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
}

pub(super) async fn run(global: &Global, args: Args) -> anyhow::Result<()> {
    let flag = |value| Flag { flag: "--listen", key: "http.listen", value };
    let sources = super::config::sources(global, args.listen.into_iter().map(flag).collect())?;
    let (mut config, ignored) =
        load_dev(sources, &args.data).map_err(|problems| Exit::Usage.with(problems.to_string()))?;
    crate::telemetry::init(&config.log)?;
    super::config::warn(&config);
    super::config::warn_of_ignored(&ignored, "dev");
    let listener =
        super::serve::bind(config.http.listen, "another address with --listen or http.listen").await?;
    let address = listener.local_addr()?;
    // A port that the system chose is known only now.
    if let Some(url) = config.http.advertise.strip_suffix(":0") {
        config.http.advertise = format!("{url}:{}", address.port());
    }
    config.http.listen = address;
    let start = async { Ok(Node::builder(config).start().await?) };
    let greet = || eprintln!("{}", greeting(address, &args.data));
    super::serve::until_stopped(Server::new(), listener, start, greet).await
}

/// An address that a client on this machine can use: nobody can be asked at "everywhere".
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

fn greeting(listen: SocketAddr, data: &std::path::Path) -> String {
    let address = reachable(listen);
    let everywhere = if address == listen { "" } else { " and every other address of this machine" };
    format!(
        "dueline dev: listening on http://{address}{everywhere}, keeping everything in {data}\n\
         \n\
         Schedule a task that runs in 5 seconds (it shows up here as a log line):\n\
         \n  curl -sS http://{address}/v1/tasks -H 'content-type: application/json' -H 'prefer: wait=5' \\\n    \
         -d '{{\"queue\":\"greetings\",\"id\":\"hello\",\"delay\":\"5s\",\"handler\":\"log\",\"payload\":{{\"text\":\"hello\"}}}}'\n\
         \n  dueline task schedule --server http://{address} --queue greetings --delay 5s --handler log --payload '{{\"text\":\"hi\"}}'\n\
         \n\
         A handler may also be a URL of this machine: \"handler\":\"http://127.0.0.1:9000/notify\". Ctrl-C stops.\n",
        data = data.display(),
    )
}

#[cfg(test)]
mod tests {
    use super::greeting;

    #[test]
    fn the_greeting_names_an_address_that_can_be_asked() {
        let told = |listen: &str| greeting(listen.parse().expect("an address"), "d".as_ref());
        assert!(told("0.0.0.0:7420").contains("http://127.0.0.1:7420 and every other address"));
        assert!(told("[::]:7420").contains("http://[::1]:7420/v1/tasks"));
        assert!(told("192.0.2.1:80").contains("http://192.0.2.1:80, keeping"));
    }
}
