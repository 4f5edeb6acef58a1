//! The walk through failure policy and control on an embedded `dev`.

use crate::dev::Dev;
use crate::walk::{Place, Sink, fates, handlers, policies, questions};

macro_rules! points {
    ($($file:ident::$point:ident,)*) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $point() {
            let (dir, sink) = (tempfile::tempdir().expect("a folder"), Sink::start().await);
            let config = dir.path().join("dueline.toml");
            std::fs::write(&config, handlers(&sink)).expect("written");
            let dev = Dev::configured(&dir.path().join("data"), Some(&config)).await;
            let place = Place::new(vec![format!("http://{}", dev.address)], sink);
            $file::$point(&place).await;
        }
    )*};
}

points! {
    policies::outcomes_and_retries_are_on_record,
    policies::a_head_blocks_is_parked_or_stops_its_queue,
    policies::the_dead_are_listed_mended_redriven_and_purged,
    policies::gates_pause_drop_and_end_and_are_on_record,
    policies::slots_go_by_priority_and_limits_hold_up_their_own_only,
    policies::what_is_late_after_a_gate_begins_at_its_own_rate_and_live_tasks_at_once,
    policies::what_is_past_is_closed_on_record,
    fates::every_fate_is_on_record_and_counted,
    questions::a_task_a_queue_and_a_handler_say_why,
    questions::history_and_lists_tell_everything,
    questions::many_are_cancelled_and_shifted_by_filter,
    questions::what_makes_no_sense_is_refused_by_name,
}
