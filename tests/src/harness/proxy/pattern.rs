//! Bytes to look for in passing traffic.

use super::Direction;

/// Patterns may not be longer, so that the end of what has passed can be kept cheaply.
pub(super) const LONGEST: usize = 256;

/// A run of bytes, some of which may be anything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern(Vec<Option<u8>>);

/// A pattern that passes in one direction.
#[derive(Debug, Clone)]
pub struct Step {
    pub(super) direction: Direction,
    pub(super) pattern: Pattern,
}

impl Step {
    /// Something that the client sends.
    pub fn request(pattern: impl Into<Pattern>) -> Step {
        Step { direction: Direction::ToServer, pattern: pattern.into() }
    }

    /// Something that the server sends.
    pub fn answer(pattern: impl Into<Pattern>) -> Step {
        Step { direction: Direction::ToClient, pattern: pattern.into() }
    }
}

impl From<&str> for Pattern {
    fn from(text: &str) -> Pattern {
        Pattern(text.bytes().map(Some).collect())
    }
}

impl Pattern {
    /// The head of a request of Kafka's protocol, by its API key (0 produces, 8 commits offsets) and the client's id.
    /// Any version and any correlation id will do.
    ///
    /// # Panics
    /// The client's id is longer than 200 bytes.
    pub fn kafka_request(api_key: u16, client_id: &str) -> Pattern {
        assert!(client_id.len() <= 200, "a client's id in a pattern has at most 200 bytes");
        let mut bytes: Vec<Option<u8>> = api_key.to_be_bytes().map(Some).into();
        // Versions are small; the length of a short text has a zero in front.
        bytes.extend([Some(0), None, None, None, None, None, Some(0), u8::try_from(client_id.len()).ok()]);
        bytes.extend(client_id.bytes().map(Some));
        Pattern(bytes)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Where the first occurrence ends.
    pub(super) fn end_in(&self, bytes: &[u8]) -> Option<usize> {
        let is_here = |at: &[u8]| self.0.iter().zip(at).all(|(wanted, found)| wanted.is_none_or(|it| it == *found));
        bytes.windows(self.len()).position(is_here).map(|it| it + self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::Pattern;

    #[test]
    fn finds_the_end_of_the_first_occurrence() {
        let pattern = Pattern::from("ab");
        assert_eq!(pattern.end_in(b"xxab ab"), Some(4));
        assert_eq!(pattern.end_in(b"a"), None);
    }

    #[test]
    fn finds_a_request_of_one_client_whatever_its_version() {
        let commit = |client: &str| {
            let mut bytes = vec![0, 0, 0, 99, 0, 8, 0, 9, 1, 2, 3, 4, 0, client.len() as u8];
            bytes.extend_from_slice(client.as_bytes());
            bytes
        };
        let pattern = Pattern::kafka_request(8, "me");
        assert_eq!(pattern.end_in(&commit("me")), Some(16));
        assert_eq!(pattern.end_in(&commit("me-retry")), None, "another client");
        assert_eq!(Pattern::kafka_request(0, "me").end_in(&commit("me")), None, "another request");
    }
}
