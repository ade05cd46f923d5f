//! The lines of a file, plain or compressed, with a bound on what one line may take.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::bufread::MultiGzDecoder;

const BUFFER_BYTES: usize = 256 * 1024;
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// Reads lines one by one.
pub(super) struct Lines {
    input: Box<dyn BufRead + Send>,
    line_bytes_max: usize,
    /// Lines read so far.
    number: u64,
    read_bytes: Arc<AtomicU64>,
    total_bytes: Option<u64>,
}

/// What stands in a line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// Bytes without the line end, in the caller's buffer.
    Text,
    /// More bytes than a record may have; it was passed over.
    TooLong,
    /// No more lines.
    End,
}

impl Lines {
    /// Opens a file, or standard input for `-`. Whether it is compressed shows its beginning, not its name. What was read of a
    /// pipe is read for good: nobody may open one twice.
    pub(super) fn open(path: &Path) -> io::Result<Lines> {
        let (raw, total_bytes): (Box<dyn Read + Send>, _) = if path == Path::new("-") {
            (Box::new(io::stdin()), None)
        } else {
            let file = File::open(path)?;
            let metadata = file.metadata()?;
            if metadata.is_dir() {
                return Err(io::ErrorKind::IsADirectory.into());
            }
            let total = metadata.is_file().then_some(metadata.len());
            (Box::new(file), total)
        };
        let read_bytes = Arc::new(AtomicU64::new(0));
        let counted = Counted { inner: raw, read_bytes: read_bytes.clone() };
        let mut plain = BufReader::with_capacity(BUFFER_BYTES, counted);
        let compressed = plain.fill_buf()?.starts_with(&GZIP_MAGIC);
        let input: Box<dyn BufRead + Send> = if compressed {
            Box::new(BufReader::with_capacity(BUFFER_BYTES, MultiGzDecoder::new(plain)))
        } else {
            Box::new(plain)
        };
        Ok(Lines { input, line_bytes_max: usize::MAX - 2, number: 0, read_bytes, total_bytes })
    }

    /// From now on, lines are no longer than this; without it, they are as long as they like.
    pub(super) fn bounded(self, line_bytes_max: usize) -> Lines {
        Lines { line_bytes_max, ..self }
    }

    /// Reads the next line into `line`, which is emptied first.
    pub(super) fn next(&mut self, line: &mut Vec<u8>) -> io::Result<Line> {
        line.clear();
        // One more byte than allowed, and the line end.
        let limit = self.line_bytes_max as u64 + 2;
        let read = self.input.by_ref().take(limit).read_until(b'\n', line)?;
        if read == 0 {
            return Ok(Line::End);
        }
        self.number += 1;
        let ended = line.last() == Some(&b'\n');
        if ended {
            line.pop();
            if line.last() == Some(&b'\r') {
                line.pop();
            }
        }
        if line.len() <= self.line_bytes_max {
            return Ok(Line::Text);
        }
        line.clear();
        if !ended {
            self.input.skip_until(b'\n')?;
        }
        Ok(Line::TooLong)
    }

    /// Number of the line that was read last, from 1.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Bytes of the file that were read, as they lie on the disk.
    pub(super) fn read_bytes(&self) -> u64 {
        self.read_bytes.load(Ordering::Relaxed)
    }

    /// Size of the file; `None` for a pipe.
    pub(super) fn total_bytes(&self) -> Option<u64> {
        self.total_bytes
    }
}

struct Counted<R> {
    inner: R,
    read_bytes: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.read_bytes.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use tempfile::NamedTempFile;

    use super::*;

    fn file(content: &[u8]) -> NamedTempFile {
        let mut file = NamedTempFile::new().unwrap();
        file.write_all(content).unwrap();
        file
    }

    fn read(content: &[u8]) -> Vec<(Line, Vec<u8>)> {
        let file = file(content);
        let mut lines = Lines::open(file.path()).unwrap().bounded(5);
        let mut all = Vec::new();
        loop {
            let mut line = Vec::new();
            match lines.next(&mut line).unwrap() {
                Line::End => return all,
                other => all.push((other, line)),
            }
        }
    }

    #[test]
    fn keeps_lines_to_their_bound() {
        let lines = read(b"12345\n123456\n\n1234567890123\r\nab\r\nlast");
        let expected: [(Line, &[u8]); 6] = [
            (Line::Text, b"12345"),
            (Line::TooLong, b""),
            (Line::Text, b""),
            (Line::TooLong, b""),
            (Line::Text, b"ab"),
            (Line::Text, b"last"),
        ];
        assert_eq!(lines, expected.map(|(line, text)| (line, text.to_vec())));
        assert_eq!(read(b""), []);
        assert_eq!(read(b"123456789"), [(Line::TooLong, Vec::new())]);
    }

    #[test]
    fn recognises_compression_by_content_and_reads_every_member() {
        let member = |text: &[u8]| {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
            encoder.write_all(text).unwrap();
            encoder.finish().unwrap()
        };
        let both = [member(b"a\nb\n"), member(b"c\n")].concat();
        let texts: Vec<Vec<u8>> = read(&both).into_iter().map(|it| it.1).collect();
        assert_eq!(texts, [b"a", b"b", b"c"].map(|it| it.to_vec()));
    }

    #[test]
    fn a_compressed_file_that_ends_too_early_is_an_error() {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::none());
        encoder.write_all(b"a\nb\n").unwrap();
        let whole = encoder.finish().unwrap();
        let file = file(&whole[..whole.len() - 9]);
        let mut lines = Lines::open(file.path()).unwrap().bounded(5);
        let mut line = Vec::new();
        let last = std::iter::repeat_with(|| lines.next(&mut line)).find(|it| !matches!(it, Ok(Line::Text)));
        assert!(matches!(last, Some(Err(_))), "{last:?}");
    }
}
