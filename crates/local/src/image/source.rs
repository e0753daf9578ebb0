//! Files of an image on this machine: a directory, or a tar archive that is read where its parts are.

use std::cell::Cell;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use tar::{Archive, EntryType};

use super::digest::Digest;
use super::error::Error;
use super::meter::{self, Limits, Meter, Packing, decompress};
use super::root::Root;

/// No layout of a real image has as many files.
const MOST_PARTS: usize = 100_000;

/// What precedes one entry of the archive.
const METADATA: u64 = 1 << 20;

/// How often a part may only say where another one is.
const MOST_LINKS: usize = 8;

pub(super) struct Source {
    path: PathBuf,
    parts: Parts,
}

/// A file of an image, and how long it is.
pub(super) struct Part<'a> {
    pub(super) content: Box<dyn Read + 'a>,
    pub(super) length: u64,
}

enum Parts {
    Directory(Root),
    Archive {
        file: File,
        places: HashMap<String, Place>,
    },
}

enum Place {
    Bytes { start: u64, length: u64 },
    Link(String),
}

impl Source {
    /// Opens a directory or an archive. One that is compressed is expanded into `scratch`.
    pub(super) fn open(path: &Path, scratch: &Path, limits: Limits) -> Result<Self, Error> {
        let failed = |source: io::Error| Error::io("read", path, source);
        let parts = if path.is_dir() {
            Parts::Directory(Root::open(path).map_err(failed)?)
        } else {
            let file = File::open(path).map_err(failed)?;
            let file = expanded(file, path, scratch, limits)?;
            let places = scan(&file).map_err(|_| Error::NoImage(path.to_owned()))?;
            Parts::Archive { file, places }
        };
        Ok(Self {
            path: path.to_owned(),
            parts,
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// A part by its path.
    pub(super) fn part(&self, name: &str) -> Result<Option<Part<'_>>, Error> {
        match &self.parts {
            Parts::Directory(root) => {
                let file = match root.file(name.as_bytes()) {
                    Err(rustix::io::Errno::NOENT) => return Ok(None),
                    file => {
                        file.map_err(|error| Error::io("read", &self.path.join(name), error))?
                    }
                };
                let about = file.metadata();
                let about =
                    about.map_err(|error| Error::io("read", &self.path.join(name), error))?;
                match about.is_file() {
                    true => Ok(Some(Part {
                        content: Box::new(file),
                        length: about.len(),
                    })),
                    false => Ok(None),
                }
            }
            Parts::Archive { file, places } => {
                let mut name = name.to_owned();
                for _ in 0..MOST_LINKS {
                    match places.get(&name) {
                        None => return Ok(None),
                        Some(Place::Link(target)) => name.clone_from(target),
                        Some(Place::Bytes { start, length }) => {
                            let content = Slice {
                                file,
                                at: *start,
                                left: *length,
                            };
                            return Ok(Some(Part {
                                content: Box::new(content),
                                length: *length,
                            }));
                        }
                    }
                }
                Ok(None)
            }
        }
    }

    /// A part that must be there.
    pub(super) fn needed(&self, name: &str) -> Result<Part<'_>, Error> {
        let part = self.part(name)?;
        part.ok_or_else(|| Error::Incomplete {
            path: self.path.clone(),
            part: name.chars().take(200).collect(),
        })
    }

    /// The text of a small part that must be there.
    pub(super) fn text(&self, name: &str, most: u64) -> Result<Vec<u8>, Error> {
        let part = self.needed(name)?;
        let mut text = Vec::new();
        let read = part.content.take(most + 1).read_to_end(&mut text);
        read.map_err(|source| Error::io("read", &self.path, source))?;
        if text.len() as u64 > most {
            return Err(Error::Long {
                path: self.path.clone(),
                part: name.chars().take(200).collect(),
                most,
            });
        }
        Ok(text)
    }

    /// The text of a document that its digest names.
    pub(super) fn document(&self, digest: &Digest, most: u64) -> Result<Vec<u8>, Error> {
        let name = blob(digest);
        let text = self.text(&name, most)?;
        let actual = Digest::of(&text);
        match actual == *digest {
            true => Ok(text),
            false => Err(Error::Forged {
                path: self.path.clone(),
                part: name,
                expected: digest.clone(),
                actual,
            }),
        }
    }
}

/// Where a layout has a blob.
pub(super) fn blob(digest: &Digest) -> String {
    format!("blobs/sha256/{}", digest.hex())
}

/// The file itself, or its content without compression.
fn expanded(mut file: File, path: &Path, scratch: &Path, limits: Limits) -> Result<File, Error> {
    let failed = |source: io::Error| Error::io("read", path, source);
    let mut head = [0; 4];
    let count = file.read_at(&mut head, 0).map_err(failed)?;
    if Packing::of(&head[..count]).is_none() {
        file.rewind().map_err(failed)?;
        return Ok(file);
    }
    let meter = Meter::new(limits);
    let mut compressed = meter::compressed(file, &meter);
    let content = decompress(&mut compressed).map_err(failed)?;
    let mut content = meter::expanded(content, &meter);
    let mut whole = File::options()
        .create_new(true)
        .read(true)
        .write(true)
        .open(scratch)
        .map_err(|source| Error::io("make", scratch, source))?;
    let copied = io::copy(&mut content, &mut whole);
    // it lives as long as it is open
    let removed = std::fs::remove_file(scratch);
    if meter.excess().is_some() {
        return Err(Error::Long {
            path: path.to_owned(),
            part: "the content".to_owned(),
            most: limits.bytes,
        });
    }
    copied
        .and(removed)
        .and(whole.rewind())
        .map_err(|source| Error::io("expand", path, source))?;
    Ok(whole)
}

/// Finds the parts of an archive without reading them.
fn scan(file: &File) -> io::Result<HashMap<String, Place>> {
    let left = Cell::new(METADATA);
    let mut archive = Archive::new(Bounded { file, left: &left });
    let mut places = HashMap::new();
    let mut entries = archive.entries_with_seek()?;
    loop {
        left.set(METADATA);
        let Some(entry) = entries.next() else {
            return Ok(places);
        };
        let entry = entry?;
        if places.len() == MOST_PARTS {
            return Err(io::Error::other("there are too many files"));
        }
        let Ok(name) = String::from_utf8(entry.path_bytes().into_owned()) else {
            continue;
        };
        let link = entry.link_name_bytes().unwrap_or_default();
        let link = String::from_utf8_lossy(&link);
        let place = match entry.header().entry_type() {
            EntryType::Regular | EntryType::Continuous => Place::Bytes {
                start: entry.raw_file_position(),
                length: entry.size(),
            },
            EntryType::Link => Place::Link(normal("", &link)),
            EntryType::Symlink => Place::Link(normal(&name, &link)),
            _ => continue,
        };
        places.insert(normal("", &name), place);
    }
}

/// The path that a link in the file `from` leads to. It is a key of a map and never reaches the file system.
fn normal(from: &str, to: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in to.split('/') {
        match part {
            "" | "." => {}
            ".." => _ = parts.pop(),
            part => parts.push(part),
        }
    }
    parts.retain(|part| !matches!(*part, "" | "."));
    parts.join("/")
}

/// A part of a file.
struct Slice<'a> {
    file: &'a File,
    at: u64,
    left: u64,
}

impl Read for Slice<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX);
        let most = most.min(into.len());
        let count = self.file.read_at(&mut into[..most], self.at)?;
        self.at += count as u64;
        self.left -= count as u64;
        Ok(count)
    }
}

/// A file of which only so much is read: what precedes an entry is kept in memory as a whole.
struct Bounded<'a> {
    file: &'a File,
    left: &'a Cell<u64>,
}

impl Read for Bounded<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(into)?;
        let left = self.left.get().checked_sub(count as u64);
        self.left
            .set(left.ok_or_else(|| io::Error::other("a name is too long"))?);
        Ok(count)
    }
}

impl Seek for Bounded<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

#[cfg(test)]
mod tests {
    use super::normal;

    #[test]
    fn links_of_old_archives_lead_to_other_parts() {
        assert_eq!(normal("a/layer.tar", "../b/layer.tar"), "b/layer.tar");
        assert_eq!(normal("", "./blobs//x"), "blobs/x");
        assert_eq!(normal("a/b", "../../../etc/passwd"), "etc/passwd");
    }
}
