//! Facts about the engine as a whole: one shard on a rig that answers every effect at once, and property tests of its
//! parts.

mod decisions;
mod ends;
mod fairness;
mod folding;
mod gates;
mod handing_over;
mod ids;
mod late;
mod limits;
mod lining_up;
mod loading;
mod open_attempts;
mod ownership;
mod parking;
mod quotas;
mod redriving;
mod refused;
mod renewing;
mod resending;
mod retention;
mod rig;
mod rounds;
mod running;
mod scouting;
mod telling;
