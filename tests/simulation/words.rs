//! One word for every input and effect, for the trace.

use dueline::engine::{Effect, Input};

pub(crate) fn of_input(input: &Input) -> &'static str {
    match input {
        Input::Assigned { .. } => "assigned",
        Input::Revoked => "revoked",
        Input::Lost => "lost",
        Input::Budget(_) => "budget",
        Input::Gates(..) => "gates",
        Input::OwnerRead(_) => "owner read",
        Input::Bumped(_) => "bumped",
        Input::Released(_) => "released",
        Input::ProgressRead(..) => "progress read",
        Input::ProgressWritten(..) => "progress written",
        Input::LogEndRead(..) => "log end read",
        Input::Sought(..) => "sought",
        Input::Fetched(..) => "fetched",
        Input::LookedUp(..) => "looked up",
        Input::Sliced(..) => "sliced",
        Input::FactsRead(..) => "facts read",
        Input::PayloadRead(..) => "payload read",
        Input::LateQueuesRead(..) => "late queues read",
        Input::PointersRead(..) => "pointers read",
        Input::Written(..) => "written",
        Input::Produced(..) => "produced",
        Input::Slots(..) => "slots",
        Input::CallEnded(..) => "call ended",
        Input::QueueStopped(..) => "queue stopped",
        Input::Published(..) => "published",
        Input::Tick => "tick",
        Input::ClockJumped => "clock jumped",
    }
}

pub(crate) fn of_effect(effect: &Effect) -> &'static str {
    match effect {
        Effect::ReadOwner => "read owner",
        Effect::Bump { .. } => "bump",
        Effect::Release(_) => "release",
        Effect::ReadProgress(_) => "read progress",
        Effect::WriteProgress { .. } => "write progress",
        Effect::ReadLogEnd(_) => "read log end",
        Effect::Seek(..) => "seek",
        Effect::Fetch { .. } => "fetch",
        Effect::StopFetch => "stop fetch",
        Effect::Commit(_) => "commit",
        Effect::LookUp(..) => "look up",
        Effect::Slice(..) => "slice",
        Effect::ReadFacts(..) => "read facts",
        Effect::ReadPayload(..) => "read payload",
        Effect::ReadLateQueues(..) => "read late queues",
        Effect::ReadPointers(..) => "read pointers",
        Effect::Write(..) => "write",
        Effect::Publish(..) => "publish",
        Effect::Reject(..) => "reject",
        Effect::Forward(..) => "forward",
        Effect::WantSlots(..) => "want slots",
        Effect::FreeSlots(..) => "free slots",
        Effect::WithdrawSlots(..) => "withdraw slots",
        Effect::Call(_) => "call",
        Effect::BreakOff(_) => "break off",
        Effect::AskGates => "ask gates",
        Effect::StopQueue { .. } => "stop queue",
        Effect::Rejoin(_) => "rejoin",
        Effect::Observe(_) => "observe",
    }
}
