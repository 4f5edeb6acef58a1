//! Builds of the product side by side: an instance goes from one to another as a rolling upgrade does it.

use anyhow::Result;

use super::drains::note;
use crate::clock::wall_ms;
use crate::plan::Build;
use crate::stage::Stage;

/// Stopped in good order, started as the other build. The tables are those of the next one before any instance is it, and
/// stay so when instances go back, as docs/operations.md has it.
pub(super) async fn change(stage: &mut Stage<'_>, name: &str, to: Build) -> Result<()> {
    let (before, from) = (stage.watch.hand_overs().len(), wall_ms());
    stage.leave(name)?;
    stage.until_all_left().await;
    stage.set_build(name, to);
    if to == Build::Next {
        stage.migrate(name).await?;
    }
    stage.start(name).await?;
    stage.until_all_run().await?;
    let what = format!("{name} restarted as the {to:?} build, {}", stage.version_of(name).await?);
    note(stage, &what, before, from);
    stage.fault(what, from);
    Ok(())
}
