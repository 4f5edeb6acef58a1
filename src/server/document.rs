//! The OpenAPI document, made from the descriptions beside the handlers.
//!
//! What all paths have in common is said here once: the errors that the layers around them give, and their media type.
//! It is published as schemas/openapi.json, and served as it is published.

use utoipa::openapi::{Content, Ref, RefOr, Response};
use utoipa::{Modify, OpenApi};

use super::problem::MEDIA_TYPE;
use super::{batches, dead_letters, explain, gates, health, list, problem, shards, tasks};

#[derive(OpenApi)]
#[openapi(
    info(title = "Dueline", description = "Schedule, cancel, reschedule and look at tasks."),
    paths(
        tasks::schedule,
        tasks::batch,
        tasks::show,
        tasks::cancel,
        tasks::reschedule,
        tasks::redrive,
        tasks::abort,
        tasks::run,
        explain::task,
        list::tasks,
        list::rejected,
        dead_letters::list,
        shards::queues,
        shards::queue,
        explain::queue,
        gates::pause,
        gates::resume,
        gates::list,
        gates::set,
        gates::clear,
        gates::operations,
        batches::begin,
        batches::list,
        batches::show,
        batches::stop,
        batches::resume,
        shards::shards,
        shards::instances,
        shards::handlers,
        explain::handler,
        health::livez,
        health::readyz,
        health::metrics
    ),
    components(schemas(problem::Problem, problem::FieldError)),
    modifiers(&Refusals)
)]
struct Document;

/// What any path under `/v1` may refuse: status, for which method, and when.
const REFUSED: [(&str, &str, &str); 7] = [
    ("400", "", "A parameter, header or field is wrong"),
    ("403", "", "Asked by a page of another site, or under a host name that is not known"),
    ("413", "post", "Too large"),
    ("415", "post", "Not said to be JSON"),
    ("502", "post", "The log refuses the event"),
    ("503", "", "Something is away for now: try again after `retry_after` seconds"),
    ("504", "", "Not answered in time"),
];

/// Gives every error its media type, and every path those that all have.
struct Refusals;

impl Modify for Refusals {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        for (path, item) in &mut document.paths.paths {
            let methods = [("get", item.get.as_mut()), ("post", item.post.as_mut())];
            for (method, operation) in methods {
                let Some(operation) = operation else { continue };
                let responses = &mut operation.responses.responses;
                let of_method = |(_, only, _): &&(&str, &str, &str)| only.is_empty() || *only == method;
                for (status, _, when) in REFUSED.iter().filter(of_method).filter(|_| path.starts_with("/v1/"))
                {
                    responses.entry((*status).to_owned()).or_insert_with(|| Response::new(*when).into());
                }
                for (_, response) in responses.iter_mut().filter(|(status, _)| status.as_str() >= "400") {
                    if let RefOr::T(response) = response {
                        let problem = Ref::from_schema_name("Problem");
                        response.content =
                            [(MEDIA_TYPE.to_owned(), Content::new(Some(problem)).into())].into();
                    }
                }
            }
        }
    }
}

/// `/openapi.json`.
pub(super) async fn served() -> axum::Json<utoipa::openapi::OpenApi> {
    axum::Json(Document::openapi())
}

#[cfg(test)]
mod tests {
    use utoipa::OpenApi;

    #[test]
    fn the_published_document_is_the_one_served() {
        let served = super::Document::openapi().to_pretty_json().expect("JSON") + "\n";
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/schemas/openapi.json");
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(path, &served).expect("written");
        }
        let published = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            published == served,
            "schemas/openapi.json is not up to date: UPDATE_DOCS=1 cargo test --lib server"
        );
    }

    #[test]
    fn errors_are_problems_and_every_path_says_what_it_refuses() {
        let document = serde_json::to_value(super::Document::openapi()).expect("JSON");
        for (path, item) in document["paths"].as_object().expect("paths") {
            for (method, operation) in item.as_object().expect("methods") {
                let responses = operation["responses"].as_object().expect("responses");
                for (status, response) in responses.iter().filter(|(status, _)| status.as_str() >= "400") {
                    let kinds: Vec<_> = response["content"].as_object().expect("content").keys().collect();
                    assert_eq!(kinds, [super::MEDIA_TYPE], "{method} {path} {status}");
                }
                let refused: &[&str] = match (path.starts_with("/v1/"), method.as_str()) {
                    (true, "post") => &["400", "403", "413", "415", "503"],
                    (true, _) => &["400", "403", "503"],
                    (false, _) => &[],
                };
                for status in refused {
                    assert!(responses.contains_key(*status), "{method} {path} {status}");
                }
            }
        }
    }
}
