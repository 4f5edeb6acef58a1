//! A wall clock that is wrong: loaded before the C library (`LD_PRELOAD`), this library answers for it what time it is.
//!
//! How far the clock is off, in milliseconds, stands in the file that `SKEW_FILE` names, as text, and is read at every
//! question: a jump is seen at once. Clocks that do not tell the time of day stay as they are. Nothing here allocates, locks
//! or asks the C library for the time: programs ask before they are ready for any of that. Linux only.

#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_long};
use std::sync::atomic::{AtomicI32, Ordering};

/// The file, once it is open; below zero while it is not.
static FILE: AtomicI32 = AtomicI32::new(-1);
const NAME: &CStr = c"SKEW_FILE";
/// The longest number that is read.
const DIGITS: usize = 20;
const MS: i64 = 1_000;
const NS_OF_MS: i64 = 1_000_000;
const NS: i64 = 1_000_000_000;

/// What `clock_gettime(2)` says, with the wall clock off by what the file says.
///
/// # Safety
/// As the C library's: `time` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_gettime(clock: libc::clockid_t, time: *mut libc::timespec) -> c_int {
    // SAFETY: the kernel checks its arguments.
    let said = unsafe { libc::syscall(libc::SYS_clock_gettime, clock as c_long, time) } as c_int;
    if said == 0 && matches!(clock, libc::CLOCK_REALTIME | libc::CLOCK_REALTIME_COARSE) && !time.is_null() {
        // SAFETY: the kernel has just written it.
        let time = unsafe { &mut *time };
        let off_ms = off_ms();
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
pub unsafe extern "C" fn gettimeofday(time: *mut libc::timeval, _zone: *mut libc::c_void) -> c_int {
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
pub unsafe extern "C" fn time(time: *mut libc::time_t) -> libc::time_t {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: it is valid.
    unsafe { clock_gettime(libc::CLOCK_REALTIME, &mut now) };
    if !time.is_null() {
        // SAFETY: the caller's is valid.
        unsafe { *time = now.tv_sec };
    }
    now.tv_sec
}

/// What the file says; 0 when there is none.
fn off_ms() -> i64 {
    let mut file = FILE.load(Ordering::Relaxed);
    if file < 0 {
        // SAFETY: the name ends with a zero, and so does what the environment has for it.
        file = unsafe {
            let path: *const c_char = libc::getenv(NAME.as_ptr());
            if path.is_null() { -1 } else { libc::open(path, libc::O_RDONLY | libc::O_CLOEXEC) }
        };
        FILE.store(file, Ordering::Relaxed);
    }
    let mut text = [0_u8; DIGITS];
    // SAFETY: the buffer is as long as said; a file that is not open is an error.
    let length = unsafe { libc::pread(file, text.as_mut_ptr().cast(), DIGITS, 0) };
    number(text.get(..usize::try_from(length).unwrap_or(0)).unwrap_or_default())
}

/// The number that a text begins with.
fn number(text: &[u8]) -> i64 {
    let (sign, digits) = match text {
        [b'-', rest @ ..] => (-1, rest),
        [b'+', rest @ ..] => (1, rest),
        all => (1, all),
    };
    let digits = digits.iter().take_while(|byte| byte.is_ascii_digit());
    let size = digits.fold(0_i64, |sum, byte| sum.saturating_mul(10).saturating_add(i64::from(byte - b'0')));
    sign * size
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn a_file_says_a_number_with_a_sign_or_nothing() {
        let said: Vec<i64> = [&b"+20000\n"[..], b"-500", b"7", b"", b"x", b"-"].map(number).to_vec();
        assert_eq!(said, [20_000, -500, 7, 0, 0, 0]);
    }
}
