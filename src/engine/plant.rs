//! Mistakes that can be planted, to see that the simulation finds them: a checker that finds nothing is not a checker.
//!
//! Each stands at the place where it would be made, as `planted!(Name)`, and in a product build that word is `false`:
//! the switch itself exists only under the feature `testing`. One mistake at a time: for one thread, or for the whole
//! process, where chaos is to find it.

#[cfg(not(feature = "testing"))]
macro_rules! planted {
    ($mistake:ident) => {
        false
    };
}

/// Whether a mistake is planted on this thread.
#[cfg(feature = "testing")]
#[macro_export]
macro_rules! planted {
    ($mistake:ident) => {
        $crate::engine::plant::is($crate::engine::plant::Plant::$mistake)
    };
}

#[cfg(feature = "testing")]
pub use switch::{Plant, is, set, set_everywhere};

#[cfg(feature = "testing")]
mod switch {
    use std::cell::Cell;
    use std::sync::OnceLock;

    macro_rules! plants {
        ($($name:ident $what:literal,)*) => {
            /// A mistake.
            #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
            pub enum Plant {
                $(#[doc = $what] $name,)*
            }

            impl Plant {
                /// All of them.
                pub const ALL: &[Plant] = &[$(Plant::$name),*];

                /// What is wrong.
                pub fn what(self) -> &'static str {
                    match self {
                        $(Plant::$name => $what,)*
                    }
                }
            }
        };
    }

