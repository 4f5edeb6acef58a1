//! Handlers in this process, for users of the library: an async function of a [`Context`].
//!
//! A handler that panics has failed that attempt and nothing else; an attempt of a replaced owner is refused before
//! the handler is entered. A call is broken off by dropping its future: what must not be left half done belongs in a
//! task of its own.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::guard::{Fenced, FencingGuard, NotAdmitted};
use super::{Call, Dispatch, Ending, one_line};
use crate::model::Outcome;
use crate::model::limits::RESULT_BYTES_MAX;

/// Runs tasks in this process. Implemented for every async closure of a [`Context`].
pub trait Handler: Send + Sync + 'static {
    /// Runs one attempt.
    fn run(&self, context: Context) -> BoxFuture<'static, Result<Done, Failure>>;
}

impl<F, R> Handler for F
where
    F: Fn(Context) -> R + Send + Sync + 'static,
    R: Future<Output = Result<Done, Failure>> + Send + 'static,
{
    fn run(&self, context: Context) -> BoxFuture<'static, Result<Done, Failure>> {
        Box::pin(self(context))
    }
}

/// How an attempt went well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Done {
    /// The task is done.
    Succeeded,
    /// The task is done, and this is its result: at most 16 KiB are kept, and that there was more.
    Result(Vec<u8>),
    /// Not yet: come back after this many milliseconds. Uses up no attempt.
    Snoozed(u64),
}

impl Done {
    /// Done, with a result as JSON.
    ///
    /// # Errors
    /// The result cannot be written as JSON: fatal.
    pub fn json<T: Serialize>(result: &T) -> Result<Done, Failure> {
        let bytes = serde_json::to_vec(result);
        bytes.map(Done::Result).map_err(|error| Failure::Fatal(format!("the result is no JSON: {error}")))
    }
}

/// How an attempt failed. Every error turns into [`Failure::Retryable`] by `?`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Try again.
    Retryable(String),
    /// Try again, not before this many milliseconds have passed.
    RetryAfter(String, u64),
    /// Trying again is no use.
    Fatal(String),
    /// The attempt belongs to a replaced owner.
    Fenced(Fenced),
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Failure {
        Failure::Retryable(error.to_string())
    }
}

/// One attempt, as its handler sees it.
#[derive(Clone, Debug)]
pub struct Context {
    /// The attempt: key, payload, token, number, deadline and what else is known.
    pub call: Call,
    guard: FencingGuard,
}

impl Context {
    /// The payload as a value.
    ///
    /// # Errors
    /// The payload is of another shape: fatal, as it will be so at the next attempt.
    pub fn payload<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        serde_json::from_slice(&self.call.payload)
            .map_err(|error| Failure::Fatal(format!("the payload is not as this handler needs it: {error}")))
    }

    /// Looks again, just before an effect, whether this attempt's owner has been replaced by one seen in this process.
    ///
    /// # Errors
    /// It has: stop here.
    pub fn check_fence(&self) -> Result<(), Failure> {
        let admitted = self.guard.admit(self.call.shard, &self.call.key.queue, self.call.token);
        admitted.map_err(|not| match not {
            NotAdmitted::Fenced(fenced) => Failure::Fenced(fenced),
            NotAdmitted::Disk(_) => Failure::Retryable(not.to_string()),
        })
    }
}

/// Calls a [`Handler`].
pub struct InProcess {
    handler: Arc<dyn Handler>,
    guard: FencingGuard,
}

impl InProcess {
    /// A dispatcher with a guard of its own.
    pub fn new(handler: impl Handler) -> InProcess {
        InProcess::with_guard(Arc::new(handler), FencingGuard::default())
    }

    /// A dispatcher that shares a guard with others that work on the same things.
    pub fn with_guard(handler: Arc<dyn Handler>, guard: FencingGuard) -> InProcess {
        InProcess { handler, guard }
    }
}

impl Dispatch for InProcess {
    fn call(&self, call: Call) -> BoxFuture<'static, Ending> {
        let handler = self.handler.clone();
        let context = Context { call, guard: self.guard.clone() };
        Box::pin(async move {
            if let Err(failure) = context.check_fence() {
                return ending(Err(failure));
            }
            let run = async move { handler.run(context).await };
            match AssertUnwindSafe(run).catch_unwind().await {
                Ok(answer) => ending(answer),
                Err(panic) => {
                    let text = one_line(&format!("the handler panicked: {}", panic_text(panic.as_ref())));
                    Ending::failed(Outcome::Retryable, text)
                }
            }
        })
    }
}

