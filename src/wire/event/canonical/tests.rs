//! Content has one hash however it is written, and no other content has it.

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::wire::event::tests::{event_of, json_value};

fn hash_of(value: &str) -> [u8; 16] {
    event_of(value).content_hash
}

#[test]
fn content_is_the_same_only_when_it_cannot_mean_another_thing() {
    let same = |a: &str, b: &str| hash_of(a) == hash_of(b);
    let one = r#"{"id":"t","handler":"notify","payload":{"a":1,"b":[1,2]}}"#;
    assert!(same(
        one,
        r#" { "payload" : {"b":[ 1 , 2 ],"a":1}, "handler":"\u006eotify", "type":"schedule", "id":"t"}"#
    ));
    for other in [
        r#"{"id":"t","handler":"notify","payload":{"a":1,"b":[2,1]}}"#,
        r#"{"id":"t","handler":"notify","payload":{"a":1.0,"b":[1,2]}}"#,
        r#"{"id":"t","handler":"notify","payload":{"a":"1","b":[1,2]}}"#,
        r#"{"id":"t","handler":"notify","payload":{"a":1,"b":[[1],2]}}"#,
        r#"{"id":"t","handler":"notify","payload":{"a":1,"b":[1,2],"c":null}}"#,
        r#"{"id":"t","handler":"notify","payload":{"a":1,"b":[12]}}"#,
        r#"{"id":"t","handler":"notify","payload":{"a":1,"b":{"1":2}}}"#,
        r#"{"id":"t","handler":"notify","payload":{"a":1,"b":[1,2]},"priority":5}"#,
        r#"{"id":"t","handler":"notify","payload":{"a":1,"b":[1,2]},"reason":""}"#,
    ] {
        assert!(!same(one, other), "{other}");
    }
    let delay = |text: &str| hash_of(&format!(r#"{{"id":"t","handler":"notify","delay":"{text}"}}"#));
    assert_ne!(delay("60s"), delay("1m"), "delay counts as its text");
    let big = |digits: &str| hash_of(&format!(r#"{{"id":"t","handler":"notify","payload":{digits}}}"#));
    assert_ne!(big("1180591620717411303424"), big("1180591620717411303425"), "beyond the digits of a float");
    assert_ne!(big(r#"{"a":1,"a":2}"#), big(r#"{"a":2,"a":1}"#), "the last of two may count");
    let half = big(r#""\ud800""#);
    assert_ne!(half, big(r#""\ud801""#));
    assert_ne!(hash_of(r#"{"type":"cancel","id":"t"}"#), hash_of(r#"{"id":"t","handler":"notify"}"#));
}

/// The text of a value with the members of its objects turned round, and white space where it may be.
fn turned_round(value: &Value) -> String {
    match value {
        Value::Object(members) => {
            let member =
                |(name, value): (&String, &Value)| format!("\t{} :\r\n{}", json!(name), turned_round(value));
            format!("{{ {} }}", members.iter().rev().map(member).collect::<Vec<_>>().join(" ,"))
        }
        Value::Array(items) => {
            format!("[ {}\n]", items.iter().map(turned_round).collect::<Vec<_>>().join(" , "))
        }
        other => other.to_string(),
    }
}

proptest! {
    #[test]
    fn the_hash_does_not_depend_on_order_of_keys_or_white_space(payload in json_value(), labels in prop::option::of(json_value())) {
        let mut event = json!({ "id": "t", "handler": "notify", "payload": payload, "reason": "x" });
        if let Some(labels) = labels {
            event["payload"] = json!({ "payload": event["payload"], "labels": labels });
        }
        prop_assert_eq!(hash_of(&event.to_string()), hash_of(&turned_round(&event)));
    }

    #[test]
    fn different_payloads_have_different_hashes(a in json_value(), b in json_value()) {
        let hash = |payload: &Value| hash_of(&json!({ "handler": "notify", "payload": payload }).to_string());
        let texts = (a.to_string(), b.to_string());
        prop_assert_eq!(hash(&a) == hash(&b), texts.0 == texts.1);
    }
}
