//! A disk that is slow: whoever writes to a file waits for as long as `DRAG_FILE` says, in milliseconds, and who asks for what was
//! written to be on the disk for [`SYNC`] times as long. Sockets and pipes are as fast as they are. `DRAGGED_FILE` gets a byte for each
//! time that somebody begins to wait.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;

use crate::count::Count;
use crate::said::Said;

/// What a write takes longer.
static DRAG: Said = Said::new(c"DRAG_FILE");
/// How often somebody began to wait.
static DRAGGED: Count = Count::new(c"DRAGGED_FILE");
/// A sync takes as long as so many writes: what was written since the one before has to come down.
const SYNC: i64 = 50;

/// `fsync(2)`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fsync(file: c_int) -> c_int {
    wait_for_sync();
    // SAFETY: the kernel checks its arguments.
    unsafe { libc::syscall(libc::SYS_fsync, file) as c_int }
}

/// `fdatasync(2)`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fdatasync(file: c_int) -> c_int {
    wait_for_sync();
    // SAFETY: the kernel checks its arguments.
    unsafe { libc::syscall(libc::SYS_fdatasync, file) as c_int }
}

/// `msync(2)`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn msync(address: *mut c_void, length: usize, flags: c_int) -> c_int {
    wait_for_sync();
    // SAFETY: the kernel checks its arguments.
    unsafe { libc::syscall(libc::SYS_msync, address, length, flags) as c_int }
}

/// `write(2)`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn write(file: c_int, from: *const c_void, length: usize) -> isize {
    wait_if_file(file);
    // SAFETY: the kernel checks its arguments.
    unsafe { libc::syscall(libc::SYS_write, file, from, length) as isize }
}

/// `pwrite(2)`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pwrite(file: c_int, from: *const c_void, length: usize, at: i64) -> isize {
    // SAFETY: as this one.
    unsafe { pwrite64(file, from, length, at) }
}

/// `pwrite(2)` under its other name.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pwrite64(file: c_int, from: *const c_void, length: usize, at: i64) -> isize {
    wait_if_file(file);
    // SAFETY: the kernel checks its arguments.
    unsafe { libc::syscall(libc::SYS_pwrite64, file, from, length, at) as isize }
}

/// `writev(2)`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn writev(file: c_int, from: *const libc::iovec, count: c_int) -> isize {
    wait_if_file(file);
    // SAFETY: the kernel checks its arguments.
    unsafe { libc::syscall(libc::SYS_writev, file, from, count) as isize }
}

fn wait_for_sync() {
    if DRAG.number() > 0 {
        DRAGGED.add();
        wait(SYNC);
    }
}

fn wait_if_file(file: c_int) {
    if DRAG.number() > 0 && is_file(file) {
        // What a server says of itself, into its log, is none of its data.
        if file > libc::STDERR_FILENO {
            DRAGGED.add();
        }
        wait(1);
    }
}

fn is_file(file: c_int) -> bool {
    let mut found = MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: the kernel fills it, or says that it did not.
    unsafe {
        libc::fstat(file, found.as_mut_ptr()) == 0
            && found.assume_init().st_mode & libc::S_IFMT == libc::S_IFREG
    }
}

/// Waits for as long as so many writes take.
fn wait(times: i64) {
    let ms = DRAG.number().max(0).saturating_mul(times);
    if ms > 0 {
        let mut left = libc::timespec { tv_sec: ms / 1_000, tv_nsec: ms % 1_000 * 1_000_000 };
        let left = &raw mut left;
        // SAFETY: it is valid for both; a signal leaves the rest in it.
        while unsafe { libc::nanosleep(left, left) } != 0 {}
    }
}
