//! What clients attach to files: extended attributes.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use http::HeaderMap;
use rustix::fs::{
    XattrFlags, flistxattr, fremovexattr, fsetxattr, lgetxattr, llistxattr, llistxattr_query,
};
use rustix::io::Errno;

use super::Refusal;

const HEADER: &str = "x-metadata-";
const ATTRIBUTE: &str = "user.e2b.";

/// What the kernel allows for a name is 255 bytes.
const LONGEST_KEY: usize = 246;
/// What the smallest of the common file systems can hold.
const LARGEST: usize = 4096;

/// What one list of names, or one value, can be at most for the kernel.
const BUFFER: usize = 64 << 10;

pub(super) fn of_headers(headers: &HeaderMap) -> Result<BTreeMap<String, String>, Refusal> {
    let mut metadata = BTreeMap::new();
    for (name, value) in headers {
        let Some(key) = name.as_str().strip_prefix(HEADER) else {
            continue;
        };
        if metadata.contains_key(key) {
            continue;
        }
        let printable = |bytes: &[u8]| bytes.iter().all(|byte| (0x20..=0x7e).contains(byte));
        let value = value
            .to_str()
            .ok()
            .filter(|value| printable(value.as_bytes()))
            .ok_or_else(|| {
                Refusal::bad_request(format!("metadata '{key}' is not printable ASCII"))
            })?;
        if key.is_empty() || key.len() > LONGEST_KEY {
            let message = format!("a metadata key has 1 to {LONGEST_KEY} bytes: '{key}'");
            return Err(Refusal::bad_request(message));
        }
        metadata.insert(key.to_owned(), value.to_owned());
    }
    let size: usize = metadata.iter().map(|(k, v)| k.len() + v.len()).sum();
    if size > LARGEST {
        let message = format!("metadata of {size} bytes is more than the {LARGEST} allowed");
        return Err(Refusal::bad_request(message));
    }
    Ok(metadata)
}

/// Makes the metadata of a file exactly these. Touches nothing that is right already: every change is an event to watchers.
///
/// Returns what is there afterwards: nothing where the file system has no attributes.
pub(super) fn replace(
    file: &File,
    metadata: &BTreeMap<String, String>,
) -> io::Result<BTreeMap<String, String>> {
    let mut buffer = vec![0; BUFFER];
    let listed = match flistxattr(file, &mut buffer) {
        Ok(length) => keys(&buffer[..length]),
        Err(Errno::NOTSUP) => return Ok(BTreeMap::new()),
        Err(error) => return Err(error.into()),
    };
    for key in listed.iter().filter(|key| !metadata.contains_key(*key)) {
        fremovexattr(file.as_fd(), attribute(key))?;
    }
    for (key, value) in metadata {
        let set = fsetxattr(file, attribute(key), value.as_bytes(), XattrFlags::empty());
        match set {
            Ok(()) => {}
            Err(Errno::NOTSUP | Errno::PERM) => return Ok(BTreeMap::new()),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(metadata.clone())
}

/// As much as can be read.
pub(in crate::daemon) fn of_path(path: &Path) -> BTreeMap<String, String> {
    // nearly all files have none, and asking for the size needs no buffer
    match llistxattr_query(path) {
        Ok(0) | Err(_) => return BTreeMap::new(),
        Ok(_) => {}
    }
    let mut buffer = vec![0; BUFFER];
    let Ok(length) = llistxattr(path, &mut buffer) else {
        return BTreeMap::new();
    };
    let found = keys(&buffer[..length]);
    let valued = found.into_iter().filter_map(|key| {
        let length = lgetxattr(path, attribute(&key), &mut buffer).ok()?;
        let value = std::str::from_utf8(&buffer[..length]).ok()?.to_owned();
        Some((key, value))
    });
    valued.collect()
}

fn attribute(key: &str) -> String {
    format!("{ATTRIBUTE}{key}")
}

fn keys(listed: &[u8]) -> Vec<String> {
    listed
        .split(|byte| *byte == 0)
        .filter_map(|name| std::str::from_utf8(name).ok()?.strip_prefix(ATTRIBUTE))
        .map(str::to_owned)
        .collect()
}