fn ending(answer: Result<Done, Failure>) -> Ending {
    match answer {
        Ok(Done::Succeeded) => Ending::of(Outcome::Succeeded),
        Ok(Done::Result(mut bytes)) => {
            let result_cut = bytes.len() > RESULT_BYTES_MAX;
            bytes.truncate(RESULT_BYTES_MAX);
            Ending { result: Some(bytes.into()), result_cut, ..Ending::of(Outcome::Succeeded) }
        }
        Ok(Done::Snoozed(ms)) => Ending { after_ms: Some(ms), ..Ending::of(Outcome::Snoozed) },
        Err(Failure::Retryable(error)) => Ending::failed(Outcome::Retryable, one_line(&error)),
        Err(Failure::RetryAfter(error, ms)) => {
            Ending { after_ms: Some(ms), ..Ending::failed(Outcome::Retryable, one_line(&error)) }
        }
        Err(Failure::Fatal(error)) => Ending::failed(Outcome::Fatal, one_line(&error)),
        Err(Failure::Fenced(fenced)) => {
            Ending { fenced: true, ..Ending::failed(Outcome::Aborted, fenced.to_string()) }
        }
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("with a value that is no text")
}

#[cfg(test)]
mod tests {
    use super::{Context, Done, Failure, Handler, InProcess};
    use crate::dispatch::tests::call;
    use crate::dispatch::{Call, Dispatch, Ending};
    use crate::model::Outcome;
    use crate::model::limits::RESULT_BYTES_MAX;

    #[derive(serde::Deserialize)]
    struct User {
        user: u32,
    }

    async fn run(handler: impl Handler, call: Call) -> Ending {
        InProcess::new(handler).call(call).await
    }

    #[tokio::test]
    async fn a_handler_reads_its_payload_and_answers() {
        let handler = async |context: Context| Done::json(&(context.payload::<User>()?.user + 1));
        let handler = move |context| handler(context);
        let ending = run(handler, call()).await;
        assert_eq!((ending.outcome, ending.result.as_deref()), (Outcome::Succeeded, Some(b"8".as_slice())));
    }

    #[tokio::test]
    async fn a_payload_of_another_shape_is_fatal() {
        let handler = |context: Context| async move {
            context.payload::<Vec<u32>>()?;
            Ok(Done::Succeeded)
        };
        let ending = run(handler, call()).await;
        assert_eq!(ending.outcome, Outcome::Fatal);
        assert!(ending.error.expect("an error").starts_with("the payload is not as this handler needs it"));
    }

    #[tokio::test]
    async fn every_error_is_retryable_and_each_answer_has_its_outcome() {
        let error = |_| async {
            "x".parse::<u32>()?;
            Ok(Done::Succeeded)
        };
        assert_eq!(
            run(error, call()).await,
            Ending::failed(Outcome::Retryable, "invalid digit found in string")
        );
        let later = |_| async { Err(Failure::RetryAfter("busy".into(), 700)) };
        assert_eq!(run(later, call()).await.after_ms, Some(700));
        let snooze = |_| async { Ok(Done::Snoozed(60_000)) };
        let ending = run(snooze, call()).await;
        assert_eq!((ending.outcome, ending.after_ms), (Outcome::Snoozed, Some(60_000)));
        let large = |_| async { Ok(Done::Result(vec![b'x'; 3 * RESULT_BYTES_MAX])) };
        let kept = run(large, call()).await;
        assert_eq!((kept.result.map(|bytes| bytes.len()), kept.result_cut), (Some(RESULT_BYTES_MAX), true));
    }

    #[tokio::test]
    async fn a_panic_ends_the_attempt_and_nothing_else() {
        async fn broken(context: Context) -> Result<Done, Failure> {
            assert!(context.call.attempt > 2, "attempt {} of\na broken handler", context.call.attempt);
            Ok(Done::Succeeded)
        }
        let dispatch = InProcess::new(broken);
        let ending = dispatch.call(call()).await;
        let text = "the handler panicked: attempt 2 of a broken handler";
        assert_eq!(ending, Ending::failed(Outcome::Retryable, text));
        let ending = dispatch.call(Call { attempt: 3, ..call() }).await;
        assert_eq!(ending.outcome, Outcome::Succeeded);
    }

    #[tokio::test]
    async fn an_attempt_of_a_replaced_owner_never_enters_the_handler() {
        let dispatch = InProcess::new(|_| async { Ok(Done::Succeeded) });
        let mut newer = call();
        newer.token.epoch.0 += 1;
        assert_eq!(dispatch.call(newer).await.outcome, Outcome::Succeeded);
        let ending = dispatch.call(call()).await;
        assert_eq!((ending.outcome, ending.fenced), (Outcome::Aborted, true));
        assert_eq!(
            ending.error.expect("an error"),
            "fencing token 0.3.41 is lower than 0.4.41, already seen for the queue"
        );
    }
}
