//! The HTTP API.

use tokio::net::TcpListener;

use crate::node::Node;

/// Serves until `stop` is ready.
///
/// # Errors
/// When the listener fails.
pub async fn run(
    _node: Node,
    _listener: TcpListener,
    stop: impl Future<Output = ()> + Send + 'static,
) -> anyhow::Result<()> {
    stop.await;
    Ok(())
}
