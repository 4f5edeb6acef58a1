//! A file that a variable of the environment names. It is opened at its first use.

use std::ffi::{CStr, c_char, c_int};
use std::sync::atomic::{AtomicI32, Ordering};

/// Of a file that is not open: it is looked for again and again, as the environment may not be there yet.
const UNKNOWN: c_int = -1;

pub(crate) struct Named {
    variable: &'static CStr,
    flags: c_int,
    /// It, once it is open.
    file: AtomicI32,
}

impl Named {
    /// Opened with these flags of `open(2)`, and closed when another program takes the place of this one.
    pub(crate) const fn new(variable: &'static CStr, flags: c_int) -> Named {
        Named { variable, flags: flags | libc::O_CLOEXEC, file: AtomicI32::new(UNKNOWN) }
    }

    /// One that is open already.
    #[cfg(test)]
    pub(crate) const fn opened(file: c_int) -> Named {
        Named { variable: c"", flags: 0, file: AtomicI32::new(file) }
    }

    /// Its descriptor; `None` when there is none.
    pub(crate) fn file(&self) -> Option<c_int> {
        let mut file = self.file.load(Ordering::Relaxed);
        if file == UNKNOWN {
            file = self.open();
            self.file.store(file, Ordering::Relaxed);
        }
        (file >= 0).then_some(file)
    }

    fn open(&self) -> c_int {
        // SAFETY: the name ends with a zero, and so does what the environment has for it.
        unsafe {
            let path: *const c_char = libc::getenv(self.variable.as_ptr());
            if path.is_null() { UNKNOWN } else { libc::open(path, self.flags) }
        }
    }
}
