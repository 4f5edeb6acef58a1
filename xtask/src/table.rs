//! What was checked, as a table for people.

use crate::say;
use anyhow::Result;

/// The table.
#[derive(Debug, Default)]
pub(crate) struct Table(Vec<Row>);

#[derive(Debug)]
struct Row {
    what: String,
    checked: usize,
    faults: usize,
}

impl Table {
    /// Adds a row; its faults are told at once.
    pub(crate) fn row(&mut self, what: impl Into<String>, checked: usize, faults: &[String]) {
        let what = what.into();
        for fault in faults {
            say::line(format_args!("MISS: {what}: {fault}"));
        }
        self.0.push(Row { what, checked, faults: faults.len() });
    }

    /// Whether no row has a fault and each has checked something.
    pub(crate) fn holds(&self) -> bool {
        self.0.iter().all(|row| row.faults == 0 && row.checked > 0)
    }

    /// Writes it to stdout.
    pub(crate) fn print(&self) -> Result<()> {
        let width = self.0.iter().map(|row| row.what.chars().count()).max().unwrap_or_default();
        say::data(format_args!("{:width$}  CHECKED  MISSES", "WHAT"))?;
        for row in &self.0 {
            let note = if row.checked == 0 { "  nothing was checked" } else { "" };
            say::data(format_args!("{:width$}  {:>7}  {:>6}{note}", row.what, row.checked, row.faults))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_holds_when_all_was_checked_and_nothing_missed() {
        let mut table = Table::default();
        table.row("a", 1, &[]);
        assert!(table.holds());
        table.row("b", 0, &[]);
        assert!(!table.holds());
        let mut table = Table::default();
        table.row("a", 2, &["x".to_owned()]);
        assert!(!table.holds());
    }
}
