//! Where a key lands: the partitioner that JVM clients use.

/// Partition of a key on a topic with so many partitions, as JVM clients and [`Producer`](crate::Producer) choose it.
///
/// # Panics
/// `partitions` is not positive.
pub fn partition_for(key: &[u8], partitions: i32) -> i32 {
    assert!(0 < partitions, "a topic has at least one partition");
    (murmur2(key) & 0x7FFF_FFFF).cast_signed() % partitions
}

/// Kafka's 32-bit variant of `MurmurHash2`.
fn murmur2(data: &[u8]) -> u32 {
    const SEED: u32 = 0x9747_B28C;
    const M: u32 = 0x5BD1_E995;
    const R: u32 = 24;

    // Kafka bounds a record far below 4 GiB.
    let mut hash = SEED ^ data.len() as u32;
    let mut chunks = data.chunks_exact(4);
    for chunk in &mut chunks {
        let mut k = u32::from_le_bytes([chunk[0], chunk[1], chunk[2], chunk[3]]).wrapping_mul(M);
        k = (k ^ (k >> R)).wrapping_mul(M);
        hash = hash.wrapping_mul(M) ^ k;
    }
    let rest = chunks.remainder();
    if !rest.is_empty() {
        for (index, byte) in rest.iter().enumerate() {
            hash ^= u32::from(*byte) << (8 * index);
        }
        hash = hash.wrapping_mul(M);
    }
    hash = (hash ^ (hash >> 13)).wrapping_mul(M);
    hash ^ (hash >> 15)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_as_the_jvm_client_does() {
        for (key, expected) in [
            (&b"21"[..], -973_932_308),
            (b"foobar", -790_332_482),
            (b"a-little-bit-long-string", -985_981_536),
            (b"a-little-bit-longer-string", -1_486_304_829),
            (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
            (b"abc", 479_470_107),
        ] {
            assert_eq!(murmur2(key).cast_signed(), expected, "{}", key.escape_ascii());
        }
    }

    proptest::proptest! {
        #[test]
        fn is_a_partition_of_the_topic(key: Vec<u8>, partitions in 1..=i32::MAX) {
            proptest::prop_assert!((0..partitions).contains(&partition_for(&key, partitions)));
        }
    }
}
