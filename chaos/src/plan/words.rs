//! What a step does, in a line.

use std::fmt;

use super::{Step, Wire};
use crate::event::HANDLERS;

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = |ms: &i64| *ms as f64 / 1_000.0;
        match self {
            Step::Kill { victim, down_ms, .. } => {
                write!(f, "kill {victim}, start it again after {:.1} s", s(down_ms))
            }
            Step::Freeze { victim, for_ms, .. } => write!(f, "freeze {victim} for {:.1} s", s(for_ms)),
            Step::Cut { victim, from, how, for_ms, .. } => {
                write!(f, "cut {victim} from {from:?} for {:.1} s, {how:?}", s(for_ms))
            }
            Step::Join { name, after_ms } => write!(f, "after {:.1} s {name} joins", s(after_ms)),
            Step::Leave { name, after_ms } => write!(f, "after {:.1} s {name} leaves", s(after_ms)),
            Step::LoseDc { dc, whole, further, for_ms, .. } => {
                let how = if *whole { "lose all of" } else { "cut off" };
                write!(f, "{how} {dc} for {:.1} s", s(for_ms))?;
                match &further[..] {
                    [] => Ok(()),
                    names => write!(f, ", and {} too for half of it", names.join(", ")),
                }
            }
            Step::LoseServers { names, how, for_ms, .. } => {
                write!(f, "{} {} for {:.1} s", names.join(", "), how.word(), s(for_ms))
            }
            Step::FillDisk { name, for_ms, .. } => {
                write!(f, "no room on the disk of {name} for {:.1} s", s(for_ms))
            }
            Step::SlowDisk { name, ms, for_ms, .. } => {
                write!(f, "each write of {name} to its disk takes {ms} ms longer for {:.1} s", s(for_ms))
            }
            Step::WipeServer { name, empty, repaired, for_ms, .. } => {
                let how = if *empty { "with nothing" } else { "in its own place" };
                let before = repaired.as_ref().map_or(String::new(), |node| format!("repair {node}, "));
                write!(f, "kill {name}, remove its data, after {:.1} s {before}start it {how}", s(for_ms))
            }
            Step::ScheduleRare { tasks, by, down, .. } => {
                write!(f, "{} take in {tasks} tasks while {} are down", by.join(", "), down.join(", "))
            }
            Step::RunRare { down, for_ms, .. } => {
                write!(f, "kill {} for {:.1} s, move those tasks to now", down.join(", "), s(for_ms))
            }
            Step::MoveOffsets { to, .. } => {
                write!(f, "stop all instances, move the group's offsets to the {to:?}, start them")
            }
            Step::RenewTopic { stopped, .. } => {
                let when = if *stopped { "while all instances are stopped" } else { "while instances run" };
                write!(f, "delete the schedule topic and make it anew {when}, reset all shards")
            }
            Step::Handlers { mood, for_ms, .. } => {
                write!(f, "handler {} {mood:?} for {:.1} s", HANDLERS[0], s(for_ms))
            }
            Step::MoveClock { victim, by_ms, for_ms, .. } => {
                write!(f, "the clock of {victim} {:+.1} s for {:.1} s", s(by_ms), s(for_ms))
            }
            Step::Wire { from, to, how, for_ms, .. } => {
                match how {
                    Wire::CutOneWay => write!(f, "nothing from {from} to {to}")?,
                    Wire::Cut => write!(f, "nothing between {from} and {to}")?,
                    Wire::Slow(ms) => write!(f, "{ms} ms from {from} to {to} and back")?,
                    Wire::Lossy(permille) => {
                        write!(f, "{permille} of 1000 packets between {from} and {to} lost")?;
                    }
                }
                write!(f, " for {:.1} s", s(for_ms))
            }
            Step::Drain { victim, for_ms, .. } => write!(f, "drain {victim} for {:.1} s", s(for_ms)),
            Step::Evacuate { dc, for_ms, .. } => {
                write!(f, "drain {dc}, lose all of it for {:.1} s, undrain it", s(for_ms))
            }
            Step::Restart { name, .. } => write!(f, "restart {name}"),
            Step::AddServer { name, .. } => write!(f, "{name} joins"),
            Step::DealPartitions { .. } => write!(f, "deal all partitions to all brokers"),
            Step::Shrink { names, apart_ms, .. } => {
                write!(f, "stop {}, {apart_ms} ms apart, and start them again", names.join(", "))
            }
            Step::Change { name, to, .. } => write!(f, "restart {name} as the {to:?} build"),
            Step::LoseAll { tasks, due_ms, down_ms, .. } => write!(
                f,
                "{tasks} tasks due in {:.1} s, kill all, cancel half, start again after {:.1} s",
                s(due_ms),
                s(down_ms)
            ),
        }
    }
}
