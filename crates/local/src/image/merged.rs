//! Reading a file of an image as a container would see it, without mounting anything.
//!
//! The layers are walked side by side, one name at a time. Links lead from the root of the image again, so they stay in it.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::root::{Found, Root, is_opaque, look, open_directory};

/// As many links as the kernel follows.
const MOST_LINKS: usize = 40;

/// What a name is in a directory of all layers together.
enum Seen {
    Nothing,
    /// The directories that together are this one, top first.
    Directory(Vec<OwnedFd>),
    Link(Vec<u8>),
    File(File),
}

/// The content of a regular file, up to `most` bytes, or nothing if there is none at the path. `layers` are bottom first.
pub(super) fn read(layers: &[PathBuf], path: &str, most: u64) -> io::Result<Option<Vec<u8>>> {
    let mut roots = Vec::new();
    for layer in layers.iter().rev() {
        let root = Root::open(layer)?.directory(b"")?;
        let is_last = is_opaque(root.as_fd());
        roots.push(root);
        if is_last {
            break;
        }
    }
    let mut way = vec![roots];
    let mut rest: Vec<Vec<u8>> = parts(path.as_bytes());
    let mut links = 0;
    while let Some(name) = rest.pop() {
        if name == b".." {
            if way.len() > 1 {
                way.pop();
            }
            continue;
        }
        let here = way.last().map_or(&[][..], Vec::as_slice);
        match find(here, &name)? {
            Seen::Nothing => return Ok(None),
            Seen::Directory(below) => way.push(below),
            Seen::File(_) if !rest.is_empty() => return Ok(None),
            Seen::File(file) => return content(file, most),
            Seen::Link(target) => {
                links += 1;
                if links > MOST_LINKS {
                    return Ok(None);
                }
                if target.starts_with(b"/") {
                    way.truncate(1);
                }
                rest.extend(parts(&target));
            }
        }
    }
    Ok(None)
}

/// The names of a path, last first.
fn parts(path: &[u8]) -> Vec<Vec<u8>> {
    let names = path.split(|byte| *byte == b'/');
    let names = names.filter(|name| !matches!(*name, b"" | b"."));
    let mut names: Vec<Vec<u8>> = names.map(<[u8]>::to_vec).collect();
    names.reverse();
    names
}

fn find(directories: &[OwnedFd], name: &[u8]) -> Result<Seen, Errno> {
    let mut together = Vec::new();
    for directory in directories {
        match look(directory.as_fd(), name)? {
            Found::Nothing => continue,
            Found::Directory => {
                let below = open_directory(directory.as_fd(), name)?;
                let is_last = is_opaque(below.as_fd());
                together.push(below);
                if is_last {
                    break;
                }
            }
            // a directory above hides whatever this is
            _ if !together.is_empty() => break,
            Found::Link => {
                let target = rustix::fs::readlinkat(directory, name, Vec::new())?;
                return Ok(Seen::Link(target.into_bytes()));
            }
            Found::File => {
                let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let file = rustix::fs::openat(directory, name, flags, Mode::empty())?;
                return Ok(Seen::File(file.into()));
            }
            Found::Whiteout | Found::Other => break,
        }
    }
    Ok(match together.is_empty() {
        true => Seen::Nothing,
        false => Seen::Directory(together),
    })
}

fn content(file: File, most: u64) -> io::Result<Option<Vec<u8>>> {
    let mut content = Vec::new();
    file.take(most + 1).read_to_end(&mut content)?;
    match content.len() as u64 > most {
        true => Err(io::ErrorKind::FileTooLarge.into()),
        false => Ok(Some(content)),
    }
}
