//! A number that stands in a file, as text, and is read at every question: a change is seen at once.

use std::ffi::CStr;

use crate::named::Named;

/// The longest number that is read.
const DIGITS: usize = 20;

/// A file that a variable of the environment names.
pub(crate) struct Said(Named);

impl Said {
    pub(crate) const fn new(variable: &'static CStr) -> Said {
        Said(Named::new(variable, libc::O_RDONLY))
    }

    /// What the file says; 0 when there is none.
    pub(crate) fn number(&self) -> i64 {
        let Some(file) = self.0.file() else { return 0 };
        let mut text = [0_u8; DIGITS];
        // SAFETY: the buffer is as long as said.
        let length = unsafe { libc::pread(file, text.as_mut_ptr().cast(), DIGITS, 0) };
        number(text.get(..usize::try_from(length).unwrap_or(0)).unwrap_or_default())
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
