//! Making an installation: what a start says when something is missing, and two at once who make the tables.

use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::instance::dueline;
use crate::servers::Turn;
use crate::site::{Site, Wanted, on_site};

/// Longest that a command of these tests takes.
const COMMAND_WAIT: Duration = Duration::from_secs(60);

pub(crate) async fn output(command: Command) -> Output {
    let ended = tokio::task::spawn_blocking(move || ended(command));
    ended.await.expect("the command ends by itself")
}

fn ended(mut command: Command) -> Output {
    let mut child: Child =
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program runs");
    let begun = Instant::now();
    while child.try_wait().expect("its state").is_none() {
        if begun.elapsed() > COMMAND_WAIT {
            child.kill().expect("it can be killed");
            panic!("{command:?} did not end: {:?}", child.wait_with_output());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    child.wait_with_output().expect("its output")
}

async fn run(site: &Arc<Site>, arguments: &[&str]) -> Output {
    output(dueline(arguments, &site.config_file("setup", 1))).await
}

/// Runs a command that has to refuse; gives what it said.
async fn refused(site: &Arc<Site>, arguments: &[&str]) -> String {
    let output = run(site, arguments).await;
    assert!(!output.status.success(), "{arguments:?} ended well");
    String::from_utf8(output.stderr).expect("UTF-8")
}

async fn succeeds(site: &Arc<Site>, arguments: &[&str]) {
    let output = run(site, arguments).await;
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_says_which_command_makes_what_is_missing() {
    let wanted = Wanted { prepared: false, ..Wanted::named("setup") };
    on_site(wanted, Turn::Shared, |site| async move {
        let said = refused(&site, &["serve"]).await;
        assert!(said.contains("dueline topics create"), "{said}");
        succeeds(&site, &["topics", "create"]).await;
        let said = refused(&site, &["serve"]).await;
        assert!(said.contains("dueline migrate up"), "{said}");
        succeeds(&site, &["migrate", "up"]).await;
        succeeds(&site, &["topics", "check"]).await;
        let ready = site.ready("first").await;
        assert!(ready.stop().await.success());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_instances_make_the_tables_at_once() {
    let wanted = Wanted { prepared: false, ..Wanted::named("migrate") };
    on_site(wanted, Turn::Shared, |site| async move {
        let up = ["migrate", "up"];
        futures::join!(succeeds(&site, &up), succeeds(&site, &up), succeeds(&site, &up));
        succeeds(&site, &up).await;
        let status = run(&site, &["migrate", "status", "-o", "json"]).await;
        let said = String::from_utf8(status.stdout).expect("UTF-8");
        assert!(status.status.success() && said.contains("applied") && !said.contains("pending"), "{said}");
    })
    .await;
}
