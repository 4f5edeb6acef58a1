//! How often something happened, as the length of a file: a byte is added for each time, so that no thread takes another's.

use std::ffi::CStr;

use crate::named::Named;

/// A file that a variable of the environment names; without it nothing is counted.
pub(crate) struct Count(Named);

impl Count {
    pub(crate) const fn new(variable: &'static CStr) -> Count {
        Count(Named::new(variable, libc::O_WRONLY | libc::O_APPEND))
    }

    /// It happened once more.
    pub(crate) fn add(&self) {
        if let Some(file) = self.0.file() {
            // SAFETY: there is one byte. One that cannot be written is not counted.
            unsafe { libc::syscall(libc::SYS_write, file, c"+".as_ptr(), 1_usize) };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::fd::AsRawFd as _;

    use super::*;

    #[test]
    fn whatever_several_threads_count_is_in_the_file() {
        let path = std::env::temp_dir().join(format!("dueline-count-{}", std::process::id()));
        let file = File::options().create(true).append(true).open(&path).unwrap();
        let count = Count(Named::opened(file.as_raw_fd()));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..50).for_each(|_| count.add()));
            }
        });
        assert_eq!(file.metadata().unwrap().len(), 200);
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn without_a_file_nothing_is_counted() {
        static COUNT: Count = Count::new(c"DUELINE_NO_SUCH_VARIABLE");
        COUNT.add();
        assert_eq!(COUNT.0.file(), None);
    }
}
