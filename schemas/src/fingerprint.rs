//! A short hash that tells two payloads under one idempotency key apart.

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// 64-bit fingerprint of a payload (XXH3), as stored in the inbox. Part of the contract: never change it.
///
/// A null payload and an empty one differ.
pub fn fingerprint(payload: Option<&[u8]>) -> i64 {
    let hash = match payload {
        Some(payload) => xxh3_64(payload),
        None => xxh3_64_with_seed(b"", 1),
    };
    hash.cast_signed()
}

#[cfg(test)]
mod tests {
    use super::fingerprint;

    #[test]
    fn is_pinned() {
        assert_eq!(fingerprint(Some(b"")), 0x2D06_8005_38D3_94C2);
        assert_eq!(fingerprint(Some(b"sekali")), PINNED);
        assert_ne!(fingerprint(None), fingerprint(Some(b"")));
    }

    /// XXH3 of "sekali", from the reference implementation.
    const PINNED: i64 = 1_416_820_706_128_044_494;
}
