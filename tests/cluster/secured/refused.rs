//! Who is refused by the servers is told what, where and what to do, and no secret.

use super::{Login, SENTINEL, Secured, on_secured, text};
use crate::clock;
use crate::instance::{self, Instance};

/// What is wrong, and what `doctor` has to say of it.
fn cases(secured: &Secured) -> Vec<(&'static str, Login, Vec<&'static str>)> {
    let good = secured.instance();
    let wrong = format!("{SENTINEL}-that-nobody-has");
    let other_ca = secured.tls.join("next-ca.crt");
    let kafka = |user, password: &str| Login { kafka: (user, password.to_owned()), ..good.clone() };
    let cassandra = |login| Login { cassandra: login, ..good.clone() };
    const KAFKA: &str = "sasl_ssl://127.0.0.1";
    vec![
        (
            "kafka-password",
            kafka("dueline", &wrong),
            vec![KAFKA, "invalid credentials", "check sasl.username"],
        ),
        ("kafka-user", kafka("nobody", &wrong), vec![KAFKA, "invalid credentials", "check sasl.username"]),
        (
            "kafka-authority",
            Login { kafka_ca: other_ca.clone(), ..good.clone() },
            vec![KAFKA, "certificate verify failed", "ssl.ca.location"],
        ),
        (
            "kafka-plain",
            Login { protocol: "SASL_PLAINTEXT", ..good.clone() },
            vec!["no answer from 127.0.0.1", "check kafka.brokers and security.protocol"],
        ),
        (
            "cassandra-password",
            cassandra(Some(("dueline", wrong.clone()))),
            vec![
                "no connection to 127.0.0.1",
                "incorrect",
                "check cassandra.username and cassandra.password_file",
            ],
        ),
        (
            "cassandra-nobody",
            cassandra(None),
            vec!["no connection to 127.0.0.1", "check cassandra.username and cassandra.password_file"],
        ),
        (
            "cassandra-authority",
            Login { cassandra_ca: Some(other_ca), ..good.clone() },
            vec![
                "no connection to 127.0.0.1",
                "UnknownIssuer",
                "cassandra.tls.ca_file has to hold the authority",
            ],
        ),
        (
            "cassandra-plain",
            Login { cassandra_ca: None, ..good.clone() },
            vec![
                "no connection to 127.0.0.1",
                "as one that expects TLS does: check cassandra.nodes and cassandra.tls",
            ],
        ),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_refused_is_told_what_where_and_what_to_do() {
    on_secured("refused", |secured| async move {
        let asked = cases(&secured).into_iter().map(|(name, login, words)| {
            let secured = &secured;
            async move { (name, secured.run(name, &login, &["doctor"]).await, words) }
        });
        for (name, said, words) in futures::future::join_all(asked).await {
            assert!(!said.succeeded, "{name} is let in: {}", said.all());
            said.says(&words);
        }
    })
    .await;
}

/// What can be mended at the servers is waited for; a password that Cassandra refuses ends the start.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_that_is_refused_says_why() {
    on_secured("start refused", |secured| async move {
        let started = cases(&secured).into_iter().map(|(name, login, words)| {
            let port = instance::free_port();
            let mut serve = instance::dueline(&["serve"], &secured.config(name, &login, port, ""));
            serve.env("DUELINE_LOG", "trace");
            (name, Instance::of(name, serve, &secured.dir, port), words)
        });
        for (name, mut started, words) in started.collect::<Vec<_>>() {
            let log = started.log.clone();
            let told = || {
                let log = text(&log);
                words.iter().all(|word| log.contains(word))
            };
            clock::until(&format!("{name}: its log has {words:?}"), 30, told).await;
            let ends = ["cassandra-password", "cassandra-nobody"].contains(&name);
            if ends {
                clock::until(&format!("{name} ends"), 30, || !started.runs()).await;
            }
            assert_eq!(!ends, started.runs(), "{name}");
            assert!(!text(&log).contains(SENTINEL), "a secret is in the log of {name}");
        }
    })
    .await;
}
