//! A build without the feature `otlp`: there is no tracer, and none can be made.

use crate::dispatch::Call;
use crate::model::Outcome;

/// Nothing.
#[derive(Debug)]
pub enum Tracer {}

/// Nothing.
#[derive(Clone, Debug)]
pub enum Attempt {}

impl Tracer {
    pub(crate) fn begin(&self, _call: &mut Call, _late_ms: Option<i64>) -> Attempt {
        match *self {}
    }

    pub(crate) async fn finish(&self) {
        match *self {}
    }
}

impl Attempt {
    pub(crate) fn end(&self, _outcome: Outcome) {
        match *self {}
    }
}
