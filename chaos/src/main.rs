//! Faults on real processes and real servers: not there yet, and says so.

fn main() -> anyhow::Result<()> {
    anyhow::bail!(
        "chaos scenarios are not there yet; what is tested on real servers today is in tests/cluster (`cargo xtask test`)"
    )
}
