//! The walk through failure policy and control on real servers: two instances, asked in turn.

use serde_json::{Value, json};

use crate::servers::Turn;
use crate::site::{Wanted, on_site};
use crate::walk::{Place, Sink, all, handlers, policies, questions};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_point_of_control_holds_on_two_instances() {
    let sink = Sink::start().await;
    let more = handlers(&sink).leak();
    on_site(Wanted { more, ..Wanted::named("control") }, Turn::Shared, |site| async move {
        let mut instances = site.settled(&["first", "second"]).await;
        let place = Place::new(instances.iter().map(|one| one.url.clone()).collect(), sink);
        let at = &place;
        futures::join!(
            policies::outcomes_and_retries_are_on_record(at),
            policies::a_head_blocks_is_parked_or_stops_its_queue(at),
            policies::the_dead_are_listed_mended_redriven_and_purged(at),
            policies::gates_pause_drop_and_end_and_are_on_record(at),
            policies::slots_go_by_priority_and_limits_hold_up_their_own_only(at),
            policies::what_is_late_after_a_gate_begins_at_its_own_rate_and_live_tasks_at_once(at),
            policies::what_is_past_is_closed_on_record(at),
            questions::a_task_a_queue_and_a_handler_say_why(at),
            questions::history_and_lists_tell_everything(at),
            questions::many_are_cancelled_and_shifted_by_filter(at),
            questions::what_makes_no_sense_is_refused_by_name(at),
        );
        // Topics are Kafka's: who asks an instance for one is told how to read it there.
        for path in ["v1/topics", "v1/topics/dueline.dead/0?from=0"] {
            let answer = reqwest::get(format!("{}/{path}", instances[0].url)).await.expect("an answer");
            let status = answer.status().as_u16();
            let problem: Value = answer.json().await.expect("JSON");
            assert_eq!((status, &problem["code"]), (501, &json!("read_the_topic")), "{path}: {problem}");
            assert!(
                problem["detail"].as_str().is_some_and(|detail| detail.contains("kcat -b ")),
                "{problem}"
            );
        }
        // A task whose owner is lost is explained by whoever is there.
        let second = instances.pop().expect("two instances");
        let mut of_second = String::new();
        for n in 0..1_000 {
            of_second = format!("lost-{n}");
            let queue = place.get(&format!("/v1/queues/{of_second}")).await;
            if queue["instance"] == "second" {
                break;
            }
        }
        place.schedule(&of_second, "t", "plain", json!({"delay": "1h"})).await;
        second.kill();
        let path = format!("v1/tasks/{of_second}/t/explain");
        let explained = instances[0].asked(&path).await.expect("an answer");
        let explained: Value = serde_json::from_str(&explained).expect("JSON");
        let codes = all(&explained["reasons"], "code");
        assert!(
            ["owner_unreachable", "no_owner"].contains(&codes[0]) && codes[1] == "not_due",
            "{explained}"
        );
        assert!(explained["earliest_start"].is_string(), "{explained}");
    })
    .await;
}
