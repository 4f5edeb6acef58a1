//! Handlers that write one log line per attempt and always succeed: to try things out, and as a tap.
//!
//! The payload is the user's and does not belong in logs: only its length is written, unless its start is asked for,
//! as `dueline dev` does.

use futures::future::BoxFuture;

use super::{Call, Dispatch, Ending, cut, one_line, wall_now};
use crate::model::Outcome;

/// Longest start of a payload in a line, in bytes.
pub const SHOWN_BYTES_MAX: usize = 200;

/// How the line is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Whether the start of the payload is in it, at most 200 bytes.
    pub show_payload: bool,
}

/// Writes a line at INFO under the target `dueline::handler`.
#[derive(Clone, Copy, Debug)]
pub struct LogLine {
    options: Options,
}

impl LogLine {
    /// A dispatcher.
    pub fn new(options: Options) -> LogLine {
        LogLine { options }
    }
}

impl Dispatch for LogLine {
    fn call(&self, call: Call) -> BoxFuture<'static, Ending> {
        let shown = self.options.show_payload.then(|| start_of(&call.payload));
        Box::pin(async move {
            tracing::info!(
                target: "dueline::handler",
                handler = call.handler.as_str(),
                queue = call.key.queue.as_str(),
                id = call.key.id.as_str(),
                attempt = call.attempt,
                lateness_ms = wall_now().ms_since(call.due_at),
                payload_bytes = call.payload.len(),
                payload = shown,
                "task"
            );
            Ending::of(Outcome::Succeeded)
        })
    }
}

fn start_of(payload: &[u8]) -> String {
    let start = &payload[..payload.len().min(SHOWN_BYTES_MAX)];
    let text = one_line(&String::from_utf8_lossy(start));
    cut(&text, SHOWN_BYTES_MAX).to_owned()
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use super::{LogLine, Options, start_of};
    use crate::dispatch::tests::call;
    use crate::dispatch::{Dispatch, Ending};
    use crate::model::Outcome;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().expect("not poisoned").write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn line_of(options: Options) -> serde_json::Value {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt().json().with_writer(move || writer.clone()).finish();
        let ending = tracing::subscriber::with_default(subscriber, || {
            futures::executor::block_on(LogLine::new(options).call(call()))
        });
        assert_eq!(ending, Ending::of(Outcome::Succeeded));
        let bytes = lines.0.lock().expect("not poisoned").clone();
        serde_json::from_slice(&bytes).expect("one line of JSON")
    }

    #[test]
    fn one_line_says_which_task_ran_and_how_late() {
        let line = line_of(Options::default());
        assert_eq!((&line["target"], &line["level"]), (&"dueline::handler".into(), &"INFO".into()));
        let fields = &line["fields"];
        assert_eq!(fields["queue"], "incident 42");
        assert_eq!(fields["id"], "notify/1");
        assert_eq!(fields["attempt"], 2);
        assert_eq!(fields["payload_bytes"], 10);
        assert!(fields["lateness_ms"].is_u64());
        assert!(fields.get("payload").is_none(), "{fields}");
    }

    #[test]
    fn the_payload_is_shown_only_when_asked_for_and_only_its_start() {
        assert_eq!(line_of(Options { show_payload: true })["fields"]["payload"], r#"{"user":7}"#);
        assert_eq!(start_of(&[b'x'; 500]).len(), 200);
        assert!(start_of(&[0xff; 500]).len() <= 200);
        assert_eq!(start_of(b"a\nb"), "a b");
    }
}
