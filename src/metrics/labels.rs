//! The closed sets of label values that no value of the model has yet.

use crate::store;

macro_rules! label {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)+
        }

        impl $name {
            /// All of them.
            pub const ALL: [$name; [$($word),+].len()] = [$($name::$variant),+];

            /// The label's value.
            pub fn word(self) -> &'static str {
                match self {
                    $($name::$variant => $word,)+
                }
            }

            /// The word itself if it is a value of this label, else `other`.
            #[allow(dead_code, reason = "only labels that come as text need it")]
            pub(super) fn known_word(text: &str) -> &'static str {
                $name::ALL.into_iter().map($name::word).find(|word| *word == text).unwrap_or("other")
            }
        }
    };
}

label! {
    /// Why a queue's head waits though it is due.
    BlockedReason {
        /// It failed and waits for its next attempt.
        Retrying = "retrying",
        /// An attempt of unknown end may still be running, until its deadline.
        OpenAttempt = "open_attempt",
        /// Its head waits at a gate.
        Gate = "gate",
    }
}
label! {
    /// Within which time tasks come due.
    Horizon {
        /// Sixty seconds.
        Minute = "minute",
        /// Sixty minutes.
        Hour = "hour",
        /// 24 hours.
        Day = "day",
    }
}
label! {
    /// Why an attempt started although one before may have run.
    RepeatCause {
        /// The owner of the attempt before was lost.
        OwnerLost = "owner_lost",
        /// Anything else.
        Other = "other",
    }
}
label! {
    /// Why a shard stopped until a person looks.
    StopReason {
        /// The log is not the one its progress belongs to: records are gone, or the topic was created anew.
        Log = "log",
    }
}
label! {
    /// Why intake is paused.
    PauseReason {
        /// Memory is at its bound.
        Memory = "memory",
        /// Task events that are not published yet fill their share of memory.
        TaskEvents = "task_events",
        /// The store does not answer.
        StoreUnavailable = "store_unavailable",
        /// The store refuses requests.
        StoreMisconfigured = "store_misconfigured",
        /// The log gives no records, or takes no forwarded or rejected one.
        LogUnavailable = "log_unavailable",
        /// The lease is not valid.
        NoLease = "no_lease",
    }
}
label! {
    /// What a handler's tasks wait for although they are at the head of their queues.
    HoldupReason {
        /// All slots of this instance are taken.
        Concurrency = "concurrency",
        /// Its rate.
        Rate = "rate",
        /// It failed too often in a row.
        Breaker = "breaker",
        /// What is left of its slots is kept for higher priorities.
        Reserved = "reserved",
        /// The rate at which it catches up.
        CatchUp = "catch_up",
        /// The slots or the rate of a collection.
        Collection = "collection",
    }
}
label! {
    /// What a data centre's loss takes a part of.
    Layer {
        /// Copies of records.
        Kafka = "kafka",
        /// Copies of rows.
        Cassandra = "cassandra",
    }
}
label! {
    /// How a lease was lost.
    LeaseLoss {
        /// Another instance has a higher epoch.
        Fenced = "fenced",
        /// It could not be verified in time.
        Lapsed = "lapsed",
        /// The clocks jumped.
        ClockJump = "clock_jump",
        /// Anything else.
        Other = "other",
    }
}
label! {
    /// What a shard does before it runs.
    TakeoverPhase {
        /// Its epoch is raised.
        Bumping = "bumping",
        /// The owner before is waited for.
        Waiting = "waiting",
        /// Its tasks are read.
        Loading = "loading",
        /// What its log has is applied.
        CatchingUp = "catching_up",
    }
}
label! {
    /// Why a request to the HTTP interface was denied.
    DeniedReason {
        /// It has no token.
        NoToken = "no_token",
        /// It has one that is not known.
        UnknownToken = "unknown_token",
        /// Its token has not the role.
        Role = "role",
    }
}
label! {
    /// A call of the store port.
    StoreOp {
        /// The cluster row.
        Cluster = "cluster",
        /// Writing rows.
        Write = "write",
        /// Looking up events by id.
        Lookup = "lookup",
        /// All events of a task.
        History = "history",
        /// A range of places.
        Slice = "slice",
        /// All facts of a place.
        Facts = "facts",
        /// A list of late queues.
        LateQueues = "late_queues",
        /// Pointers of a late queue.
        Pointers = "pointers",
        /// A payload.
        Payload = "payload",
        /// Dead letters.
        DeadLetters = "dead_letters",
        /// Reading progress.
        Progress = "progress",
        /// Writing progress.
        WriteProgress = "write_progress",
        /// Which ids have events.
        Ids = "ids",
        /// Writing them.
        WriteIds = "write_ids",
        /// Reading the owner row.
        Owner = "owner",
        /// Looking at the owner row during a hand-over.
        OwnerLook = "owner_look",
        /// Raising the epoch.
        Bump = "bump",
        /// Giving a shard back.
        Release = "release",
        /// A heartbeat.
        Beat = "beat",
        /// Reading the instances.
        Instances = "instances",
        /// Reading what people changed.
        Operations = "operations",
        /// Putting such a change on record.
        AddOperation = "add_operation",
        /// Looking for what is old.
        Stretches = "stretches",
        /// Forgetting events of old tasks.
        Forget = "forget",
        /// Dropping a bucket of old tasks.
        DropStretch = "drop_stretch",
        /// Dropping old dead letters.
        DropDeadLetters = "drop_dead_letters",
        /// Reading how far a batch got.
        BatchProgress = "batch_progress",
        /// Writing how far a batch got.
        WriteBatchProgress = "write_batch_progress",
    }
}
label! {
    /// How a call of the store port failed.
    StoreErrorKind {
        /// Not answered in time or not reachable.
        Unavailable = "unavailable",
        /// This row is refused.
        RowRefused = "row_refused",
        /// Every request is refused.
        Misconfigured = "misconfigured",
        /// A stored row cannot be read.
        Corrupt = "corrupt",
    }
}

impl From<&store::Error> for StoreErrorKind {
    fn from(error: &store::Error) -> StoreErrorKind {
        match error {
            store::Error::Unavailable(_) => StoreErrorKind::Unavailable,
            store::Error::RowRefused { .. } => StoreErrorKind::RowRefused,
            store::Error::Misconfigured(_) => StoreErrorKind::Misconfigured,
            store::Error::Corrupt(_) => StoreErrorKind::Corrupt,
        }
    }
}
