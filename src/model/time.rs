//! Two clocks, never mixed: wall time says when a task is due, boot time measures how long something took.

/// Wall time, in milliseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Wall(pub i64);

impl Wall {
    /// Before every time a task can have.
    pub const MIN: Wall = Wall(0);
    /// After every time a task can have.
    pub const MAX: Wall = Wall(i64::MAX);

    /// This time moved by `ms` (may be negative), stopping at the ends of the range.
    #[must_use]
    pub fn plus_ms(self, ms: i64) -> Wall {
        Wall(self.0.saturating_add(ms))
    }

    /// Milliseconds from `earlier` to this time; 0 when it lies after.
    pub fn ms_since(self, earlier: Wall) -> u64 {
        u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0)
    }
}

/// Boot time (CLOCK_BOOTTIME: goes on in suspend, never steps), in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Boot(pub u64);

impl Boot {
    /// This time plus `ms`.
    #[must_use]
    pub fn plus_ms(self, ms: u64) -> Boot {
        Boot(self.0.saturating_add(ms))
    }

    /// Milliseconds from `earlier` to this time; 0 when it lies after.
    pub fn ms_since(self, earlier: Boot) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// Both clocks, read at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Now {
    /// Wall time: anchored at start and advanced by boot time.
    pub wall: Wall,
    /// Boot time.
    pub boot: Boot,
}
