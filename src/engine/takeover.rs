//! Where the time of a takeover goes: told to an observer once the shard runs. Nothing rests on it.

use crate::model::Boot;

/// What a shard comes to on its way from an assignment to running. The log is asked for its end and read from while the tasks are
/// loaded, so these two may come before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Its epoch is raised.
    Bumped,
    /// The owner before has let go, or its lease has run out.
    Owned,
    /// Its tasks are read.
    Loaded,
    /// Where the log ends is known, for the first time.
    EndKnown,
    /// The log gave its first records.
    Fetched,
    /// All records up to the end as it is known then are applied, for the first time.
    Applied,
    /// It runs.
    Running,
}

const STEPS: usize = Step::Running as usize + 1;

/// When a shard came to each step of a takeover: since it was assigned, or since a release of before was answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Takeover {
    since: Boot,
    after_ms: [Option<u64>; STEPS],
}

impl Takeover {
    pub(super) fn begin(now: Boot) -> Takeover {
        Takeover { since: now, after_ms: [None; STEPS] }
    }

    /// It came to a step; what came before counts.
    pub(super) fn note(&mut self, step: Step, now: Boot) {
        self.after_ms[step as usize].get_or_insert(now.ms_since(self.since));
    }

    /// After how many milliseconds it came to a step; `None` = it did not, as with records of a log that has none.
    pub fn after_ms(&self, step: Step) -> Option<u64> {
        self.after_ms[step as usize]
    }

    /// How many milliseconds it was bumping, waiting, loading and catching up.
    pub fn phases_ms(&self) -> [u64; 4] {
        let ends = [Step::Bumped, Step::Owned, Step::Loaded, Step::Running];
        let mut before = 0;
        ends.map(|end| {
            let begun = before;
            before = self.after_ms(end).unwrap_or(begun);
            before.saturating_sub(begun)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_are_the_times_between_steps_and_what_comes_again_does_not_count() {
        let mut takeover = Takeover::begin(Boot(1_000));
        for (step, at) in [
            (Step::Bumped, 1_040),
            (Step::Owned, 1_300),
            (Step::EndKnown, 1_340),
            (Step::Loaded, 1_500),
            (Step::Loaded, 9_000),
            (Step::Applied, 1_590),
            (Step::Running, 1_600),
        ] {
            takeover.note(step, Boot(at));
        }
        assert_eq!(takeover.phases_ms(), [40, 260, 200, 100]);
        assert_eq!(takeover.after_ms(Step::EndKnown), Some(340));
        assert_eq!(takeover.after_ms(Step::Fetched), None);
    }
}
