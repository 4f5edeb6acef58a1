//! A node: one instance assembled from its configuration, embedded or on servers.
//!
//! The only place that knows every adapter. Everything else is given ports.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use dueline::dispatch::in_process::{Context, Done};
//! use dueline::node::Node;
//!
//! let node = Node::embedded("./data")
//!     .handler("greet", |context: Context| async move {
//!         println!("due {:?}: {}", context.call.due_at, String::from_utf8_lossy(&context.call.payload));
//!         Ok(Done::Succeeded)
//!     })
//!     .start()
//!     .await?;
//! # node.stop().await; Ok(()) }
//! ```

#[cfg(feature = "cassandra")]
pub use connect::cassandra_options;
#[cfg(feature = "kafka")]
pub use connect::{kafka_options, wanted_topics};

mod connect;
mod neighbours;
mod redundancy;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::config::Config;
use crate::dispatch::guard::FencingGuard;
use crate::dispatch::in_process::{Handler, InProcess};
use crate::dispatch::registry::{self, Kind, Resources, Route};
use crate::dispatch::{Dispatch, Policy, Registry};
use crate::log::{self, Consumer, Producer};
use crate::metrics::{self, Metrics};
use crate::model::{HandlerName, HeadPolicies, NameError, limits};
use crate::runtime::{self, Parts, Service};
use crate::store::metered::{BeforeWrite, Metered};
use crate::store::{self, Cluster, Store};
use crate::telemetry::otlp::Tracer;
use crate::wire::event::{Handlers, Rules};

/// Why a node does not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The data directory of an embedded node.
    #[error(transparent)]
    Data(#[from] store::embedded::OpenError),
    /// The store.
    #[error("store: {0}")]
    Store(#[from] store::Error),
    /// The log.
    #[error("log: {0}")]
    Log(#[from] log::Error),
    /// The handlers.
    #[error("handlers: {0}")]
    Handlers(#[from] registry::Error),
    /// A handler's name.
    #[error("the handler name {0:?} {1}")]
    HandlerName(String, NameError),
    /// The configuration disagrees with what the store was created with.
    #[error(
        "the store was created with {what} = {stored}, the configuration says {wanted}: these are fixed for good"
    )]
    Fixed {
        /// Which setting.
        what: &'static str,
        /// What the store has.
        stored: String,
        /// What the configuration has.
        wanted: String,
    },
    /// The export of spans.
    #[cfg(feature = "otlp")]
    #[error(transparent)]
    Otlp(#[from] crate::telemetry::otlp::Error),
    /// A part that this binary was built without.
    #[error("this binary was built without the feature {0:?}")]
    Feature(&'static str),
}

/// What a node is made of, before it starts.
pub struct Builder {
    config: Config,
    code: Vec<(String, Arc<dyn Handler>)>,
    guard: FencingGuard,
    before_write: Option<BeforeWrite>,
}

/// The two halves of the world a node stands between.
pub(crate) struct Backends {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) consumer: Arc<dyn Consumer>,
    pub(crate) producer: Arc<dyn Producer>,
    /// For task events.
    pub(crate) events_producer: Arc<dyn Producer>,
    /// Writes for topic handlers.
    pub(crate) handlers_producer: Arc<dyn Producer>,
    /// The embedded log, where topics can be read back.
    pub(crate) embedded: Option<log::embedded::EmbeddedLog>,
    /// What says whether a data centre could be lost; `None` when embedded.
    redundancy: Option<redundancy::Redundancy>,
}

/// A running node.
#[derive(Clone)]
pub struct Node {
    inner: Arc<Inner>,
}

struct Inner {
    config: Config,
    service: Service,
    backends: Backends,
    registry: Arc<Registry>,
    metrics: Arc<Metrics>,
    rules: Rules,
    cluster: Cluster,
    /// Ends with the node.
    _redundancy: Option<redundancy::Watch>,
}

impl Node {
    /// An embedded node: no servers, everything under `data`.
    pub fn embedded(data: impl AsRef<Path>) -> Builder {
        let listen = std::net::SocketAddr::from(([127, 0, 0, 1], 7420));
        Node::builder(Config::dev(data.as_ref(), listen))
    }

    /// A node as configured.
    pub fn builder(config: Config) -> Builder {
        Builder { config, code: Vec::new(), guard: FencingGuard::default(), before_write: None }
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.inner.config
    }

    /// The running shards.
    pub fn service(&self) -> &Service {
        &self.inner.service
    }

    /// The store.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.inner.backends.store
    }

    /// The reading side of the log.
    pub fn consumer(&self) -> &Arc<dyn Consumer> {
        &self.inner.backends.consumer
    }

    /// The writing side of the log.
    pub fn producer(&self) -> &Arc<dyn Producer> {
        &self.inner.backends.producer
    }

    /// The embedded log, when there is one.
    pub fn embedded_log(&self) -> Option<&log::embedded::EmbeddedLog> {
        self.inner.backends.embedded.as_ref()
    }

    /// The handlers.
    pub fn registry(&self) -> &Arc<Registry> {
        &self.inner.registry
    }

    /// The metrics.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.inner.metrics
    }

    /// What events are checked against.
    pub fn rules(&self) -> &Rules {
        &self.inner.rules
    }

    /// What the store was created with.
    pub fn cluster(&self) -> &Cluster {
        &self.inner.cluster
    }

    /// Stops in order: lets go of all shards, which run on for a moment, starts nothing more, waits for running calls.
    pub async fn stop(&self) {
        self.inner.service.stop(self.stop_wait()).await;
    }

    /// The first half of [`Node::stop`]: lets go of all shards. Whoever asks is still answered.
    pub(crate) async fn let_go(&self) {
        self.inner.service.let_go().await;
    }

    /// The second half: waits for running calls.
    pub(crate) async fn finish(&self) {
        self.inner.service.finish(self.stop_wait()).await;
    }

    fn stop_wait(&self) -> Duration {
        Duration::from_millis(self.inner.config.instance.stop_wait_ms)
    }
}

