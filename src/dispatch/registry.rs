//! The handlers of a process by name: which exist, what their tasks get by default, and how they are called.
//!
//! Made once at start from routes; never changes after. A name that is a loopback URL is a handler only where the
//! registry was told so (`dueline dev`).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;

use super::http::{self, ClientError, Connections, Http, Loopback, check_loopback};
use super::log_line::{self, LogLine};
use super::topic::{self, ToTopic};
use super::{Call, Dispatch, Ending};
use crate::log::Producer;
use crate::model::{
    BreakerPolicy, HandlerName, HeadPolicy, OpenAttempts, Outcome, Rate, Reserve, RetryPolicy, limits,
};

/// What the tasks of a handler get when they do not say otherwise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Policy {
    /// Time for one attempt, in milliseconds.
    pub timeout_ms: u64,
    /// The retry policy.
    pub retry: RetryPolicy,
    /// Attempts under way at once on this instance, at least 1.
    pub concurrency: u32,
    /// Attempts that begin, over all instances; `None` = as many as come.
    pub rate: Option<Rate>,
    /// When its target is left alone; `None` = never.
    pub breaker: Option<BreakerPolicy>,
    /// Slots that are kept for high priorities.
    pub reserve: Option<Reserve>,
    /// Attempts of late tasks that begin, over all instances; `None` = as the others.
    pub catch_up: Option<Rate>,
    /// Schedule events that are taken in, over all shards; `None` = as many as come.
    pub intake: Option<Rate>,
    /// What follows an attempt whose end nobody knows.
    pub open_attempts: OpenAttempts,
    /// What a task that fails or dies does to its queue, where neither task nor queue says.
    pub head: HeadPolicy,
}

impl Default for Policy {
    fn default() -> Self {
        Policy {
            timeout_ms: limits::TIMEOUT_MS,
            retry: RetryPolicy::default(),
            concurrency: 64,
            rate: None,
            breaker: None,
            reserve: None,
            catch_up: None,
            intake: None,
            open_attempts: OpenAttempts::default(),
            head: HeadPolicy::default(),
        }
    }
}

/// A handler as configured.
#[derive(Clone, Debug)]
pub struct Route {
    /// Its name.
    pub name: HandlerName,
    /// What its tasks get.
    pub policy: Policy,
    /// How it is called.
    pub kind: Kind,
}

/// The kinds of handlers.
#[derive(Clone, Debug)]
pub enum Kind {
    /// An HTTP callback.
    Http(http::Options),
    /// A Kafka topic.
    Topic(topic::Options),
    /// A log line.
    Log(log_line::Options),
    /// Code in this process, given to [`Registry::build`] under the same name.
    InProcess,
}

impl Kind {
    /// The word used in config and API.
    pub fn word(&self) -> &'static str {
        match self {
            Kind::Http(_) => "http",
            Kind::Topic(_) => "topic",
            Kind::Log(_) => "log",
            Kind::InProcess => "in-process",
        }
    }
}

/// Why the handlers cannot be set up.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// An HTTP client cannot be made.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// A handler of kind `in-process` without code.
    #[error("handler {0:?} has the kind \"in-process\", but this process was given no code for it")]
    NoCode(String),
    /// Code without a handler of kind `in-process`.
    #[error("code was given for {0:?}, but no handler of kind \"in-process\" has that name")]
    NoRoute(String),
    /// Two handlers with one name.
    #[error("two handlers have the name {0:?}")]
    Duplicate(String),
}

/// What the routes are called with.
pub struct Resources {
    /// Writes for topic handlers.
    pub producer: Arc<dyn Producer>,
    /// Code for handlers of kind `in-process`, by name.
    pub code: BTreeMap<HandlerName, Arc<dyn Dispatch>>,
    /// Loopback URLs are handlers, with this policy.
    pub loopback_urls: Option<Policy>,
}

struct Entry {
    dispatch: Arc<dyn Dispatch>,
    policy: Policy,
    kind: &'static str,
}

