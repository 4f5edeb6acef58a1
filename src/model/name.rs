//! Names that users give: queues, tasks, handlers. Checked when made.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use super::limits::NAME_BYTES_MAX;

/// Why a name was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameError {
    /// It has no bytes.
    Empty,
    /// It has more bytes than [`NAME_BYTES_MAX`].
    TooLong,
    /// It holds a control character.
    ControlCharacter,
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NameError::Empty => f.write_str("is empty"),
            NameError::TooLong => write!(f, "is longer than {NAME_BYTES_MAX} bytes"),
            NameError::ControlCharacter => f.write_str("holds a control character"),
        }
    }
}

impl std::error::Error for NameError {}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub struct $name(Arc<str>);

        // Of one text in memory it is known without reading it.
        impl PartialEq for $name {
            fn eq(&self, other: &Self) -> bool {
                Arc::ptr_eq(&self.0, &other.0) || self.0 == other.0
            }
        }

        impl Eq for $name {}

        impl PartialOrd for $name {
            fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
                Some(self.cmp(other))
            }
        }

        impl Ord for $name {
            fn cmp(&self, other: &Self) -> Ordering {
                if Arc::ptr_eq(&self.0, &other.0) { Ordering::Equal } else { self.0.cmp(&other.0) }
            }
        }

        impl Hash for $name {
            fn hash<H: Hasher>(&self, state: &mut H) {
                self.0.hash(state);
            }
        }

        impl $name {
            /// Checks and takes a name: 1 to 500 bytes of UTF-8 without control characters.
            ///
            /// # Errors
            /// Says which of the three rules the text breaks.
            pub fn new(text: &str) -> Result<Self, NameError> {
                if text.is_empty() {
                    Err(NameError::Empty)
                } else if text.len() > NAME_BYTES_MAX {
                    Err(NameError::TooLong)
                } else if text.chars().any(char::is_control) {
                    Err(NameError::ControlCharacter)
                } else {
                    Ok(Self(Arc::from(text)))
                }
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

name! {
    /// The logical queue a task belongs to: its ordering scope.
    QueueName
}
name! {
    /// A task's name within its queue.
    TaskId
}
name! {
    /// The name of a handler in the config, or an allowed URL in its place.
    HandlerName
}

impl From<QueueName> for TaskId {
    fn from(queue: QueueName) -> TaskId {
        TaskId(queue.0)
    }
}

impl From<TaskId> for QueueName {
    fn from(id: TaskId) -> QueueName {
        QueueName(id.0)
    }
}

/// What names one task for its users: its queue and its id.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskKey {
    /// The queue.
    pub queue: QueueName,
    /// The id within the queue.
    pub id: TaskId,
}
