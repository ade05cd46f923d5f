//! The wire format of Confluent's serializers: a byte 0, the schema's id in the registry as four bytes, big-endian, then
//! the data.

/// Length of what stands before the data.
pub const PREFIX_BYTES: usize = 5;

const MAGIC: u8 = 0;

/// The schema's id and the data behind it; `None` for a payload without the prefix. JSON never begins with byte 0.
pub fn read(payload: &[u8]) -> Option<(u32, &[u8])> {
    match payload {
        [MAGIC, a, b, c, d, data @ ..] => Some((u32::from_be_bytes([*a, *b, *c, *d]), data)),
        _ => None,
    }
}

/// The data with the prefix before it.
pub fn write(schema_id: u32, data: &[u8]) -> Vec<u8> {
    let mut payload = Vec::with_capacity(PREFIX_BYTES + data.len());
    payload.push(MAGIC);
    payload.extend_from_slice(&schema_id.to_be_bytes());
    payload.extend_from_slice(data);
    payload
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_go_there_and_back() {
        let payload = write(0x0102_0304, b"{}");
        assert_eq!(payload, [0, 1, 2, 3, 4, b'{', b'}']);
        assert_eq!(read(&payload), Some((0x0102_0304, &b"{}"[..])));
        assert_eq!(read(&write(7, b"")), Some((7, &b""[..])), "a prefix alone has empty data");
        for other in [&b""[..], b"{}", b"\0\0\0\x01", b"\x01\0\0\0\x01{}"] {
            assert_eq!(read(other), None);
        }
    }
}
