//! The numbered files, as they were when this binary was built.

use sha2::{Digest, Sha256};

use crate::wire::hex;

/// One numbered file.
pub(super) struct Migration {
    pub(super) version: u32,
    pub(super) name: &'static str,
    text: &'static str,
}

const ALL: &[Migration] = &[
    Migration {
        version: 1,
        name: "tables",
        text: include_str!("../../../../schemas/cassandra/0001_tables.cql"),
    },
    Migration { version: 2, name: "late", text: include_str!("../../../../schemas/cassandra/0002_late.cql") },
    Migration {
        version: 3,
        name: "operation",
        text: include_str!("../../../../schemas/cassandra/0003_operation.cql"),
    },
    Migration {
        version: 4,
        name: "dead_letter",
        text: include_str!("../../../../schemas/cassandra/0004_dead_letter.cql"),
    },
    Migration {
        version: 5,
        name: "batch_progress",
        text: include_str!("../../../../schemas/cassandra/0005_batch_progress.cql"),
    },
    Migration {
        version: 6,
        name: "due_pack",
        text: include_str!("../../../../schemas/cassandra/0006_due_pack.cql"),
    },
    Migration {
        version: 7,
        name: "event_ids",
        text: include_str!("../../../../schemas/cassandra/0007_event_ids.cql"),
    },
    Migration {
        version: 8,
        name: "event_pack",
        text: include_str!("../../../../schemas/cassandra/0008_event_pack.cql"),
    },
];

/// All of them, in order.
pub(super) fn all() -> &'static [Migration] {
    ALL
}

impl Migration {
    /// Hash of the statements, in hex: comments and spaces at line ends do not count.
    pub(super) fn checksum(&self) -> String {
        hex(&Sha256::digest(self.statements().join(";\n").as_bytes()))
    }

    /// The statements, without comments.
    pub(super) fn statements(&self) -> Vec<String> {
        let lines = self.text.lines().map(|line| line.split("--").next().unwrap_or_default().trim_end());
        let text = lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n");
        text.split(';').map(str::trim).filter(|statement| !statement.is_empty()).map(str::to_owned).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_numbered_without_gaps() {
        let versions: Vec<u32> = all().iter().map(|migration| migration.version).collect();
        assert_eq!(versions, (1..=all().len() as u32).collect::<Vec<_>>());
    }

    #[test]
    fn every_statement_may_be_run_again_and_holds_nothing_that_would_split_it() {
        for statement in all().iter().flat_map(Migration::statements) {
            assert!(statement.contains("IF NOT EXISTS"), "{statement}");
            assert_eq!(statement.matches('\'').count() % 2, 0, "{statement}");
            assert!(!statement.contains("--"), "{statement}");
        }
    }

    #[test]
    fn a_comment_does_not_change_the_checksum_and_a_column_does() {
        let migration = |text| Migration { version: 1, name: "x", text };
        let plain = migration("CREATE TABLE a (b int);\nCREATE TABLE c (d int);").checksum();
        let commented =
            migration("-- x;\nCREATE TABLE a (b int); -- y\n\nCREATE TABLE c (d int);\n").checksum();
        assert_eq!(plain, commented);
        assert_ne!(plain, migration("CREATE TABLE a (b int);\nCREATE TABLE c (e int);").checksum());
    }
}
