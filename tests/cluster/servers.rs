//! Whose turn it is on the servers, and the switch to stop and start one of them.

use std::process::{Command, Stdio};

use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

static TURNS: RwLock<()> = RwLock::const_new(());

/// How a test shares the servers with the others of this program.
#[derive(Clone, Copy)]
pub(crate) enum Turn {
    /// Beside others: it mostly waits.
    Shared,
    /// Nobody beside it: it needs the whole machine, or takes a server away.
    Alone,
}

/// The turn, until it is dropped.
pub(crate) enum Held {
    Shared { _guard: RwLockReadGuard<'static, ()> },
    Alone { _guard: RwLockWriteGuard<'static, ()> },
}

impl Turn {
    pub(crate) async fn take(self) -> Held {
        match self {
            Turn::Shared => Held::Shared { _guard: TURNS.read().await },
            Turn::Alone => Held::Alone { _guard: TURNS.write().await },
        }
    }
}

/// A server that is away until it is brought back; dropping brings it back too.
pub(crate) struct Away {
    name: &'static str,
}

/// Whether servers can be stopped here: `cargo xtask test` says how.
pub(crate) fn can_stop() -> bool {
    std::env::var_os("DUELINE_TEST_XTASK").is_some()
}

/// Stops a server (`kafka` or `cassandra`) and keeps its data.
pub(crate) async fn stop(name: &'static str) -> Away {
    let away = Away { name };
    tokio::task::spawn_blocking(move || xtask("stop", name)).await.expect("it is stopped");
    away
}

impl Away {
    /// Starts it again and waits until it answers.
    pub(crate) async fn back(self) {
        tokio::task::spawn_blocking(move || drop(self)).await.expect("it is back");
    }
}

impl Drop for Away {
    fn drop(&mut self) {
        xtask("start", self.name);
    }
}

fn xtask(action: &str, server: &str) {
    let program = std::env::var_os("DUELINE_TEST_XTASK").expect("the program that runs the servers");
    let output = Command::new(program)
        .args(["servers", action, server])
        .stdin(Stdio::null())
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "servers {action} {server}: {said}");
}
