//! Plain values that every other room shares: names, times, tasks, rows.
//!
//! Std only. Nothing here performs, decides or encodes anything; a value checks its own bounds when it is made
//! and is right from then on.

pub mod batch;
pub mod drain;
pub mod event;
pub mod gate;
pub mod home;
pub mod late;
pub mod limits;
pub mod name;
pub mod owner;
pub mod rate;
pub mod reset;
pub mod row;
pub mod task;
pub mod task_event;
pub mod time;

pub use batch::{Batch, BatchFilter, BatchProgress, BatchVerb, Batches, KnownBatch, Reached};
pub use drain::{Drains, Place as DrainPlace};
pub use event::{Due, Event, Origin, Redrive, RejectReason, Rejection, Verb};
pub use gate::{Bar, Blackout, Change, Closed, Gate, GateAction, Gates, Operation, Target};
pub use home::{Print, home_shard, partition_of};
pub use late::{LateEntry, LateQueueRow, Pointer, PointerPage, PointerRange, PointerRow, Segment, Standing};
pub use name::{HandlerName, NameError, QueueName, TaskId, TaskKey};
pub use owner::{
    AttemptToken, Epoch, Generation, OriginMark, OwnerRow, OwnerUuid, Progress, Release, Shard, Told, Version,
};
pub use rate::{BreakerPolicy, CollectionLimit, CollectionLimits, NoRate, Rate, Reserve};
pub use reset::{Reset, Resets};
pub use row::{
    Current, DeadLetterRow, Decision, Died, Ended, EventRow, Fact, FactRow, IdsRow, ListedIds, MarkKind,
    PayloadRow, Place, Row, Started,
};
pub use task::{
    CloseReason, HeadPolicies, HeadPolicy, Misfire, OnConflict, OnDead, OnFailure, OpenAttempts, Outcome,
    Payload, RetryPolicy, TaskContent, TaskState,
};
pub use task_event::{Cause, TaskEvent, TaskEventKind};
pub use time::{Boot, Now, Wall};