impl Builder {
    /// Adds a handler that runs in this process. An async closure of a `Context` is one.
    #[must_use]
    pub fn handler(mut self, name: &str, handler: impl Handler) -> Builder {
        self.code.push((name.to_owned(), Arc::new(handler)));
        self
    }

    /// Fences the handlers of this process by this guard, instead of one in memory: all of them, as a queue has one row of
    /// tokens whichever handler its tasks have.
    #[must_use]
    pub fn guard(mut self, guard: FencingGuard) -> Builder {
        self.guard = guard;
        self
    }

    /// Tells somebody the rows of every write to the store, who may hold it up.
    #[must_use]
    pub(crate) fn before_write(mut self, before: BeforeWrite) -> Builder {
        self.before_write = Some(before);
        self
    }

    /// Opens store and log, joins the group, runs.
    ///
    /// # Errors
    /// What is missing or wrong, with what to do about it.
    pub async fn start(mut self) -> Result<Node, Error> {
        let code = self.take_code()?;
        let mut backends = connect::open(&self.config).await?;
        let cluster = agreed_cluster(&self.config, &backends.store).await?;
        let resources = Resources {
            producer: backends.handlers_producer.clone(),
            code,
            loopback_urls: self.config.loopback_urls(),
        };
        let registry = Arc::new(Registry::build(self.config.handlers.clone(), resources)?);
        let metrics = Arc::new(Metrics::new(metrics::Options {
            handlers: registry.handlers().map(|(name, _, _)| name.clone()).collect(),
            on_servers: backends.redundancy.is_some(),
        }));
        let tracer = tracer(&self.config, &cluster, &metrics)?;
        let store = Metered::new(backends.store, metrics.clone()).asking(self.before_write.take());
        backends.store = Arc::new(store);
        let rules = Rules {
            payload_bytes_max: self.config.limits.payload_bytes,
            handlers: Arc::new(Handlers {
                names: registry.handlers().map(|(name, _, _)| name.to_string()).collect(),
                loopback_urls: self.config.loopback_urls().is_some(),
                heads: HeadPolicies {
                    of_queues: self.config.queues.clone(),
                    of_handlers: (registry.handlers())
                        .map(|(name, _, policy)| (name.to_string(), policy.head))
                        .collect(),
                },
            }),
            signing_key: cluster.signing_key,
        };
        neighbours::warn(&self.config, &backends.store).await;
        let mut options = options_of(&self.config);
        if backends.embedded.is_some() {
            // Nobody else can come.
            options.sole_owner = true;
            options.timing.run_on_ms = 0;
        }
        let service = Service::start(Parts {
            store: backends.store.clone(),
            consumer: backends.consumer.clone(),
            producer: backends.producer.clone(),
            events_producer: backends.events_producer.clone(),
            registry: registry.clone(),
            metrics: metrics.clone(),
            tracer,
            rules: rules.clone(),
            cluster: cluster.clone(),
            options,
        });
        let config = self.config;
        let _redundancy = backends.redundancy.take().map(|redundancy| redundancy.watch(metrics.clone()));
        let inner = Inner { config, service, backends, registry, metrics, rules, cluster, _redundancy };
        Ok(Node { inner: Arc::new(inner) })
    }

