//! A number that stands in a file, as text, and is read at every question: a change is seen at once.

use std::ffi::{CStr, c_char};
use std::sync::atomic::{AtomicI32, Ordering};

/// The longest number that is read.
const DIGITS: usize = 20;
/// Of a file that is not open: it is looked for again and again, as the environment may not be there yet.
const UNKNOWN: i32 = -1;

/// A file that a variable of the environment names.
pub(crate) struct Said {
    variable: &'static CStr,
    /// It, once it is open.
    file: AtomicI32,
}

impl Said {
    pub(crate) const fn new(variable: &'static CStr) -> Said {
        Said { variable, file: AtomicI32::new(UNKNOWN) }
    }

    /// What the file says; 0 when there is none.
    pub(crate) fn number(&self) -> i64 {
        let mut file = self.file.load(Ordering::Relaxed);
        if file == UNKNOWN {
            file = self.open();
            self.file.store(file, Ordering::Relaxed);
        }
        if file < 0 {
            return 0;
        }
        let mut text = [0_u8; DIGITS];
        // SAFETY: the buffer is as long as said; a file that is not open is an error.
        let length = unsafe { libc::pread(file, text.as_mut_ptr().cast(), DIGITS, 0) };
        number(text.get(..usize::try_from(length).unwrap_or(0)).unwrap_or_default())
    }

    fn open(&self) -> i32 {
        // SAFETY: the name ends with a zero, and so does what the environment has for it.
        unsafe {
            let path: *const c_char = libc::getenv(self.variable.as_ptr());
            if path.is_null() { UNKNOWN } else { libc::open(path, libc::O_RDONLY | libc::O_CLOEXEC) }
        }
    }
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