/// The handlers of a process.
pub struct Registry {
    by_name: BTreeMap<HandlerName, Entry>,
    loopback: Option<Entry>,
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry").field("names", &self.by_name.keys()).finish_non_exhaustive()
    }
}

impl Registry {
    /// Sets up all handlers.
    ///
    /// # Errors
    /// Names twice, routes and code that do not match, or no usable TLS while a handler needs it.
    pub fn build(routes: Vec<Route>, mut resources: Resources) -> Result<Registry, Error> {
        let connections = connections(&routes)?;
        let mut by_name = BTreeMap::new();
        for Route { name, policy, kind } in routes {
            let word = kind.word();
            let dispatch: Arc<dyn Dispatch> = match kind {
                Kind::Http(options) => Arc::new(Http::new(&connections, options)?),
                Kind::Topic(options) => Arc::new(ToTopic::new(resources.producer.clone(), options)),
                Kind::Log(options) => Arc::new(LogLine::new(options)),
                Kind::InProcess => {
                    resources.code.remove(&name).ok_or_else(|| Error::NoCode(name.to_string()))?
                }
            };
            if by_name.insert(name.clone(), Entry { dispatch, policy, kind: word }).is_some() {
                return Err(Error::Duplicate(name.to_string()));
            }
        }
        if let Some(name) = resources.code.keys().next() {
            return Err(Error::NoRoute(name.to_string()));
        }
        let loopback = match resources.loopback_urls {
            None => None,
            Some(policy) => Some(Entry { dispatch: Arc::new(Loopback::new()?), policy, kind: "http" }),
        };
        Ok(Registry { by_name, loopback })
    }

    /// Whether the name is a handler; what is not is rejected at intake.
    pub fn known(&self, name: &str) -> bool {
        HandlerName::new(name).is_ok_and(|name| self.entry(&name).is_some())
    }

    /// What the tasks of a handler get; `None` = no such handler.
    pub fn policy(&self, name: &HandlerName) -> Option<Policy> {
        self.entry(name).map(|entry| entry.policy)
    }

    /// The configured handlers in order of name: name, word of the kind, policy.
    pub fn handlers(&self) -> impl Iterator<Item = (&HandlerName, &'static str, Policy)> {
        self.by_name.iter().map(|(name, entry)| (name, entry.kind, entry.policy))
    }

    /// Calls the call's handler. One that is not configured here is retryable: another instance may have it, and the
    /// task was accepted when somebody had it.
    pub fn call(&self, call: Call) -> BoxFuture<'static, Ending> {
        match self.entry(&call.handler) {
            Some(entry) => entry.dispatch.call(call),
            None => {
                let error = format!("handler {:?} is not configured on this instance", call.handler.as_str());
                Box::pin(async move { Ending::failed(Outcome::Retryable, error) })
            }
        }
    }

    fn entry(&self, name: &HandlerName) -> Option<&Entry> {
        let loopback = || self.loopback.as_ref().filter(|_| check_loopback(name.as_str()).is_ok());
        self.by_name.get(name).or_else(loopback)
    }
}

impl Dispatch for Registry {
    fn call(&self, call: Call) -> BoxFuture<'static, Ending> {
        Registry::call(self, call)
    }
}

