//! What a process did to the files of one directory, read from the output of strace.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

/// One thing that the traced process did, in the order in which it was done.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    Create {
        name: String,
    },
    Write {
        name: String,
        at: usize,
        data: Vec<u8>,
    },
    Truncate {
        name: String,
        length: usize,
    },
    Unlink {
        name: String,
    },
    /// Has returned.
    SyncFile {
        name: String,
    },
    /// Has returned.
    SyncDirectory,
    /// Has begun: from here on someone may know.
    Print {
        text: String,
    },
}

const CALLS: &str = "trace=openat,write,writev,pwrite64,pwritev,pwritev2,ftruncate,truncate,fallocate,\
                     fsync,fdatasync,sync_file_range,unlink,unlinkat,rename,renameat,renameat2";

/// Runs `command` to its end under strace.
pub(crate) fn run(command: &Command, directory: &Path) -> Result<Vec<Step>> {
    let log = tempfile::NamedTempFile::new()?;
    let mut strace = Command::new("strace");
    // -y: files by name; -xx: all text in hex; -s: nothing cut off
    strace
        .args(["-f", "-y", "-xx", "-s", "100000000", "-e", CALLS, "-o"])
        .arg(log.path());
    strace
        .arg("--")
        .arg(command.get_program())
        .args(command.get_args());
    strace.envs(
        command
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    let status = strace
        .stdout(Stdio::null())
        .status()
        .context("cannot run strace: install the package `strace`")?;
    ensure!(status.success(), "the traced program failed: {status}");
    let mut reader = Reader {
        directory: directory.canonicalize()?,
        begun: Vec::new(),
    };
    let mut steps = Vec::new();
    for line in std::fs::read_to_string(log.path())?.lines() {
        let step = reader
            .line(line)
            .with_context(|| line.chars().take(300).collect::<String>())?;
        steps.extend(step);
    }
    Ok(steps)
}

struct Reader {
    directory: PathBuf,
    /// Calls that other threads have interrupted: the thread, and the text so far.
    begun: Vec<(String, String)>,
}

impl Reader {
    fn line(&mut self, line: &str) -> Result<Option<Step>> {
        let (thread, text) = line.split_once(' ').context("no thread")?;
        let text = text.trim_start();
        if let Some(begin) = text.strip_suffix(" <unfinished ...>") {
            if let Some(print) = print(begin)? {
                return Ok(Some(print));
            }
            self.begun.push((thread.to_owned(), begin.to_owned()));
            return Ok(None);
        }
        if text.starts_with("<... ") {
            let Some(at) = self
                .begun
                .iter()
                .position(|(begun_by, _)| begun_by == thread)
            else {
                return Ok(None);
            };
            let begin = self.begun.swap_remove(at).1;
            let end = text.split_once(" resumed>").context("not resumed")?.1;
            return self.call(&(begin + end));
        }
        self.call(text)
    }

    fn call(&self, text: &str) -> Result<Option<Step>> {
        if let Some(print) = print(text)? {
            return Ok(Some(print));
        }
        let failed = text.contains(" = -1 ");
        let Some((call, rest)) = text.split_once('(').filter(|_| !failed) else {
            return Ok(None);
        };
        // the file is an open one in <>, or a path in quotes
        let path = match call {
            "openat" | "unlink" => rest.split('"').nth(1),
            _ => rest.split(['<', '>']).nth(1),
        };
        let path = PathBuf::from(String::from_utf8(unhex(path.unwrap_or_default())?)?);
        if path == self.directory {
            return Ok(matches!(call, "fsync" | "fdatasync").then_some(Step::SyncDirectory));
        }
        let Ok(name) = path.strip_prefix(&self.directory) else {
            return Ok(None);
        };
        let name = name.to_str().context("not a text")?.to_owned();
        ensure!(
            !name.ends_with("-shm"),
            "shared memory is written without calls: not simulated"
        );
        let last_number = || {
            let arguments = rest.rsplit_once(')').context("no end")?.0;
            let number = arguments.rsplit_once(", ").context("no number")?.1;
            number.parse::<usize>().context("not a number")
        };
        let step = match call {
            "openat" if rest.contains("O_TRUNC") => bail!("truncating open: not simulated"),
            "openat" if rest.contains("O_CREAT") => Step::Create { name },
            "openat" => return Ok(None),
            "pwrite64" => {
                let data = unhex(rest.split('"').nth(1).context("no data")?)?;
                Step::Write {
                    name,
                    at: last_number()?,
                    data,
                }
            }
            "ftruncate" => Step::Truncate {
                name,
                length: last_number()?,
            },
            "unlink" => Step::Unlink { name },
            "fsync" | "fdatasync" => Step::SyncFile { name },
            other => bail!("{other}: not simulated"),
        };
        Ok(Some(step))
    }
}

/// What goes to standard output. It is known when the call begins, so its end is never waited for.
fn print(text: &str) -> Result<Option<Step>> {
    let Some(rest) = text.strip_prefix("write(1<") else {
        return Ok(None);
    };
    let data = unhex(rest.split('"').nth(1).context("no data")?)?;
    Ok(Some(Step::Print {
        text: String::from_utf8_lossy(&data).into_owned(),
    }))
}

fn unhex(text: &str) -> Result<Vec<u8>> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Ok(byte - b'0'),
        b'a'..=b'f' => Ok(byte - b'a' + 10),
        _ => bail!("not hex"),
    };
    text.as_bytes()
        .chunks(4)
        .map(|chunk| match chunk {
            [b'\\', b'x', high, low] => Ok(digit(*high)? << 4 | digit(*low)?),
            _ => bail!("not hex"),
        })
        .collect()
}
