//! What a failed or dead task does to its queue, where its event does not say.

use std::sync::Arc;

use super::{record, rules};
use crate::model::{HeadPolicies, HeadPolicy, OnDead, OnFailure, Verb};
use crate::wire::event::{Handlers, Rules, decode};

#[test]
fn what_a_failed_task_does_to_its_queue_is_said_by_the_task_the_queue_or_the_handler() {
    let (parks, stops) = (Some(OnFailure::Park), Some(OnDead::Stop));
    let heads = HeadPolicies {
        of_queues: [("q".to_owned(), HeadPolicy { on_failure: Some(OnFailure::Block), on_dead: None })]
            .into(),
        of_handlers: [("h".to_owned(), HeadPolicy { on_failure: parks, on_dead: stops })].into(),
    };
    let handlers = Handlers { heads, ..(*rules().handlers).clone() };
    let rules = Rules { handlers: Arc::new(handlers), ..rules() };
    let head = |value: &str| {
        let event = decode(&record(&[], value.as_bytes()), &rules).unwrap().event;
        let Verb::Schedule(_, content) = event.verb else { panic!("{value}") };
        (content.on_failure, content.on_dead)
    };
    assert_eq!(head(r#"{"handler":"h"}"#), (OnFailure::Park, OnDead::Stop));
    assert_eq!(head(r#"{"handler":"notify","queue":"p","id":"q"}"#), (OnFailure::Block, OnDead::Continue));
    assert_eq!(head(r#"{"handler":"h","queue":"q"}"#), (OnFailure::Block, OnDead::Stop));
    assert_eq!(head(r#"{"handler":"h","id":"q"}"#), (OnFailure::Block, OnDead::Stop), "its id is its queue");
    let said = r#"{"handler":"h","queue":"q","on_failure":"park","on_dead":"continue"}"#;
    assert_eq!(head(said), (OnFailure::Park, OnDead::Continue));
}
