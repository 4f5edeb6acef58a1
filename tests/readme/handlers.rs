//! docs/handlers.md: its receivers do what the page says of them.

use crate::shell::{Shell, poll};
use crate::there;

use dueline::dispatch::guard::{FencingGuard, NotAdmitted};
use dueline::model::{AttemptToken, QueueName, Shard};

const PAGE: &str = include_str!("../../docs/handlers.md");

/// The status to answer with; with 409 goes the header `Dueline-Fenced`.
fn status(guard: &FencingGuard, shard: &str, queue: &str, token: &str) -> u16 {
    let (Ok(shard), Ok(queue)) = (shard.parse().map(Shard), QueueName::new(queue)) else { return 400 };
    let Ok(token) = token.parse::<AttemptToken>() else { return 400 };
    match guard.admit(shard, &queue, token) {
        Ok(()) => 200,
        Err(NotAdmitted::Fenced(_)) => 409,
        Err(NotAdmitted::Disk(_)) => 503,
    }
}

#[test]
fn the_rust_receiver_of_the_page_is_this_one() {
    let this = include_str!("handlers.rs");
    for part in PAGE
        .split("\n```rust\n")
        .nth(1)
        .and_then(|rest| rest.split("\n```").next())
        .expect("a block")
        .split("\n\n")
    {
        assert!(this.contains(part), "not here:\n{part}");
    }
}

#[test]
fn the_rust_receiver_refuses_an_old_token() {
    let guard = FencingGuard::default();
    let answers =
        ["0.9.1", "0.10.1", "0.10.1", "0.9.2", "nonsense"].map(|token| status(&guard, "3", "q", token));
    assert_eq!(answers, [200, 200, 200, 409, 400]);
    assert_eq!(status(&guard, "4", "q", "0.1.1"), 200, "another shard");
}

#[test]
fn the_python_receiver_refuses_an_old_token_after_a_restart_too() {
    if !there("python3") || !there("curl") {
        return;
    }
    let receiver =
        PAGE.split_once("\n```python\n").expect("a block").1.split_once("\n```").expect("its end").0;
    let shell = Shell::new();
    let address = shell.replacement("127.0.0.1:9000").to_owned();
    let port = address.rsplit(':').next().expect("a port").to_owned();
    let listens =
        || assert!(poll(|| std::net::TcpStream::connect(&address).is_ok()).is_ok(), "it does not listen");
    let block = format!("cat > receiver.py <<'END'\n{receiver}\nEND\nexec python3 receiver.py {port}");
    let answer = |task: &str, token: &str| {
        let headers = format!(
            "-H dueline-shard:3 -H dueline-queue:q -H idempotency-key:{task} -H dueline-fencing-token:{token}"
        );
        shell.run(&format!("curl -sS -i {headers} -d '{{}}' http://{address}/"))
    };
    let first = shell.start("receiver", &block);
    listens();
    assert!(answer("a", "0.9.1").contains(" 200 "));
    assert!(answer("b", "0.10.1").contains(" 200 "));
    assert!(answer("b", "0.10.1").contains(" 200 "), "an equal token is taken");
    first.stop();
    let again = shell.start("again", &block);
    listens();
    let refused = answer("c", "0.9.2");
    assert!(refused.contains(" 409 ") && refused.contains("Dueline-Fenced: 1"), "{refused}");
    let rows = "python3 -c 'import sqlite3; print(*sqlite3.connect(\"payments.db\").execute(\"SELECT task FROM payments\"))'";
    let rows = shell.run(rows);
    assert!(rows.contains("'a'") && rows.contains("'b'") && !rows.contains("'c'"), "{rows}");
    again.stop();
}
