//! How somebody asks this program to end: by Ctrl-C, or SIGTERM. That is heard before the first server is started, and until the last
//! one is ended: a signal that nobody heard would end this program alone.

use std::thread;

use anyhow::{Context as _, Result};
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// Somebody asked this program to end.
#[derive(Debug)]
pub(crate) struct Interrupted;

impl std::fmt::Display for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("interrupted")
    }
}

impl std::error::Error for Interrupted {}

/// Whether this program was asked to end since it listens.
#[derive(Clone, Debug)]
pub(crate) struct Ending(watch::Receiver<bool>);

impl Ending {
    /// Listens from now on. Signals alone end this program no more: who does something long asks.
    pub(crate) fn listen() -> Result<Ending> {
        Ending::by([SignalKind::interrupt(), SignalKind::terminate()])
    }

    /// A thread of its own waits for them: who starts servers has no runtime yet.
    fn by(kinds: [SignalKind; 2]) -> Result<Ending> {
        let runtime = Builder::new_current_thread().enable_all().build().context("a runtime for signals")?;
        let (mut one, mut other) = {
            let _within = runtime.enter();
            (signal(kinds[0])?, signal(kinds[1])?)
        };
        let (tell, told) = watch::channel(false);
        let wait = async move {
            tokio::select! {
                _ = one.recv() => {}
                _ = other.recv() => {}
            }
            tell.send_replace(true);
        };
        let waits = thread::Builder::new().name("signals".into()).spawn(move || runtime.block_on(wait));
        waits.context("a thread for signals")?;
        Ok(Ending(told))
    }

    /// Does something, unless this program was asked to end, or is before it is done.
    pub(crate) async fn unless<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        tokio::select! {
            biased;
            () = self.asked() => Err(Interrupted.into()),
            done = work => done,
        }
    }

    /// Whether there is a reason to begin with something.
    pub(crate) fn check(&self) -> Result<()> {
        match *self.0.borrow() {
            true => Err(Interrupted.into()),
            false => Ok(()),
        }
    }

    async fn asked(&self) {
        let mut told = self.0.clone();
        let asked = told.wait_for(|asked| *asked).await.is_ok();
        if !asked {
            // Nobody listens any more, so nobody asks.
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::process::{Signal, getpid, kill_process};

    use super::*;

    #[test]
    fn what_is_done_goes_on_until_somebody_asks_for_the_end_and_nothing_begins_after_that() {
        // Not those of Ctrl-C and SIGTERM, which have to go on ending the tests.
        let ending = Ending::by([SignalKind::user_defined1(), SignalKind::user_defined2()]).expect("signals");
        let runtime = Builder::new_current_thread().build().expect("a runtime");
        let done = runtime.block_on(ending.unless(async { Ok(7) }));
        assert_eq!(done.expect("nobody asked"), 7);
        ending.check().expect("nobody asked");
        kill_process(getpid(), Signal::USR1).expect("a signal to this process");
        let asked = runtime.block_on(ending.unless(std::future::pending::<Result<()>>()));
        assert!(asked.expect_err("somebody asked").is::<Interrupted>());
        assert!(ending.check().expect_err("somebody asked").is::<Interrupted>());
        let late = runtime.block_on(ending.unless(async { Ok(7) }));
        assert!(late.expect_err("somebody asked before").is::<Interrupted>());
    }
}
