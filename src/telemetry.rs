//! Logs: to stderr, as text on a terminal or as one JSON object a line. Spans of attempts: see [`otlp`].
//!
//! stdout is data and never logged to. The filter is a level or `target=level` with commas between, as in
//! `info,dueline::handler=warn`. The audit log is left out only by a filter that names it.

#[cfg(feature = "otlp")]
pub mod otlp;
#[cfg(not(feature = "otlp"))]
#[path = "telemetry/without_otlp.rs"]
pub mod otlp;

use std::io::{self, IsTerminal as _};

use tracing::Subscriber;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use crate::config::{Log, LogFormat};

/// The target of the audit log, which is on unless the filter names it.
const AUDIT: &str = "dueline::audit";

/// Why logging cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The filter cannot be read.
    #[error(
        "log.filter {filter:?} is not a filter: {detail}; write a level like \"info\" or \"info,rdkafka=warn\""
    )]
    Filter {
        /// The filter.
        filter: String,
        /// What is wrong with it.
        detail: String,
    },
    /// This process logs already.
    #[error("logging is already set up in this process")]
    AlreadySet,
}

/// Sets up logging for the process. Once.
///
/// # Errors
/// The filter cannot be read, or logging is set up already.
pub fn init(log: &Log) -> Result<(), Error> {
    let json = match log.format {
        LogFormat::Json => true,
        LogFormat::Text => false,
        LogFormat::Auto => !io::stderr().is_terminal(),
    };
    let color =
        io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let subscriber = subscriber(&log.filter, json, color, io::stderr)?;
    tracing::subscriber::set_global_default(subscriber).map_err(|_| Error::AlreadySet)
}

fn read_filter(filter: &str) -> Result<EnvFilter, Error> {
    let error = |error: &dyn std::fmt::Display| Error::Filter {
        filter: filter.to_owned(),
        detail: error.to_string(),
    };
    let read = EnvFilter::try_new(filter).map_err(|why| error(&why))?;
    if filter.contains(AUDIT) {
        return Ok(read);
    }
    let directive = format!("{AUDIT}=info").parse();
    Ok(read.add_directive(directive.map_err(|why| error(&why))?))
}

fn subscriber<W>(
    filter: &str,
    json: bool,
    color: bool,
    writer: W,
) -> Result<Box<dyn Subscriber + Send + Sync>, Error>
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let builder = tracing_subscriber::fmt().with_env_filter(read_filter(filter)?).with_writer(writer);
    Ok(if json {
        Box::new(builder.json().flatten_event(true).with_current_span(false).with_span_list(true).finish())
    } else {
        Box::new(builder.with_ansi(color).finish())
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use super::{read_filter, subscriber};

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

    fn logged(filter: &str, json: bool) -> String {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = subscriber(filter, json, false, move || writer.clone()).expect("a filter");
        tracing::subscriber::with_default(subscriber, || {
            tracing::info!(shard = 7, "shard assigned");
            tracing::debug!("not of interest");
        });
        let bytes = lines.0.lock().expect("not poisoned").clone();
        String::from_utf8(bytes).expect("UTF-8")
    }

    #[test]
    fn a_json_line_is_one_object_with_its_fields() {
        let text = logged("info", true);
        assert_eq!(text.lines().count(), 1, "{text}");
        let line: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(
            (&line["level"], &line["message"], &line["shard"]),
            (&"INFO".into(), &"shard assigned".into(), &7.into())
        );
        assert_eq!(line["target"], "dueline::telemetry::tests");
    }

    #[test]
    fn text_has_no_colors_where_there_is_no_terminal() {
        let text = logged("debug", false);
        assert!(text.contains("shard assigned shard=7") && !text.contains('\u{1b}'), "{text}");
        assert_eq!(text.lines().count(), 2);
        assert_eq!(logged("error", false), "");
    }

    #[test]
    fn the_audit_log_is_left_out_only_by_its_name() {
        let audited = |filter: &str| {
            let lines = Lines::default();
            let writer = lines.clone();
            let subscriber = subscriber(filter, false, false, move || writer.clone()).expect("a filter");
            tracing::subscriber::with_default(
                subscriber,
                || tracing::info!(target: "dueline::audit", "asked"),
            );
            !lines.0.lock().expect("not poisoned").is_empty()
        };
        assert!(audited("info") && audited("error") && audited("dueline=warn"));
        assert!(!audited("info,dueline::audit=off"));
    }

    #[test]
    fn a_filter_that_cannot_be_read_is_refused() {
        assert!(read_filter("info,rdkafka=warn").is_ok());
        let error = read_filter("dueline=loud").expect_err("no such level").to_string();
        assert!(error.starts_with("log.filter \"dueline=loud\" is not a filter: "), "{error}");
    }
}
