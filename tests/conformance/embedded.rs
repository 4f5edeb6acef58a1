//! The embedded adapters against the suites of both ports.

use std::sync::Arc;

use dueline::log::embedded::{EmbeddedLog, Options as LogOptions};
use dueline::log::{Answer, Consumer, Producer};
use dueline::model::Shard;
use dueline::store::embedded::{Database, EmbeddedStore, Options};
use dueline::testing::log_conformance::{self, Installation};
use dueline::testing::store_conformance::{self, Run};

#[tokio::test(flavor = "multi_thread")]
async fn the_embedded_store_keeps_what_the_port_promises() {
    let dir = tempfile::tempdir().expect("a directory can be made");
    let db = Database::open(&Options::at(dir.path())).expect("an empty directory opens");
    let store = Arc::new(EmbeddedStore::new(&db));
    for number in [1, 2] {
        store_conformance::check(store.clone(), Run::new(number, 4), |_| ()).await;
    }
}

struct OneProcess(EmbeddedLog);

impl Installation for OneProcess {
    fn shards(&self) -> u32 {
        8
    }

    fn member(&self, _name: &str) -> Arc<dyn Consumer> {
        self.0.consumer().expect("the suite joins once")
    }

    fn producer(&self) -> Arc<dyn Producer> {
        self.0.producer()
    }

    fn forget_below(&self, shard: Shard, offset: u64) -> Answer<bool> {
        self.0.forget_below(shard, offset)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_embedded_log_keeps_what_the_port_promises() {
    let dir = tempfile::tempdir().expect("a directory can be made");
    let db = Database::open(&Options::at(dir.path())).expect("an empty directory opens");
    let log = EmbeddedLog::open(&db, LogOptions::new("dueline", 8)).await.expect("an empty log opens");
    log_conformance::check(&OneProcess(log)).await;
}
