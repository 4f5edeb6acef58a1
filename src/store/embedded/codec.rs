//! Fields in a row: fixed-width big-endian numbers and length-prefixed bytes, behind a leading version byte.
//!
//! For rows that only this adapter reads (owner, instance, log records). A later version of a row gets another
//! leading byte; a reader that meets one it does not know says so instead of guessing.

/// Builds a row.
pub(crate) struct Fields(Vec<u8>);

/// Room that a row begins with, in bytes: enough for most, which then are never copied while they grow.
const ROOM: usize = 256;

impl Fields {
    /// Starts a row of a version.
    pub(crate) fn new(version: u8) -> Fields {
        let mut row = Vec::with_capacity(ROOM);
        row.push(version);
        Fields(row)
    }

    /// Adds a 32-bit number.
    pub(crate) fn u32(mut self, value: u32) -> Fields {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    /// Adds a 64-bit number.
    pub(crate) fn u64(mut self, value: u64) -> Fields {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    /// Adds a signed 64-bit number.
    pub(crate) fn i64(mut self, value: i64) -> Fields {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    /// Adds a 128-bit number.
    pub(crate) fn u128(mut self, value: u128) -> Fields {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    /// Adds bytes of a length that the reader knows.
    pub(crate) fn array<const N: usize>(mut self, bytes: [u8; N]) -> Fields {
        self.0.extend_from_slice(&bytes);
        self
    }

    /// Adds bytes of any length below 4 GiB.
    pub(crate) fn bytes(mut self, value: &[u8]) -> Fields {
        push_bytes(&mut self.0, value);
        self
    }

    /// Adds bytes or their absence.
    pub(crate) fn maybe_bytes(mut self, value: Option<&[u8]>) -> Fields {
        self.0.push(u8::from(value.is_some()));
        match value {
            Some(bytes) => self.bytes(bytes),
            None => self,
        }
    }

    /// The row.
    pub(crate) fn done(self) -> Vec<u8> {
        self.0
    }
}

/// Adds bytes of any length below 4 GiB to a row that gathers.
pub(crate) fn push_bytes(row: &mut Vec<u8>, value: &[u8]) {
    let len = u32::try_from(value.len()).expect("every field is bounded far below 4 GiB");
    row.extend_from_slice(&len.to_be_bytes());
    row.extend_from_slice(value);
}

/// Reads a row; `None` from any call = the row ends too early or is not what it should be.
pub(crate) struct Scan<'a>(&'a [u8]);

impl<'a> Scan<'a> {
    /// Starts at the first field of a row of `version`.
    pub(crate) fn new(row: &'a [u8], version: u8) -> Option<Scan<'a>> {
        match row.split_first() {
            Some((found, rest)) if *found == version => Some(Scan(rest)),
            _ => None,
        }
    }

    /// Whether nothing is left.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next so many bytes.
    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }

    /// The next field as a 32-bit number.
    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    /// The next field as a 64-bit number.
    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// The next field as a signed 64-bit number.
    pub(crate) fn i64(&mut self) -> Option<i64> {
        self.array().map(i64::from_be_bytes)
    }

    /// The next field as a 128-bit number.
    pub(crate) fn u128(&mut self) -> Option<u128> {
        self.array().map(u128::from_be_bytes)
    }

    /// The next field as bytes.
    pub(crate) fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = usize::try_from(self.u32()?).ok()?;
        let (head, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(head)
    }

    /// The next field as bytes or their absence.
    pub(crate) fn maybe_bytes(&mut self) -> Option<Option<&'a [u8]>> {
        match self.array()? {
            [0] => Some(None),
            [1] => self.bytes().map(Some),
            _ => None,
        }
    }

    /// The next field as text.
    pub(crate) fn str(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.bytes()?).ok()
    }

    /// The same, to keep.
    pub(crate) fn text(&mut self) -> Option<String> {
        self.str().map(str::to_owned)
    }

    /// All fields that follow, each of bytes.
    pub(crate) fn all_bytes(mut self) -> Option<Vec<&'a [u8]>> {
        let mut all = Vec::new();
        while !self.0.is_empty() {
            all.push(self.bytes()?);
        }
        Some(all)
    }

    /// `value`, if the row ends here.
    pub(crate) fn end<T>(self, value: T) -> Option<T> {
        self.0.is_empty().then_some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::{Fields, Scan};

    fn row() -> Vec<u8> {
        Fields::new(1).u32(7).i64(-9).bytes(b"ab").maybe_bytes(None).maybe_bytes(Some(b"")).done()
    }

    /// Whether a row is the one above, field by field.
    fn is_read_back(row: &[u8]) -> bool {
        fn fields(row: &[u8]) -> Option<bool> {
            let mut scan = Scan::new(row, 1)?;
            let numbers = (scan.u32()?, scan.i64()?);
            let bytes = [Some(scan.bytes()?), scan.maybe_bytes()?, scan.maybe_bytes()?];
            scan.end(numbers == (7, -9) && bytes == [Some(&b"ab"[..]), None, Some(&b""[..])])
        }
        fields(row) == Some(true)
    }

    #[test]
    fn what_was_written_is_read_back() {
        assert!(is_read_back(&row()));
    }

    #[test]
    fn a_row_cut_anywhere_extended_or_of_another_version_is_refused() {
        let whole = row();
        for cut in 0..whole.len() {
            assert!(!is_read_back(&whole[..cut]), "cut at {cut}");
        }
        assert!(!is_read_back(&[whole.as_slice(), &[0]].concat()));
        assert!(!is_read_back(&[&[2], &whole[1..]].concat()));
    }
}
