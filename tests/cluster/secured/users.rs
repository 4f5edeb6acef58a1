//! The users and rights of deploy/k8s on the secured servers, and the installation that they make there.

use std::io::Write as _;
use std::process::{Command, Stdio};

use dueline::store::cassandra;
use scylla::client::session::{Session, TlsContext};
use scylla::client::session_builder::SessionBuilder;
use serde::{Deserialize, Serialize};

use super::{Secured, password, text};

/// Who may do everything: as `cargo xtask servers` makes it, and as Cassandra does.
const KAFKA_ADMIN: (&str, &str) = ("admin", "the-admin-of-the-tests");
const CASSANDRA_ADMIN: (&str, &str) = ("cassandra", "cassandra");

/// A right of a user of Kafka.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Right {
    pub(super) user: String,
    pub(super) kind: String,
    pub(super) name: String,
    pub(super) operation: String,
}

/// The part of Strimzi's KafkaUser that counts here.
#[derive(Deserialize)]
struct User {
    metadata: Metadata,
    spec: Spec,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
}

#[derive(Deserialize)]
struct Spec {
    authorization: Authorization,
}

#[derive(Deserialize)]
struct Authorization {
    acls: Vec<Acl>,
}

#[derive(Deserialize)]
struct Acl {
    resource: Resource,
    operations: Vec<String>,
}

#[derive(Deserialize)]
struct Resource {
    #[serde(rename = "type")]
    kind: String,
    name: String,
}

fn file(path: &str) -> String {
    let found = text(&std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(path));
    assert!(!found.is_empty(), "{path} is not there");
    found
}

/// The rights of deploy/k8s/kafka/users.yaml.
pub(super) fn rights() -> Vec<Right> {
    let users: Vec<User> =
        serde_saphyr::from_multiple(&file("deploy/k8s/kafka/users.yaml")).expect("users as Strimzi has them");
    let mut rights = Vec::new();
    for User { metadata, spec } in users {
        for Acl { resource, operations } in spec.authorization.acls {
            rights.extend(operations.into_iter().map(|operation| Right {
                user: metadata.name.clone(),
                kind: resource.kind.clone(),
                name: resource.name.clone(),
                operation,
            }));
        }
    }
    rights
}

/// The statements that deploy/k8s/README.md gives for a role, those before its keyspace is there or those after.
fn statements(role: &str) -> Vec<String> {
    let page = file("deploy/k8s/README.md");
    let line = page.lines().find(|line| line.starts_with("- **Roles of Cassandra**")).expect("the roles");
    let spans = line.split('`').skip(1).step_by(2);
    let all = spans.flat_map(|span| span.split(';')).map(|one| one.trim().replace('…', &password(role)));
    let is_of = |one: &String| one.split([' ', ';']).any(|word| word == role);
    all.filter(is_of).collect()
}

/// Changes users and rights of Kafka.
pub(super) async fn kafka(secured: &Secured, what: serde_json::Value) {
    let ca = secured.tls.join("ca.crt");
    let python = std::env::var_os("DUELINE_TEST_PYTHON").expect("DUELINE_TEST_PYTHON is set");
    let mut command = Command::new(python);
    command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cluster/secured/rights.py"));
    command.arg(&secured.kafka).arg(ca).args([KAFKA_ADMIN.0, KAFKA_ADMIN.1]);
    let asked = tokio::task::spawn_blocking(move || {
        let piped = command.stdin(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().expect("python runs");
        child.stdin.take().expect("its input").write_all(what.to_string().as_bytes()).expect("it reads");
        child.wait_with_output().expect("it ends")
    });
    let output = asked.await.expect("it ends");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

async fn cassandra(secured: &Secured) -> Session {
    let tls = cassandra::Tls { ca_file: secured.tls.join("ca.crt"), client_files: None };
    let tls = tls.read().expect("the authority can be read");
    SessionBuilder::new()
        .known_node(&secured.cassandra)
        .user(CASSANDRA_ADMIN.0, CASSANDRA_ADMIN.1)
        .tls_context(Some(TlsContext::Rustls023(tls)))
        .build()
        .await
        .expect("the administrator is let in")
}

/// Makes the installation `dueline` with the rights that deploy/k8s gives to those who make it.
pub(super) async fn make(secured: &Secured) {
    let rights = rights();
    let users: serde_json::Map<String, serde_json::Value> =
        rights.iter().map(|right| (right.user.clone(), password(&right.user).into())).collect();
    assert_eq!(users.len(), 3, "instances, Jobs, a producer");
    kafka(secured, serde_json::json!({"users": users, "grant": rights})).await;
    let session = cassandra(secured).await;
    let role = |role: &'static str| {
        let session = &session;
        async move {
            for statement in statements(role) {
                let again = statement.replace("CREATE ROLE ", "CREATE ROLE IF NOT EXISTS ");
                session
                    .query_unpaged(again.as_str(), ())
                    .await
                    .unwrap_or_else(|error| panic!("{again}: {error}"));
            }
        }
    };
    role("dueline_setup").await;
    for arguments in [["topics", "create"], ["migrate", "up"]] {
        let said = secured.run("setup", &secured.setup(), &arguments).await;
        assert!(said.succeeded, "{arguments:?}: {}", said.all());
    }
    role("dueline").await;
}

#[test]
fn the_rights_and_roles_are_those_of_the_manifests() {
    let rights = rights();
    let read = Right {
        user: "dueline".to_owned(),
        kind: "group".to_owned(),
        name: "dueline".to_owned(),
        operation: "Read".to_owned(),
    };
    assert!(rights.contains(&read) && rights.len() > 20, "{rights:?}");
    let setup = statements("dueline_setup");
    assert!(setup.len() == 2 && setup[1] == "GRANT CREATE ON ALL KEYSPACES TO dueline_setup", "{setup:?}");
    let instance = statements("dueline");
    let rights: Vec<&str> = instance.iter().skip(1).map(|one| one.trim_end_matches(" TO dueline")).collect();
    let wanted = [
        "GRANT SELECT ON KEYSPACE dueline",
        "GRANT MODIFY ON KEYSPACE dueline",
        "GRANT SELECT ON TABLE system_views.settings",
        "GRANT SELECT ON TABLE system.available_ranges_v2",
        "GRANT SELECT ON TABLE system_distributed.parent_repair_history",
    ];
    assert_eq!(rights, wanted, "{instance:?}");
}