    plants! {
        EventsNotHeld "the watermark passes tasks that are over and whose events are not published",
        DecisionsNotHeld "the progress row says that decisions are published that are not",
        FactsToldTooSoon "the progress row says that facts are published that are not",
        EventsNotGathered "what an owner before left unpublished is published behind what comes after it",
        EventsOfBeforeForgotten "what an owner before left unpublished is not published by the next one",
        GateIgnored "gates are not asked",
        AsideTakenForFirst "a parked task is taken for the first of its queue that may have an attempt open",
        RedriveOfWhatRuns "a redrive is taken for a task that is not over",
        AbortForgets "a call that is broken off on purpose holds its queue no longer",
        StopNotAwaited "a task that stops its queue is on record as dead before the queue is stopped",
        GateNotAskedAgain "a start is called although a gate closed while it was being written",
        CommitBeforeAck "applied and committed before the rows are acknowledged",
        LeaseOff "there is no lease: an owner goes on without one, and the next one does not wait for it",
        NoSecondLeaseCheck "the lease is not checked again before the call",
        LoadBeforeTheWait "tasks are loaded before the wait of the lease has ended",
        ReleaseWhileWaiting "who lets go within its own wait says that nothing is left of it",
        RestOfTheWaitIgnored "what was left of the wait of an owner that let go is not waited for",
        AnyReleaseEndsTheWait "a wait that is the rest of another's ends because that one has let go",
        EpochReused "an epoch is taken for one's own after a bump without an answer",
        LocalSerial "owner rows are changed by a majority of one data centre",
        WallClockInLease "the lease is measured by the wall clock",
        LateStartOfReleasedOwner "a start acknowledged after the shard was released is called",
        RerunAfterLapse "a call broken off by a lapse runs again at once",
        OpenAttemptNotWaitedFor "an open attempt of a lost owner is not waited for",
        LateFactObeyed "a late end of an old epoch is obeyed",
        ZombieProgressBelieved "the progress row with the newest time counts, not that of the highest epoch",
        WriteBelowWatermark "a record whose place lies below the watermark is stored there",
        PlaceFromTheClock "a task's place comes from the clock, not from its record",
        StopAtShortPage "loading ends at an empty page",
        RetryForgetsAttempts "a retry does not know of the attempts before it",
        RetrySortsByNextTry "a retry stands in the queue by the time of its next try",
        ArrivalIgnoresDueTime "a queue runs in the order of arrival",
        StartBeforeCatchUp "an owner starts before it has caught up with the log",
        CancelDuringLoadLost "a cancel that becomes visible while its task is being loaded is lost",
        FarCancelLost "a cancel of a task that is not loaded is not stored",
        CancelBehindHeadLost "a cancel of a task behind a running one is lost",
        AnsweredBeforeVisible "a decision is on record while its target may still start",
        ForwardRepeated "a forwarded record counts again when it comes again",
        MarksAheadOfApplied "the marks of forwarded records are ahead of what is applied",
        GuardRailRejects "a refusal of all writes is taken for a bad event",
        NoGuard "handlers take every token",
        ReplayDecidesAnew "a replayed event is decided anew",
        ReplayNotLookedUp "an event that an owner before may have decided is not looked up when its id is not listed",
        IdNotNoted "the id of an event is not noted, and taken for new when it comes again",
        ListedNotTold "who looks an id up is not told which versions it may have",
        PackedNotNoted "what may be packed is listed as if it were a row",
        ReplayNotTold "who looks an event up that an owner before may have decided is not told its version",
        IdsNotWritten "the progress row says that ids are listed, and their rows are not written",
        WatermarkPassesUnfinished "the watermark passes unfinished tasks",
        FencedOwnerGoesOn "an owner that reads another's epoch goes on",
        LeaseFromTheAnswer "a lease counts from the answer, not from the question",
        NextBeforeTheEnd "the next task of a queue starts before the end of the one before is acknowledged",
        CommitAheadOfApplied "what was fetched is committed, not what is applied",
        FormerLeaderBelieved "a broker that does not lead the log any more is believed where it ends",
        AcknowledgedForgotten "nodes that are killed together forget what they acknowledged in the tenth of a second before",
        ServeBeforeRepair "a node that lost its disk answers reads before it is repaired",
        ReadOne "reads are answered by one replica",
        MarkOfUnappliedObeyed "a mark whose event is not applied yet does not hold its task",
        HoldEndsUnread "an attempt counts as interrupted without a last look for its end",
        HoldEndsEarly "an open attempt is waited for during half of its time",
        OpenBeyondMemoryNotSeen "a takeover whose memory is full does not look for open attempts behind that",
        ForwardOutOfOrder "forwards to one home are under way several at a time",
        LateQueueForgotten "a takeover forgets the queues that were late",
        LateListBeginsLate "the list of late queues is not told of a pointer before where it begins",
        PointerNotAwaited "the watermark passes a task whose pointer is not acknowledged",
        StartBehindLoader "a task starts although others that are ready are still to be read",
        HeadBeforePointer "a task in memory starts before one of its queue that is known by pointer",
        StartBeforeOwnList "an owner starts before the progress row names its own list of late queues",
        OpenBehindNotRead "a takeover starts a late queue before it has read whether an attempt is open behind its head",
        UnderWayNotNamed "the list of late queues does not name an attempt behind its queue's head",
        ClockJumpIgnored "a boot clock that stood still is trusted",
        GroupWithoutLease "rows of events are sent, and sent again, without a lease",
        RefusedAfterItsMark "an event is rejected although its mark is on record",
        PayloadBehindMark "a payload that the store may refuse comes behind the mark of its event",
        WatermarkPassesUnread "the watermark passes what an owner before placed and this one has not read",
        SameIdUnderWay "an event is decided before the one before it of its id is on record",
        UnshownIsFinished "a task that is on record and not visible yet is taken for finished",
        RefusedTokenIsFailure "a refused token counts as a failed attempt",
        ExpiryIgnored "a task starts after it has expired",
        MisfireIgnored "a task that is to be skipped when it is late runs late",
        LimitsNotShared "each instance takes the whole of each limit for itself",
        CollectionNotCounted "slots of a collection are not counted",
        ReserveForgotten "slots kept for high priorities are given to any",
        QuotaSavedUp "what a quota did not use is saved up without bound",
        CatchUpUnbounded "late tasks begin as fast as they can",
        RetryWithoutWait "a task that failed is tried again at once",
        RetryAfterIgnored "the time that a handler asked for is not waited for",
        NextTryNotWaitedFor "the time of the next try is on record, and not waited for",
        WaitForgottenAtTakeover "a takeover does not know when the next try is",
        OneAttemptTooMany "a task is tried once more than its policy allows",
        SnoozeIsFailure "a snooze uses up an attempt",
        InterruptionIsFailure "the loss of an owner uses up an attempt",
        AgeIgnored "tries go on beyond the age that the policy allows",
        BreakerIgnored "calls go out although the breaker is open",
        ProbesTogether "an open breaker lets more than one call through at a time",
        PriorityIgnored "priority does not count when slots are given",
        AgeingForgotten "who waits longer never goes before a higher priority",
        TurnsForgotten "a shard keeps its turn until it wants nothing more",
        WeightsIgnored "collections share slots alike, whatever their weights",
        ProbeAwaitedForEver "a slot that was let through an open breaker and came back unused is waited for",
    }

    static EVERYWHERE: OnceLock<Plant> = OnceLock::new();

    thread_local! {
        static PLANTED: Cell<Option<Plant>> = const { Cell::new(None) };
    }

    /// Plants a mistake on this thread, or none.
    pub fn set(plant: Option<Plant>) {
        PLANTED.set(plant);
    }

    /// Plants a mistake in this process, by its name and for good.
    ///
    /// # Errors
    /// When there is none of that name, or another one is planted.
    pub fn set_everywhere(name: &str) -> Result<Plant, String> {
        let named = Plant::ALL.iter().copied().find(|plant| format!("{plant:?}") == name);
        let plant = named.ok_or_else(|| format!("there is no mistake {name:?}; see src/engine/plant.rs"))?;
        match *EVERYWHERE.get_or_init(|| plant) {
            planted if planted == plant => Ok(plant),
            planted => Err(format!("{planted:?} is planted already")),
        }
    }

    /// Whether this mistake is planted, on this thread or everywhere.
    pub fn is(plant: Plant) -> bool {
        PLANTED.get() == Some(plant) || EVERYWHERE.get() == Some(&plant)
    }
}
