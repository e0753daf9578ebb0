//! The log of a container, in the form that Kubernetes reads: one line of output is one line with time, stream and a mark.
//!
//! Lines of more than 16 KiB are cut and marked `P`, and so is output that ended without a line end. When the disk is full
//! output is dropped and counted; the container goes on.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use chrono::{DateTime, SecondsFormat};

const MAX_LINE: usize = 16 << 10;
const MAX_FILE: u64 = 10 << 20;
/// With the one that is written to.
const FILES: u32 = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stream {
    Stdout,
    Stderr,
}

impl Stream {
    fn name(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

pub(super) struct Log {
    path: PathBuf,
    file: File,
    size: u64,
    max_size: u64,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    dropped: u64,
    /// Of those, how many the log itself tells of.
    told: u64,
}

impl Log {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        Self::with_limit(path, MAX_FILE)
    }

    fn with_limit(path: &Path, max_size: u64) -> io::Result<Self> {
        let file = append(path)?;
        Ok(Self {
            size: file.metadata()?.len(),
            path: path.to_owned(),
            file,
            max_size,
            stdout: Vec::new(),
            stderr: Vec::new(),
            dropped: 0,
            told: 0,
        })
    }

    /// Bytes that could not be kept.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Output as it came.
    pub(super) fn write(&mut self, stream: Stream, bytes: &[u8], now: SystemTime) {
        let pending = match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        };
        let lines = format(pending, stream, bytes, &stamp(now));
        if pending.is_empty() {
            // memory of a quiet container is nobody's
            *pending = Vec::new();
        }
        self.append(&lines, bytes.len(), now);
    }

    /// What came last without a line end.
    pub(super) fn finish(&mut self, now: SystemTime) {
        for stream in [Stream::Stdout, Stream::Stderr] {
            let pending = match stream {
                Stream::Stdout => std::mem::take(&mut self.stdout),
                Stream::Stderr => std::mem::take(&mut self.stderr),
            };
            if !pending.is_empty() {
                let mut line = Vec::new();
                push_line(&mut line, &stamp(now), stream, 'P', &pending);
                self.append(&line, 0, now);
            }
        }
    }

    fn append(&mut self, lines: &[u8], bytes: usize, now: SystemTime) {
        if lines.is_empty() {
            return;
        }
        if self.size > 0 && self.size + lines.len() as u64 > self.max_size {
            self.rotate();
        }
        let mut all = Vec::new();
        if self.dropped > self.told {
            let missing = self.dropped - self.told;
            let text = format!("[sandbar: {missing} bytes of output before this line were lost]");
            push_line(&mut all, &stamp(now), Stream::Stderr, 'F', text.as_bytes());
        }
        all.extend_from_slice(lines);
        if self.file.write_all(&all).is_ok() {
            self.size += all.len() as u64;
            self.told = self.dropped;
        } else {
            // no half lines: readers take them for whole ones
            let _ = self.file.set_len(self.size);
            self.dropped += bytes as u64;
        }
    }

    /// On failure the file that is there goes on growing: better than no log.
    fn rotate(&mut self) {
        let numbered = |n: u32| PathBuf::from(format!("{}.{n}", self.path.display()));
        for n in (1..FILES - 1).rev() {
            let _ = fs::rename(numbered(n), numbered(n + 1));
        }
        if fs::rename(&self.path, numbered(1)).is_err() {
            return;
        }
        if let Ok(file) = append(&self.path) {
            self.file = file;
            self.size = 0;
        }
    }
}

fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

/// Whole lines, and pieces of long ones; the rest stays in `pending`.
fn format(pending: &mut Vec<u8>, stream: Stream, bytes: &[u8], stamp: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len() + 64);
    for part in bytes.split_inclusive(|b| *b == b'\n') {
        let (mut rest, ends) = match part.split_last() {
            Some((b'\n', line)) => (line, true),
            _ => (part, false),
        };
        while pending.len() + rest.len() > MAX_LINE {
            let (now, later) = rest.split_at(MAX_LINE - pending.len());
            pending.extend_from_slice(now);
            push_line(&mut out, stamp, stream, 'P', pending);
            pending.clear();
            rest = later;
        }
        if ends && pending.is_empty() {
            push_line(&mut out, stamp, stream, 'F', rest);
        } else {
            pending.extend_from_slice(rest);
            if ends {
                push_line(&mut out, stamp, stream, 'F', pending);
                pending.clear();
            }
        }
    }
    out
}

