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

/// A fingerprint of an id within its shard, never 0. It is stored: it stays what it is.
pub fn fingerprint(key: &TaskKey) -> u32 {
    let (queue, id) = (murmur2(key.queue.as_str().as_bytes()), murmur2(key.id.as_str().as_bytes()));
    (queue.rotate_left(16) ^ id).max(1)
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
    use super::{fingerprint, murmur2};
    use crate::model::{QueueName, TaskId, TaskKey};

    #[test]
    fn a_fingerprint_is_what_it_was() {
        let print = |queue, id| {
            let (queue, id) = (QueueName::new(queue).expect("a name"), TaskId::new(id).expect("a name"));
            fingerprint(&TaskKey { queue, id })
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
