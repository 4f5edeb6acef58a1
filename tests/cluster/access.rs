//! Tokens on two instances: what one passes on to the other it passes on with the caller's token, and who asked is on
//! record whichever of them was asked.

use serde_json::{Value, json};

use crate::clock;
use crate::instance::{self, Instance};
use crate::servers::Turn;
use crate::site::{Wanted, on_site};

const VERA: &str = "vera-looks-at-everything-0123";
const OTTO: &str = "otto-does-the-daily-work-0123";

async fn get(instance: &Instance, path: &str, token: Option<&str>) -> (u16, Value) {
    let request = reqwest::Client::new().get(format!("{}{path}", instance.url));
    let request = token.into_iter().fold(request, |request, token| request.bearer_auth(token));
    let answer = request.send().await.expect("an answer");
    (answer.status().as_u16(), answer.json().await.expect("JSON"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_instance_asks_another_with_the_token_of_its_caller() {
    let dir = tempfile::tempdir().expect("a folder");
    let table = |(name, role, token): (&str, &str, &str)| {
        let path = dir.path().join(name);
        std::fs::write(&path, token).expect("written");
        let path = path.display();
        format!("[[http.token]]\nname = \"{name}\"\nrole = \"{role}\"\ntoken_file = \"{path}\"\n")
    };
    let more = [("vera", "viewer", VERA), ("otto", "operator", OTTO)].map(table).concat().leak();
    on_site(Wanted { more, ..Wanted::named("access") }, Turn::Alone, |site| async move {
        let instances = site.settled(&["first", "second"]).await;
        let mut owners = std::collections::BTreeSet::new();
        for instance in &instances {
            let (status, shards) = get(instance, "/v1/shards", Some(VERA)).await;
            let shards = shards["shards"].as_array().expect("shards").clone();
            assert!(status == 200 && shards.len() == 8, "{shards:?}");
            let told = shards.iter().filter(|shard| shard["phase"] == "running");
            assert_eq!(told.count(), 8, "each has asked the other: {shards:?}");
            owners.extend(shards.iter().filter_map(|shard| shard["owner"].as_str().map(str::to_owned)));
            for n in 0..16 {
                let path = format!("/v1/queues/q-{n}");
                assert_eq!(get(instance, &path, Some(VERA)).await.0, 200, "{path} of {}", instance.name);
                assert_eq!(get(instance, &path, None).await.0, 401, "{path} of {}", instance.name);
            }
        }
        assert_eq!(owners.len(), 2, "some of it was the other's: {owners:?}");
        let set = reqwest::Client::new().post(format!("{}/v1/gates", instances[0].url)).bearer_auth(OTTO);
        let body = json!({"handler": "sink", "by": "vera", "reason": "why"}).to_string();
        let set = set.header("content-type", "application/json").body(body).send().await.expect("an answer");
        assert_eq!(set.status(), 200);
        let (_, operations) = get(&instances[1], "/v1/operations", Some(VERA)).await;
        assert_eq!(operations["operations"][0]["by"], "otto (vera)", "{operations}");
        let log = std::fs::read_to_string(&instances[0].log).expect("a log");
        let audited: Vec<&str> = log.lines().filter(|line| line.contains("dueline::audit")).collect();
        assert!(audited.len() == 1 && audited[0].contains("gate_set"), "{audited:?}");
        assert!(!log.contains(VERA) && !log.contains(OTTO), "tokens are in no log");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_instance_whose_tokens_another_does_not_know_says_so() {
    let dir = tempfile::tempdir().expect("a folder");
    let [known, other] =
        [("known", VERA), ("other", "another-token-of-the-same-0123")].map(|(name, token)| {
            let path = dir.path().join(name);
            std::fs::write(&path, token).expect("written");
            path.display().to_string()
        });
    let table = format!("[[http.token]]\nname = \"vera\"\nrole = \"viewer\"\ntoken_file = \"{known}\"\n");
    let more = table.leak();
    on_site(Wanted { more, ..Wanted::named("refuses") }, Turn::Alone, |site| async move {
        let instances = [("first", &known), ("second", &other)].map(|(name, file)| {
            let port = instance::free_port();
            let config = site.config(name, port).replace(&known, file);
            let path = site.dir.join(format!("{name}-own.toml"));
            std::fs::write(&path, config).expect("written");
            Instance::of(name, instance::dueline(&["serve"], &path), &site.dir, port)
        });
        clock::until_async("both have shards", 90, || async {
            let owned = futures::future::join_all(instances.iter().map(Instance::shards_owned)).await;
            owned.iter().all(|owned| *owned > 0) && owned.iter().sum::<u32>() == 8
        })
        .await;
        let mut answers = std::collections::BTreeMap::<u16, u32>::new();
        for n in 0..16 {
            let path = format!("/v1/queues/q-{n}");
            let (status, answer) = get(&instances[0], &path, Some(VERA)).await;
            *answers.entry(status).or_default() += 1;
            if status != 200 {
                assert_eq!((status, &answer["code"]), (503, &json!("owner_refuses")), "{answer}");
                let detail = answer["detail"].as_str().expect("a text");
                let what = "is owned by second, and it does not let in who was let in here";
                assert!(detail.contains(what) && detail.contains("the same files"), "{detail}");
                assert!(!detail.contains(VERA), "{detail}");
            }
        }
        assert!(answers.len() == 2 && answers.contains_key(&503), "some are the other's: {answers:?}");
    })
    .await;
}