    /// The code of in-process handlers by name; those the configuration does not name get a route of their own.
    fn take_code(&mut self) -> Result<BTreeMap<HandlerName, Arc<dyn Dispatch>>, Error> {
        let mut code = BTreeMap::new();
        for (text, handler) in std::mem::take(&mut self.code) {
            let name = HandlerName::new(&text).map_err(|error| Error::HandlerName(text, error))?;
            if !self.config.handlers.iter().any(|route| route.name == name) {
                let route = Route { name: name.clone(), policy: Policy::default(), kind: Kind::InProcess };
                self.config.handlers.push(route);
            }
            let dispatch: Arc<dyn Dispatch> = Arc::new(InProcess::with_guard(handler, self.guard.clone()));
            code.insert(name, dispatch);
        }
        Ok(code)
    }
}

#[cfg(feature = "otlp")]
fn tracer(config: &Config, cluster: &Cluster, metrics: &Arc<Metrics>) -> Result<Option<Tracer>, Error> {
    Ok(Tracer::start(config, &cluster.signing_key, metrics.clone())?)
}

#[cfg(not(feature = "otlp"))]
fn tracer(config: &Config, _: &Cluster, _: &Arc<Metrics>) -> Result<Option<Tracer>, Error> {
    if config.otlp.endpoint.is_some() { Err(Error::Feature("otlp")) } else { Ok(None) }
}

/// The cluster row, which has to agree with the configuration.
async fn agreed_cluster(config: &Config, store: &Arc<dyn Store>) -> Result<Cluster, Error> {
    let mut signing_key = [0; 32];
    signing_key[..16].copy_from_slice(uuid::Uuid::new_v4().as_bytes());
    signing_key[16..].copy_from_slice(uuid::Uuid::new_v4().as_bytes());
    let wanted = Cluster {
        shards: config.topics.partitions,
        bucket_ms: limits::BUCKET_MS,
        subs: 1,
        hash: "murmur2".to_owned(),
        signing_key,
    };
    let stored = store.cluster(wanted.clone()).await?;
    let differs = |what, stored: String, wanted: String| Err(Error::Fixed { what, stored, wanted });
    if stored.shards != wanted.shards {
        return differs("topics.partitions", stored.shards.to_string(), wanted.shards.to_string());
    }
    if stored.hash != wanted.hash {
        return differs("hash", stored.hash, wanted.hash);
    }
    Ok(stored)
}

fn options_of(config: &Config) -> runtime::Options {
    let lease_ms = config.lease_ms;
    runtime::Options {
        instance: config.instance.name.clone(),
        dc: config.instance.dc.clone(),
        advertise: config.http.advertise.clone(),
        timing: crate::engine::Timing {
            lease_ms,
            verify_ms: lease_ms / 4,
            margin_ms: lease_ms / 6,
            ..crate::engine::Timing::default()
        },
        tasks_in_memory: config.limits.tasks_in_memory,
        intake_bytes: config.limits.intake_bytes,
        events_bytes: config.limits.events_bytes,
        ids_in_memory: config.limits.ids_in_memory,
        look_ahead_ms: limits::LOOK_AHEAD_MS,
        ends_wait_ms: limits::ENDS_WAIT_MS,
        repeat_window_ms: i64::try_from(config.retention.repeat_window_ms).unwrap_or(i64::MAX),
        history_ms: config.retention.history_ms,
        collections: Arc::new(config.collections.clone()),
        task_events: config.topics.task_events,
        dead_letters: config.topics.dead_letters,
        group: config.kafka.group.clone(),
        prefix: config.topics.prefix.clone(),
        sole_owner: false,
        static_member: config.kafka.group_instance.is_some(),
    }
}
