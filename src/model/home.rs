//! Which shard is home to a queue: the partition Java's default Kafka partitioner gives its name as record key.
//!
//! Source of the algorithm: MurmurHash2 (Austin Appleby, public domain) with the seed Kafka uses, made positive by
//! clearing the sign bit, modulo the number of partitions.

use super::name::{QueueName, TaskKey};
use super::owner::Shard;

const SEED: u32 = 0x9747_b28c;
const M: u32 = 0x5bd1_e995;
const R: u32 = 24;

/// The home of `queue` among `shards` shards (at least 1).
pub fn home_shard(queue: &QueueName, shards: u32) -> Shard {
    Shard(partition_of(queue.as_str().as_bytes(), shards))
}

/// The partition of a record key among `partitions` (at least 1).
pub fn partition_of(key: &[u8], partitions: u32) -> u32 {
    assert!(partitions > 0, "a topic has at least one partition");
    (murmur2(key) & 0x7fff_ffff) % partitions
}

/// What a list of ids has of an event: 31 bits of a hash of its id, and in the lowest one whether a store may have packed it, so that
/// its version alone leads to it. Never 0. It is stored: it stays what it is. (Builds that packed no events put 32 bits of the hash there.)
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Print(pub u32);

const MAY_BE_PACKED: u32 = 1;

impl Print {
    /// Of an event of this id.
    pub fn of(key: &TaskKey, may_be_packed: bool) -> Print {
        let (queue, id) = (murmur2(key.queue.as_str().as_bytes()), murmur2(key.id.as_str().as_bytes()));
        let hash = queue.rotate_left(16) ^ id;
        Print((hash & !MAY_BE_PACKED | u32::from(may_be_packed)).max(MAY_BE_PACKED))
    }

    /// The bits of the id.
    pub fn id(self) -> u32 {
        self.0 >> 1
    }

    /// Whether its version alone may lead to the event.
    pub fn may_be_packed(self) -> bool {
        self.0 & MAY_BE_PACKED != 0
    }
}

fn murmur2(data: &[u8]) -> u32 {
    let mut hash = SEED ^ data.len() as u32;
    let chunks = data.chunks_exact(4);
    let tail = chunks.remainder();
    for chunk in chunks {
        let word = u32::from_le_bytes(chunk.try_into().expect("a chunk has four bytes")).wrapping_mul(M);
        let word = (word ^ (word >> R)).wrapping_mul(M);
        hash = hash.wrapping_mul(M) ^ word;
    }
    if !tail.is_empty() {
        for (index, byte) in tail.iter().enumerate() {
            hash ^= u32::from(*byte) << (8 * index);
        }
        hash = hash.wrapping_mul(M);
    }
    hash = (hash ^ (hash >> 13)).wrapping_mul(M);
    hash ^ (hash >> 15)
}

#[cfg(test)]
mod tests {
    use super::{Print, murmur2};
    use crate::model::{QueueName, TaskId, TaskKey};

    #[test]
    fn a_fingerprint_is_what_it_was() {
        let print = |queue, id| {
            let (queue, id) = (QueueName::new(queue).expect("a name"), TaskId::new(id).expect("a name"));
            let key = TaskKey { queue, id };
            let [row, packed] = [false, true].map(|may_be_packed| Print::of(&key, may_be_packed));
            assert!(row.id() == packed.id() && packed.may_be_packed() && !row.may_be_packed());
            packed.0
        };
        // By the values of the Java client below.
        assert_eq!(print("foobar", "abc"), 1_730_867_967);
        assert_ne!(print("a", "b"), print("b", "a"));
        assert_ne!(print("a", "bc"), print("ab", "c"));
    }

    #[test]
    fn murmur2_agrees_with_the_values_of_the_java_client() {
        let known: [(&str, i32); 6] = [
            ("21", -973_932_308),
            ("foobar", -790_332_482),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
            ("abc", 479_470_107),
        ];
        for (key, hash) in known {
            assert_eq!(murmur2(key.as_bytes()) as i32, hash, "{key}");
        }
    }
}
