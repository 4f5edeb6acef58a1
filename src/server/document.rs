//! The OpenAPI document, made from the descriptions beside the handlers.
//!
//! What all paths have in common is said here once: the errors that the layers around them give, and their media type.
//! It is published as schemas/openapi.json, and served as it is published.

use std::sync::LazyLock;

use axum::http::HeaderName;
use axum::http::header::CONTENT_TYPE;
use bytes::Bytes;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{Content, Ref, RefOr, Response};
use utoipa::{Modify, OpenApi};

use super::problem::MEDIA_TYPE;
use super::{
    batches, dead_letters, drains, explain, gates, health, list, problem, resets, routes, shards, tasks,
    topics,
};

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
        topics::list,
        topics::read,
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
        resets::reset,
        drains::instances,
        drains::drain,
        drains::undrain,
        shards::handlers,
        explain::handler,
        health::livez,
        health::readyz,
        health::metrics
    ),
    components(schemas(problem::Problem, problem::FieldError)),
    modifiers(&Refusals, &Roles)
)]
struct Document;

/// What any path under `/v1` may refuse: status, for which method, and when.
const REFUSED: [(&str, &str, &str); 8] = [
    ("400", "", "A parameter, header or field is wrong"),
    ("401", "", "Where tokens are configured: none, or one that is not known"),
    (
        "403",
        "",
        "A token of too small a role; or asked by a page of another site, or under a host name that is not known",
    ),
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

/// The name of the scheme of tokens.
const TOKEN: &str = "token";

/// Says of every path which role of token it asks for.
struct Roles;

impl Modify for Roles {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let scheme = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).description(Some(
            "Asked for where `[[http.token]]` is configured. A role may do what those before it may: viewer, operator, admin.",
        ));
        let components = document.components.get_or_insert_default();
        components.add_security_scheme(TOKEN, SecurityScheme::Http(scheme.build()));
        for route in routes::asked().into_iter().chain(routes::probes()) {
            let Some(item) = document.paths.paths.get_mut(route.path) else { continue };
            let operation = if route.method == "get" { item.get.as_mut() } else { item.post.as_mut() };
            let Some(operation) = operation else { continue };
            let needs = route.role.map(|role| SecurityRequirement::new(TOKEN, [role.word()]));
            operation.security = Some(needs.into_iter().collect());
            if let Some(what) = route.admin_for {
                let said = operation.description.take().unwrap_or_default();
                operation.description =
                    Some(format!("{said}\n\nThe role admin is needed for {what}.").trim().to_owned());
            }
        }
    }
}

/// `/openapi.json`, made once: whoever asks need not have a token.
pub(super) async fn served() -> ([(HeaderName, &'static str); 1], Bytes) {
    static SERVED: LazyLock<Bytes> = LazyLock::new(|| {
        serde_json::to_vec(&Document::openapi())
            .expect("the document has text keys and is written to memory")
            .into()
    });
    ([(CONTENT_TYPE, "application/json")], SERVED.clone())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fmt::Write as _;

    use utoipa::OpenApi;

    use super::routes::{self, Route};
    use crate::config::{Role, check_generated};

    fn all() -> Vec<Route> {
        routes::asked().into_iter().chain(routes::probes()).collect()
    }

    #[test]
    fn every_path_of_the_document_is_a_route_with_a_role_and_the_other_way_round() {
        let document = serde_json::to_value(super::Document::openapi()).expect("JSON");
        let mut described = BTreeSet::new();
        for (path, item) in document["paths"].as_object().expect("paths") {
            for (method, operation) in item.as_object().expect("methods") {
                let route = all().into_iter().find(|route| route.path == path && route.method == method);
                let route = route.unwrap_or_else(|| panic!("{method} {path} has no role"));
                let needs = route.role.map(|role| serde_json::json!([{"token": [role.word()]}]));
                assert_eq!(operation["security"], needs.unwrap_or(serde_json::json!([])), "{method} {path}");
                assert_eq!(route.role.is_some(), path.starts_with("/v1/"), "{method} {path}");
                described.insert((path.clone(), method.clone()));
            }
        }
        let routes = all().into_iter().map(|route| (route.path.to_owned(), route.method.to_owned()));
        let bare: Vec<_> = routes.filter(|route| !described.contains(route)).collect();
        assert_eq!(bare, [("/openapi.json".to_owned(), "get".to_owned())], "routes without a description");
    }

    #[test]
    fn what_changes_something_is_no_business_of_a_viewer() {
        for route in all() {
            let may_look = route.role.is_none_or(|role| role == Role::Viewer);
            assert_eq!(may_look, route.method == "get", "{} {}", route.method, route.path);
        }
    }

    #[test]
    fn the_page_of_roles_is_up_to_date() {
        let mut text = "# Roles of the HTTP interface

<!-- Made from src/server/routes.rs by the test `the_page_of_roles_is_up_to_date`; run it with UPDATE_DOCS=1 to write this
file anew. -->

What a token may do, where [tokens are configured](operations.md#who-may-ask). A role may do what those before it may: viewer,
operator, admin. `HEAD` asks for what `GET` does.

| request | role |
|---|---|
"
        .to_owned();
        for route in all() {
            let role = route.role.map_or("everyone, without a token", Role::word);
            let more = route.admin_for.map(|what| format!("; admin for {what}")).unwrap_or_default();
            let _ = writeln!(text, "| `{} {}` | {role}{more} |", route.method.to_uppercase(), route.path);
        }
        check_generated("roles.md", &text);
    }

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
                    (true, "post") => &["400", "401", "403", "413", "415", "503"],
                    (true, _) => &["400", "401", "403", "503"],
                    (false, _) => &[],
                };
                for status in refused {
                    assert!(responses.contains_key(*status), "{method} {path} {status}");
                }
            }
        }
    }
}
