//! The log of a container: files in the format of the CRI, cut to what was asked for.
//!
//! A line of the file is `<time> <stdout|stderr> <F|P> <text>`; the text of a `P` line goes on in the next one. The newest file
//! is `0.log`, the one before it `0.log.1`, and so on. Whoever rotates them renames a file before it makes the next.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream::unfold;
use k8s_openapi::jiff::Timestamp;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::node::{Log, LogOptions, LogStream};

/// How long a follower waits before it looks again.
const PAUSE: Duration = Duration::from_millis(100);
/// How much is read, and about how much is given at a time.
const BLOCK: usize = 64 * 1024;
/// Longer lines than anybody writes are left out: a writer cuts them long before.
const LONGEST: usize = 1024 * 1024;
/// More files than any rotation keeps.
const MOST_FILES: usize = 1000;

/// Where a container's log is.
#[derive(Clone, Debug)]
pub struct LogFile {
    /// The newest file.
    pub path: PathBuf,
    /// Whether the container may still write. A lost sender says that it does not.
    pub running: watch::Receiver<bool>,
}

/// What of the log was asked for.
pub fn read(log: LogFile, options: &LogOptions) -> Log {
    let LogFile { path, running } = log;
    let reader = Reader::new(path, options);
    let chunks = unfold(
        (Some(reader), running),
        |(reader, mut running)| async move {
            let mut reader = reader?;
            loop {
                // asked before the file is read: what is there then is all
                let ended = running.has_changed().is_err() || !*running.borrow_and_update();
                let read = spawn_blocking(move || {
                    let step = reader.step(ended);
                    (reader, step)
                });
                let (back, step) = match read.await {
                    Ok(read) => read,
                    Err(error) => return Some((Err(io::Error::other(error)), (None, running))),
                };
                match step {
                    Ok(Step::Given(bytes)) => return Some((Ok(bytes), (Some(back), running))),
                    Ok(Step::Idle) => reader = back,
                    Ok(Step::Over) => return None,
                    Err(error) => return Some((Err(error), (None, running))),
                }
                tokio::select! {
                    () = sleep(PAUSE) => {}
                    _ = running.changed() => {}
                }
            }
        },
    );
    chunks.boxed()
}

/// One line of a file.
#[derive(Debug, PartialEq, Eq)]
struct Line<'a> {
    time: &'a str,
    stream: LogStream,
    is_partial: bool,
    text: &'a [u8],
}

impl<'a> Line<'a> {
    /// Of a line without its end; nothing if it is none.
    fn parse(line: &'a [u8]) -> Option<Self> {
        let mut parts = line.splitn(4, |byte| *byte == b' ');
        let time = std::str::from_utf8(parts.next()?).ok()?;
        let stream = match parts.next()? {
            b"stdout" => LogStream::Stdout,
            b"stderr" => LogStream::Stderr,
            _ => return None,
        };
        let tags = parts.next()?;
        let is_partial = tags.split(|byte| *byte == b':').next() == Some(b"P");
        let text = parts.next()?;
        let begins = time.as_bytes().first().is_some_and(u8::is_ascii_digit);
        begins.then_some(Line {
            time,
            stream,
            is_partial,
            text,
        })
    }
}

/// Which lines are shown, and how.
struct Filter {
    since: Option<Timestamp>,
    stream: LogStream,
    timestamps: bool,
    /// How many bytes may still be shown.
    left: u64,
    /// Full lines that are passed over first.
    skip: u64,
    at_start_of_line: bool,
}

impl Filter {
    fn show(&mut self, line: &[u8], out: &mut Vec<u8>) {
        let Some(line) = Line::parse(line) else {
            return;
        };
        if self.skip > 0 {
            self.skip -= u64::from(!line.is_partial);
            return;
        }
        if !self.wants(&line) {
            return;
        }
        let begin = out.len();
        if self.timestamps && self.at_start_of_line {
            out.extend_from_slice(line.time.as_bytes());
            out.push(b' ');
        }
        out.extend_from_slice(line.text);
        if !line.is_partial {
            out.push(b'\n');
        }
        self.at_start_of_line = !line.is_partial;
        let shown = u64::try_from(out.len() - begin).unwrap_or(u64::MAX);
        if shown > self.left {
            let left = usize::try_from(self.left).unwrap_or(usize::MAX);
            out.truncate(begin.saturating_add(left));
        }
        self.left = self.left.saturating_sub(shown);
    }

    fn wants(&self, line: &Line<'_>) -> bool {
        let is_new = |since: Timestamp| {
            let time: Option<Timestamp> = line.time.parse().ok();
            time.is_some_and(|time| time >= since)
        };
        (self.stream == LogStream::All || self.stream == line.stream)
            && self.since.is_none_or(is_new)
    }
}

enum Step {
    Given(Bytes),
    /// There may be more later.
    Idle,
    Over,
}

/// A file by what it is, whatever it is called by now.
struct Source {
    file: File,
    identity: (u64, u64),
}

impl Source {
    fn open(path: &Path) -> io::Result<Option<Self>> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let metadata = file.metadata()?;
        let identity = (metadata.dev(), metadata.ino());
        Ok(Some(Source { file, identity }))
    }
}

/// Goes through the files from the oldest to the newest, and on to those that come.
struct Reader {
    path: PathBuf,
    follow: bool,
    tail: Option<u64>,
    filter: Filter,
    has_begun: bool,
    is_over: bool,
    /// Of these, the first is being read.
    sources: VecDeque<Source>,
    /// The beginning of a line whose end is not there yet.
    begun: Vec<u8>,
    /// Whether that line is already too long to be one.
    is_too_long: bool,
}

