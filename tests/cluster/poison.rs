//! Records that nobody should send: each goes to the rejected topic as it is, and its shard goes on.

use crate::checker::{self, Order};
use crate::client::Client;
use crate::clock::until;
use crate::ledger::Planned;
use crate::servers::Turn;
use crate::site::{Wanted, on_site};
use crate::survive::rejected_are_those_that_are_malformed;

const QUEUES: usize = 40;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn poison_is_rejected_and_its_shard_goes_on() {
    // Records of ten megabytes are let in, as somebody may have done for another reason.
    let wanted = Wanted { record_bytes_max: 11 << 20, shards: 4, ..Wanted::named("poison") };
    on_site(wanted, Turn::Shared, |site| async move {
        let first = site.ready("first").await;
        let huge = vec![b'x'; 10 << 20];
        let task = |queue: usize, id: &str| Planned::schedule(0, &format!("q-{queue}"), id, None, "{}");
        let before = (0..QUEUES).map(|n| task(n, "before"));
        let poison = [
            (Some(&b"q-0"[..]), Some(&huge[..])),
            (Some(b"q-0"), None),
            (Some(b"q-1"), Some(b"\xff\xfe{}")),
            (None, Some(b"no key, no sense")),
            (None, None),
            (Some(b"\xff\xff"), Some(br#"{"queue":"q","id":"a","handler":"nobody"}"#)),
            (Some(b""), Some(b"")),
            (Some(b"q-2"), Some(&[0; 70_000])),
        ];
        let poison = poison.into_iter().map(|(key, value)| Planned::nonsense(0, key, value));
        // No key at all, or that of another queue, is no fault: the queue in the event counts.
        let mut unkeyed = task(0, "without-key");
        unkeyed.key = None;
        let mut misled = task(1, "another-key");
        misled.key = Some(b"q-2".to_vec());
        let after = (0..QUEUES).map(|n| task(n, "after"));
        let plan = before.chain(poison).chain([unkeyed, misled]).chain(after).collect();
        let sent = Client::ConfluentMurmur2.produce(&site, plan).await;
        until("all tasks around the poison run", 60, || site.sink.done() == 2 * QUEUES + 2).await;
        rejected_are_those_that_are_malformed(&site, &sent).await;
        // Those records overtake or are overtaken: they lie elsewhere.
        checker::check(&sent, &site.sink.calls(), Order::NotPromised).expect_clean();
        assert!(first.stop().await.success());
    })
    .await;
}
