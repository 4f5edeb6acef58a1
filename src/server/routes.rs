//! Every route: what answers it, what it changes, and the role it asks for. The router, the OpenAPI document and
//! docs/roles.md are made from this table: there is no route without a role.

use std::sync::Arc;

use axum::Router;
use axum::handler::Handler;
use axum::middleware::from_fn_with_state;
use axum::routing::{self, MethodRouter};

use crate::config::Role;

use super::access::{self, Needs};
use super::{
    Shared, batches, dead_letters, document, drains, explain, gates, health, list, resets, shards, tasks,
    topics,
};

/// A route.
pub(super) struct Route {
    /// `get` or `post`.
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    /// `None` = everyone: no token is asked for.
    pub(super) role: Option<Role>,
    /// What of it is for admins only, as its handler checks.
    pub(super) admin_for: Option<&'static str>,
    /// What the audit log calls it; `None` = it only reads.
    verb: Option<&'static str>,
    answer: MethodRouter<Arc<Shared>>,
}

/// The routes that are bounded like all requests.
pub(super) fn asked() -> Vec<Route> {
    vec![
        viewer("/v1/tasks", list::tasks),
        operator("task_schedule", "/v1/tasks", tasks::schedule),
        operator("task_batch", "/v1/tasks:batch", tasks::batch),
        viewer("/v1/tasks/{queue}/{id}", tasks::show),
        operator("task_cancel", "/v1/tasks/{queue}/{id}/cancel", tasks::cancel),
        operator("task_reschedule", "/v1/tasks/{queue}/{id}/reschedule", tasks::reschedule),
        operator("task_redrive", "/v1/tasks/{queue}/{id}/redrive", tasks::redrive),
        operator("task_abort", "/v1/tasks/{queue}/{id}/abort", tasks::abort),
        operator("task_run", "/v1/tasks/{queue}/{id}/run", tasks::run),
        viewer("/v1/tasks/{queue}/{id}/explain", explain::task),
        viewer("/v1/queues", shards::queues),
        viewer("/v1/queues/{queue}", shards::queue),
        viewer("/v1/queues/{queue}/explain", explain::queue),
        operator("queue_pause", "/v1/queues/{queue}/pause", gates::pause),
        operator("queue_resume", "/v1/queues/{queue}/resume", gates::resume),
        viewer("/v1/dead-letters", dead_letters::list),
        viewer("/v1/gates", gates::list),
        operator("gate_set", "/v1/gates", gates::set).admin_for("a gate on everything"),
        operator("gate_clear", "/v1/gates:clear", gates::clear).admin_for("a gate on everything"),
        viewer("/v1/operations", gates::operations),
        viewer("/v1/batches", batches::list),
        operator("batch_begin", "/v1/batches", batches::begin).admin_for(WHOLE_BATCH),
        viewer("/v1/batches/{id}", batches::show),
        operator("batch_stop", "/v1/batches/{id}/stop", batches::stop),
        operator("batch_resume", "/v1/batches/{id}/resume", batches::resume).admin_for(WHOLE_BATCH),
        viewer("/v1/shards", shards::shards),
        admin("shard_reset", "/v1/shards:reset", resets::reset),
        viewer("/v1/instances", drains::instances),
        operator("instance_drain", "/v1/instances:drain", drains::drain).admin_for("a drain by force"),
        operator("instance_undrain", "/v1/instances:undrain", drains::undrain),
        viewer("/v1/handlers", shards::handlers),
        viewer("/v1/handlers/{handler}/explain", explain::handler),
        viewer("/v1/rejected", list::rejected),
        viewer("/v1/topics", topics::list),
        viewer("/v1/topics/{topic}/{partition}", topics::read),
        everyone("/openapi.json", document::served),
    ]
}

/// Probes and metrics, which are answered under any load and any name.
pub(super) fn probes() -> Vec<Route> {
    vec![
        everyone("/livez", health::livez),
        everyone("/readyz", health::readyz),
        everyone("/metrics", health::metrics),
    ]
}

const WHOLE_BATCH: &str =
    "a purge, and a batch over more than a queue, a handler or a collection, unless it is a dry run";

/// A router of these routes.
pub(super) fn router(shared: &Arc<Shared>, routes: Vec<Route>) -> Router<Arc<Shared>> {
    routes.into_iter().fold(Router::new(), |router, Route { path, role, verb, answer, .. }| {
        let checked = |role| {
            let needs = Needs { shared: shared.clone(), role, verb };
            answer.clone().route_layer(from_fn_with_state(needs, access::check))
        };
        router.route(path, role.map_or_else(|| answer.clone(), checked))
    })
}

fn everyone<H: Handler<T, Arc<Shared>>, T: 'static>(path: &'static str, handler: H) -> Route {
    let answer = routing::get(handler);
    Route { method: "get", path, role: None, admin_for: None, verb: None, answer }
}

fn viewer<H: Handler<T, Arc<Shared>>, T: 'static>(path: &'static str, handler: H) -> Route {
    Route { role: Some(Role::Viewer), ..everyone(path, handler) }
}

fn operator<H: Handler<T, Arc<Shared>>, T: 'static>(
    verb: &'static str,
    path: &'static str,
    handler: H,
) -> Route {
    let answer = routing::post(handler);
    Route { method: "post", path, role: Some(Role::Operator), admin_for: None, verb: Some(verb), answer }
}

fn admin<H: Handler<T, Arc<Shared>>, T: 'static>(
    verb: &'static str,
    path: &'static str,
    handler: H,
) -> Route {
    Route { role: Some(Role::Admin), ..operator(verb, path, handler) }
}

impl Route {
    fn admin_for(self, what: &'static str) -> Route {
        Route { admin_for: Some(what), ..self }
    }
}
