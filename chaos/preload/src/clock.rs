//! What time it is: the wall clock off by what `SKEW_FILE` says, in milliseconds. Clocks that do not tell the time of day stay as
//! they are.

use std::ffi::{c_int, c_long};

use crate::said::Said;

/// How far the wall clock is off.
static SKEW: Said = Said::new(c"SKEW_FILE");
const MS: i64 = 1_000;
const NS_OF_MS: i64 = 1_000_000;
const NS: i64 = 1_000_000_000;

/// What `clock_gettime(2)` says, with the wall clock off by what the file says.
///
/// # Safety
/// As the C library's: `time` is null or valid.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn clock_gettime(clock: libc::clockid_t, time: *mut libc::timespec) -> c_int {
    // SAFETY: the kernel checks its arguments.
    let said = unsafe { libc::syscall(libc::SYS_clock_gettime, clock as c_long, time) } as c_int;
    if said == 0 && matches!(clock, libc::CLOCK_REALTIME | libc::CLOCK_REALTIME_COARSE) && !time.is_null() {
        // SAFETY: the kernel has just written it.
        let time = unsafe { &mut *time };
        let off_ms = SKEW.number();
        let wrong_ns = time.tv_nsec + off_ms % MS * NS_OF_MS;
        time.tv_sec += off_ms / MS + wrong_ns.div_euclid(NS);
        time.tv_nsec = wrong_ns.rem_euclid(NS);
    }
    said
}

/// What `gettimeofday(2)` says, by [`clock_gettime`].
///
/// # Safety
/// As the C library's: `time` is null or valid.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn gettimeofday(time: *mut libc::timeval, _zone: *mut libc::c_void) -> c_int {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: it is valid.
    let said = unsafe { clock_gettime(libc::CLOCK_REALTIME, &mut now) };
    if said == 0 && !time.is_null() {
        // SAFETY: the caller's is valid.
        unsafe { *time = libc::timeval { tv_sec: now.tv_sec, tv_usec: now.tv_nsec / 1_000 } };
    }
    said
}

/// What `time(2)` says, by [`clock_gettime`].
///
/// # Safety
/// As the C library's: `time` is null or valid.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn time(time: *mut libc::time_t) -> libc::time_t {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: it is valid.
    unsafe { clock_gettime(libc::CLOCK_REALTIME, &mut now) };
    if !time.is_null() {
        // SAFETY: the caller's is valid.
        unsafe { *time = now.tv_sec };
    }
    now.tv_sec
}
