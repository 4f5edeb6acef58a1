//! Tasks run by a function of this program: embedded, durable, no servers. Ctrl-C stops.
use dueline::client::{Client, Schedule};
use dueline::dispatch::in_process::{Context, Done, Failure};
use dueline::node::Node;

async fn greet(context: Context) -> Result<Done, Failure> {
    let name: String = context.payload()?; // another shape is fatal, no retry helps
    eprintln!("hello {name}, attempt {} of {}", context.call.attempt, context.call.max_attempts);
    Ok(Done::Succeeded) // an error of any type, by `?`, is retried later
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let node = Node::embedded("./handler-data").handler("greet", greet).start().await?;
    let client = Client::new(node.producer().clone(), node.cluster().shards);
    let task = Schedule::new("greet").queue("greetings").delay(std::time::Duration::from_secs(1));
    client.schedule(task.payload("Ada")?).await?;
    tokio::signal::ctrl_c().await?;
    node.stop().await;
    Ok(())
}
