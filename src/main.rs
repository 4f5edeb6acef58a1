//! The `dueline` binary.

#[derive(clap::Parser)]
struct Cli {
    #[command(flatten)]
    bench: dueline::bench::Args,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let cli = <Cli as clap::Parser>::parse();
    let report = dueline::bench::run(&cli.bench).await?;
    eprintln!("{}", report.table());
    Ok(())
}
