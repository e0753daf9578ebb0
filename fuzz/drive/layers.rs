//! Layers that a stranger wrote: whatever is in them, nothing changes outside of the directory that they are unpacked into.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use local::image::Limits;
use local::image::layer::{Expected, unpack};
use tar::{EntryType, Header};

/// Names, and targets of links. `@` is a directory outside of the layer.
const WORDS: [&str; 16] = [
    "a",
    "b",
    "c",
    "a/b",
    "b/../c",
    "..",
    "../outside",
    ".",
    "",
    "@",
    "@/kept",
    "../outside/kept",
    ".wh.a",
    ".wh..wh..opq",
    ".wh...",
    "kept",
];

const KINDS: [EntryType; 8] = [
    EntryType::Regular,
    EntryType::Directory,
    EntryType::Symlink,
    EntryType::Link,
    EntryType::Fifo,
    EntryType::Char,
    EntryType::GNUSparse,
    EntryType::GNULongName,
];

/// A zero byte and a blob, or another byte and six bytes for each entry: kind, two words of its name, two of its target,
/// and how long it says it is.
pub(crate) fn drive(input: &[u8]) {
    let Some((choice, rest)) = input.split_first() else {
        return;
    };
    let stage = tempfile::tempdir().expect("a directory");
    let outside = stage.path().join("outside");
    let layer = stage.path().join("layer");
    fs::create_dir(&outside).expect("a directory");
    fs::create_dir(&layer).expect("a directory");
    fs::write(outside.join("kept"), "kept").expect("a file");
    let blob = match choice {
        0 => rest.to_vec(),
        _ => archive(rest, outside.to_str().expect("a plain path")),
    };
    let before = snapshot(&outside);
    let limits = Limits {
        bytes: 1 << 20,
        entries: 1_000,
        ratio: 100,
    };
    let _ = unpack(blob.as_slice(), &Expected::default(), &layer, limits);
    assert_eq!(snapshot(&outside), before);
    let beside = fs::read_dir(stage.path()).expect("the stage").count();
    assert_eq!(beside, 2);
}

fn archive(input: &[u8], outside: &str) -> Vec<u8> {
    let word = |byte: &u8| WORDS[usize::from(*byte) % WORDS.len()].replace('@', outside);
    let mut archive = Vec::new();
    for entry in input.chunks_exact(6) {
        let [kind, first, second, target, deeper, size] = entry else {
            continue;
        };
        let name = format!("{}/{}", word(first), word(second));
        let link = match deeper % 2 {
            0 => word(target),
            _ => format!("{}/{}", word(target), word(deeper)),
        };
        let mut header = Header::new_gnu();
        header.set_entry_type(KINDS[usize::from(*kind) % KINDS.len()]);
        header.set_mode(u32::from(*size) << 4);
        header.set_size(u64::from(*size));
        let old = header.as_old_mut();
        for (field, text) in [(&mut old.name, &name), (&mut old.linkname, &link)] {
            let length = text.len().min(field.len());
            field[..length].copy_from_slice(&text.as_bytes()[..length]);
        }
        header.set_cksum();
        archive.extend_from_slice(header.as_bytes());
        archive.resize(
            archive.len() + usize::from(*size).next_multiple_of(512),
            *kind,
        );
    }
    archive.resize(archive.len() + 1024, 0);
    archive
}

/// Everything about the files of a directory.
fn snapshot(directory: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut rest = vec![directory.to_owned()];
    while let Some(path) = rest.pop() {
        let about = fs::symlink_metadata(&path).expect("a file that can be looked at");
        if about.is_dir() {
            let entries = fs::read_dir(&path).expect("a directory that can be listed");
            rest.extend(entries.flatten().map(|entry| entry.path()));
        }
        let content = about.is_file().then(|| fs::read(&path).ok());
        let text = format!(
            "{:o} {}:{} {} {} {}.{} {content:?}",
            about.mode(),
            about.uid(),
            about.gid(),
            about.ino(),
            about.nlink(),
            about.mtime(),
            about.mtime_nsec(),
        );
        found.insert(path, text);
    }
    found
}
