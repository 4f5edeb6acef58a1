//! A wall clock that is wrong and a disk that is slow: loaded before the C library (`LD_PRELOAD`), this library answers for it.
//!
//! Without the variables of the environment that name its files it does what the C library does. Nothing here allocates, locks or
//! asks the C library for what it stands in for: programs ask before they are ready for any of that. Linux only.

#![allow(unsafe_code)]

mod clock;
mod count;
mod disk;
mod named;
mod said;