/// TLS is set up only where a handler needs it, so that a machine without CA certificates can do without.
fn connections(routes: &[Route]) -> Result<Connections, ClientError> {
    let needs_tls =
        |route: &Route| matches!(&route.kind, Kind::Http(options) if options.url.scheme() == "https");
    let plain = Connections::new()?;
    if routes.iter().any(needs_tls) { plain.with_tls() } else { Ok(plain) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use futures::future::BoxFuture;

    use super::{Error, Kind, Policy, Registry, Resources, Route};
    use crate::dispatch::in_process::{Done, InProcess};
    use crate::dispatch::tests::call;
    use crate::dispatch::{Dispatch, http, log_line, topic};
    use crate::log::{Answer, Message, Producer, Written};
    use crate::model::{HandlerName, Outcome};

    struct NoTopics;

    impl Producer for NoTopics {
        fn produce(&self, _message: Message) -> Answer<Written> {
            Box::pin(async { Ok(Written { partition: 0, offset: Some(0), appended: None }) })
        }

        fn flush(&self, _wait_ms: u64) -> BoxFuture<'static, ()> {
            Box::pin(async {})
        }
    }

    fn name(text: &str) -> HandlerName {
        HandlerName::new(text).expect("a name")
    }

    fn route(text: &str, kind: Kind) -> Route {
        Route { name: name(text), policy: Policy { concurrency: 7, ..Policy::default() }, kind }
    }

    fn log_route(text: &str) -> Route {
        route(text, Kind::Log(log_line::Options::default()))
    }

    fn resources(code: &[&str]) -> Resources {
        let dispatch: Arc<dyn Dispatch> = Arc::new(InProcess::new(|_| async { Ok(Done::Succeeded) }));
        let code: BTreeMap<_, _> = code.iter().map(|text| (name(text), dispatch.clone())).collect();
        Resources { producer: Arc::new(NoTopics), code, loopback_urls: None }
    }

    #[tokio::test]
    async fn each_kind_is_found_by_name_with_its_policy() {
        let http = http::Options {
            url: http::parse_url("http://127.0.0.1:9/x").expect("a url"),
            secrets: Vec::new(),
            statuses: http::StatusRules::default(),
        };
        let routes = vec![
            route("web", Kind::Http(http)),
            route("to-topic", Kind::Topic(topic::Options { topic: "orders".into() })),
            log_route("line"),
            route("notify", Kind::InProcess),
        ];
        let registry = Registry::build(routes, resources(&["notify"])).expect("a registry");
        let kinds: Vec<_> = registry.handlers().map(|(name, kind, _)| (name.as_str(), kind)).collect();
        let wanted = [("line", "log"), ("notify", "in-process"), ("to-topic", "topic"), ("web", "http")];
        assert_eq!(kinds, wanted);
        assert_eq!(registry.policy(&name("line")).map(|policy| policy.concurrency), Some(7));
        assert!(registry.known("web") && !registry.known("webs") && !registry.known(""));
        assert_eq!(registry.call(call()).await.outcome, Outcome::Succeeded);
    }

    #[tokio::test]
    async fn a_handler_that_is_not_configured_here_is_tried_again() {
        let registry = Registry::build(vec![], resources(&[])).expect("a registry");
        assert_eq!(registry.policy(&name("notify")), None);
        let ending = registry.call(call()).await;
        assert_eq!(ending.outcome, Outcome::Retryable);
        assert_eq!(ending.error.as_deref(), Some("handler \"notify\" is not configured on this instance"));
    }

    #[test]
    fn loopback_urls_are_handlers_only_where_allowed() {
        let url = "http://127.0.0.1:9000/notify";
        let closed = Registry::build(vec![], resources(&[])).expect("a registry");
        assert!(!closed.known(url));
        let allowed = Resources { loopback_urls: Some(Policy::default()), ..resources(&[]) };
        let open = Registry::build(vec![], allowed).expect("a registry");
        assert!(open.known(url) && !open.known("http://10.0.0.1/") && !open.known("notify"));
        assert_eq!(open.policy(&name(url)), Some(Policy::default()));
    }

    #[test]
    fn routes_and_code_have_to_match() {
        let in_process = || vec![route("notify", Kind::InProcess)];
        assert!(matches!(Registry::build(in_process(), resources(&[])), Err(Error::NoCode(_))));
        assert!(matches!(Registry::build(vec![], resources(&["notify"])), Err(Error::NoRoute(_))));
        let twice = vec![log_route("a"), log_route("a")];
        assert!(matches!(Registry::build(twice, resources(&[])), Err(Error::Duplicate(_))));
    }
}
