//! Drains where they cannot be: an embedded installation has one instance, and says so.

use serde_json::json;

use super::dev::{Dev, dueline};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_one_instance_of_an_embedded_installation_is_not_drained() {
    let dir = tempfile::tempdir().expect("a folder");
    let dev = Dev::start(dir.path()).await;
    let name = dev.get("/v1/instances").await.json["instances"][0]["name"].as_str().map(str::to_owned);
    let name = name.expect("a name");
    for body in [json!({"instance": name}), json!({"instance": name, "force": true}), json!({"dc": "dc1"})] {
        assert_eq!(dev.post("/v1/instances:drain", &body).await.problem(), (409, "embedded"), "{body}");
    }
    let refused = dev.cli(&["instance", "drain", &name]);
    assert!(refused.code == 4 && refused.err.contains("embedded"), "{refused:?}");
    let nothing = dev.cli(&["instance", "undrain", &name]);
    assert!(nothing.code == 3 && nothing.err.contains("no drain of instance"), "{nothing:?}");
    let listed = dev.cli(&["instance", "list"]);
    assert!(listed.code == 0 && !listed.out.contains("drained"), "{listed:?}");
    assert_eq!(dev.get("/readyz").await.text, "ok\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_says_what_it_means() {
    let dir = tempfile::tempdir().expect("a folder");
    let dev = Dev::start(dir.path()).await;
    for path in ["/v1/instances:drain", "/v1/instances:undrain"] {
        for (body, code) in [
            (json!({}), "invalid_body"),
            (json!({"instance": "a", "dc": "b"}), "invalid_body"),
            (json!({"instances": ["a"]}), "invalid_body"),
            (json!({"instance": "a\nb"}), "invalid_field"),
        ] {
            assert_eq!(dev.post(path, &body).await.problem(), (400, code), "{path} {body}");
        }
    }
    for arguments in [
        &["instance", "drain"][..],
        &["instance", "drain", "a", "--dc", "b"],
        &["instance", "drain", "a", "--no-wait", "--timeout", "1s"],
        &["instance", "drain", "a", "--timeout", "soon"],
    ] {
        assert_eq!(dueline(arguments).code, 2, "{arguments:?}");
    }
}