impl Reader {
    fn new(path: PathBuf, options: &LogOptions) -> Self {
        Self {
            path,
            follow: options.follow,
            tail: options.tail,
            filter: Filter {
                since: options.since,
                stream: options.stream,
                timestamps: options.timestamps,
                left: options.limit.unwrap_or(u64::MAX),
                skip: 0,
                at_start_of_line: true,
            },
            has_begun: false,
            is_over: false,
            sources: VecDeque::new(),
            begun: Vec::new(),
            is_too_long: false,
        }
    }

    /// Goes on until there is something to show, or nothing to read. `ended` says that nothing more will be written.
    fn step(&mut self, ended: bool) -> io::Result<Step> {
        if !self.has_begun {
            self.has_begun = true;
            self.begin()?;
        }
        let mut out = Vec::new();
        let mut block = vec![0; BLOCK];
        while !self.is_over && self.filter.left > 0 && out.len() < BLOCK {
            let read = match self.sources.front_mut() {
                Some(source) => source.file.read(&mut block)?,
                None => 0,
            };
            if read > 0 {
                self.take(&block[..read], &mut out);
            } else if self.sources.len() > 1 {
                self.end_line(&mut out);
                self.sources.pop_front();
            } else if !self.follow || !self.find_newer()? {
                if !self.follow || ended {
                    self.end_line(&mut out);
                    self.is_over = true;
                }
                break;
            }
        }
        match out.is_empty() {
            false => Ok(Step::Given(out.into())),
            true if self.is_over || self.filter.left == 0 => Ok(Step::Over),
            true => Ok(Step::Idle),
        }
    }

    /// Opens the files, at the place from which on there are as many lines as were asked for.
    fn begin(&mut self) -> io::Result<()> {
        self.find_newer()?;
        let Some(tail) = self.tail else {
            return Ok(());
        };
        let mut wanted = tail;
        for index in (0..self.sources.len()).rev() {
            let is_newest = index + 1 == self.sources.len();
            let lines = count(&mut self.sources[index].file, is_newest)?;
            if lines >= wanted {
                self.sources.drain(..index);
                self.filter.skip = lines - wanted;
                // a part of a line at the end was counted, and is wanted only if any line is
                if wanted == 0
                    && let Some(newest) = self.sources.front_mut()
                {
                    newest.file.seek(io::SeekFrom::End(0))?;
                    self.filter.skip = 0;
                }
                break;
            }
            wanted -= lines;
        }
        Ok(())
    }

    /// Opens the files that are newer than the one at hand.
    fn find_newer(&mut self) -> io::Result<bool> {
        let current = self.sources.back().map(|source| source.identity);
        let mut newer: Vec<Source> = Vec::new();
        for age in 0..MOST_FILES {
            let Some(source) = Source::open(&aged(&self.path, age))? else {
                // between a rename and the next file there is none of the first name
                match age {
                    0 => continue,
                    _ => break,
                }
            };
            if Some(source.identity) == current {
                break;
            }
            // a file that was renamed while we looked was seen under its name before
            if newer.iter().all(|seen| seen.identity != source.identity) {
                newer.push(source);
            }
        }
        let found = !newer.is_empty();
        self.sources.extend(newer.into_iter().rev());
        Ok(found)
    }

    fn take(&mut self, mut bytes: &[u8], out: &mut Vec<u8>) {
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            self.begun.extend_from_slice(&bytes[..end]);
            self.end_line(out);
            bytes = &bytes[end + 1..];
        }
        self.begun.extend_from_slice(bytes);
        if self.begun.len() > LONGEST {
            self.begun.clear();
            self.is_too_long = true;
        }
    }

    fn end_line(&mut self, out: &mut Vec<u8>) {
        let is_too_long = std::mem::take(&mut self.is_too_long) || self.begun.len() > LONGEST;
        if !is_too_long && self.filter.left > 0 {
            self.filter.show(&self.begun, out);
        }
        self.begun.clear();
    }
}

/// `0.log`, `0.log.1`, `0.log.2`, …
fn aged(path: &Path, age: usize) -> PathBuf {
    if age == 0 {
        return path.to_owned();
    }
    let mut name = OsString::from(path);
    name.push(format!(".{age}"));
    name.into()
}

/// How many lines a file has, however many parts they were written in; the file is read from its beginning afterwards.
/// The newest one may end within a line, which counts.
fn count(file: &mut File, is_newest: bool) -> io::Result<u64> {
    let mut counter = Counter::default();
    let mut block = vec![0; BLOCK];
    loop {
        let read = file.read(&mut block)?;
        if read == 0 {
            break;
        }
        counter.take(&block[..read]);
    }
    file.rewind()?;
    Ok(counter.full + u64::from(is_newest && counter.is_within_line))
}

/// Of a line only what stands before the text matters, which is short.
#[derive(Default)]
struct Counter {
    head: Vec<u8>,
    full: u64,
    is_within_line: bool,
}

impl Counter {
    /// Longer than a time, the name of a stream and tags.
    const HEAD: usize = 128;

    fn take(&mut self, mut bytes: &[u8]) {
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            self.keep(&bytes[..end]);
            if let Some(line) = Line::parse(&self.head) {
                self.full += u64::from(!line.is_partial);
                self.is_within_line = line.is_partial;
            }
            self.head.clear();
            bytes = &bytes[end + 1..];
        }
        self.keep(bytes);
    }

    fn keep(&mut self, bytes: &[u8]) {
        let room = Self::HEAD.saturating_sub(self.head.len());
        self.head.extend_from_slice(&bytes[..room.min(bytes.len())]);
    }
}

#[cfg(test)]
mod tests;