fn push_line(out: &mut Vec<u8>, stamp: &str, stream: Stream, mark: char, line: &[u8]) {
    // writing to memory cannot fail
    let _ = write!(out, "{stamp} {} {mark} ", stream.name());
    out.extend_from_slice(line);
    out.push(b'\n');
}

fn stamp(now: SystemTime) -> String {
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = i64::try_from(since.as_secs()).unwrap_or(0);
    let time = DateTime::from_timestamp(seconds, since.subsec_nanos()).unwrap_or_default();
    time.to_rfc3339_opts(SecondsFormat::Nanos, true)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::{Duration, SystemTime, UNIX_EPOCH};

    use super::{FILES, Log, MAX_LINE, Stream};

    fn now() -> SystemTime {
        UNIX_EPOCH + Duration::new(1_794_848_400, 123_456_789)
    }

    #[test]
    fn lines_have_time_stream_and_mark_however_they_arrive() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let mut log = Log::open(&path).unwrap();
        log.write(Stream::Stdout, b"one\ntw", now());
        log.write(Stream::Stderr, b"other\n\n", now());
        log.write(Stream::Stdout, b"o\nunfinished", now());
        log.finish(now());
        let at = "2026-11-16T17:00:00.123456789Z";
        let expected = format!(
            "{at} stdout F one\n{at} stderr F other\n{at} stderr F \n{at} stdout F two\n{at} stdout P unfinished\n"
        );
        assert_eq!(fs::read_to_string(&path).unwrap(), expected);
    }

    #[test]
    fn long_lines_are_cut_and_lose_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let mut log = Log::open(&path).unwrap();
        let line = "x".repeat(MAX_LINE * 2 + 10);
        for chunk in format!("{line}\n").as_bytes().chunks(1000) {
            log.write(Stream::Stdout, chunk, now());
        }
        let text = fs::read_to_string(&path).unwrap();
        let marks: Vec<&str> = text.lines().filter_map(|l| l.split(' ').nth(2)).collect();
        assert_eq!(marks, ["P", "P", "F"]);
        let parts = text.lines().filter_map(|l| l.split(' ').nth(3));
        assert_eq!(parts.collect::<String>(), line);
    }

    #[test]
    fn a_line_of_exactly_the_limit_is_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let mut log = Log::open(&path).unwrap();
        log.write(
            Stream::Stdout,
            format!("{}\n", "x".repeat(MAX_LINE)).as_bytes(),
            now(),
        );
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().count(), 1);
        assert!(text.contains(" F x"));
    }

    #[test]
    fn full_files_make_room_and_the_oldest_goes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let mut log = Log::with_limit(&path, 1000).unwrap();
        for n in 0..200 {
            log.write(Stream::Stdout, format!("line {n}\n").as_bytes(), now());
        }
        let files = fs::read_dir(dir.path()).unwrap().count();
        assert_eq!(files, FILES as usize);
        let mut all = String::new();
        for n in (1..FILES).rev() {
            all += &fs::read_to_string(dir.path().join(format!("log.{n}"))).unwrap();
        }
        all += &fs::read_to_string(&path).unwrap();
        let numbers: Vec<u32> = all
            .lines()
            .map(|l| l.rsplit(' ').next().unwrap().parse().unwrap())
            .collect();
        let last = u32::try_from(numbers.len()).unwrap();
        assert_eq!(numbers, (200 - last..200).collect::<Vec<_>>());
    }

    #[test]
    fn a_full_disk_drops_whole_lines_counts_them_and_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let mut log = Log::open(&path).unwrap();
        log.write(Stream::Stdout, b"before\n", now());
        let real = std::mem::replace(
            &mut log.file,
            fs::OpenOptions::new()
                .append(true)
                .open("/dev/full")
                .unwrap(),
        );
        log.write(Stream::Stdout, b"lost\n", now());
        assert_eq!(log.dropped(), 5);
        log.file = real;
        log.write(Stream::Stdout, b"after\n", now());
        let text = fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text
            .lines()
            .map(|l| l.splitn(4, ' ').nth(3).unwrap())
            .collect();
        assert_eq!(
            lines,
            [
                "before",
                "[sandbar: 5 bytes of output before this line were lost]",
                "after"
            ]
        );
    }
}
