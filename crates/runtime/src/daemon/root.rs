//! A directory that the paths of requests stay in.
//!
//! It keeps clients from mistakes and is no wall: whoever may name a path here may also run a command, which can read all that
//! its user can. A path is looked at before it is used, and whoever changes a link in between can still lead it out.

use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use super::error::Error;
use super::files::Refusal;
use super::filesystem::tree;
use super::paths;
use super::users::User;
use crate::code::Code;

/// As many as the kernel follows.
const MOST_LINKS: usize = 40;

pub(super) struct Root {
    path: PathBuf,
}

/// What a directory holds, as it is when links are followed.
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) metadata: fs::Metadata,
}

impl Root {
    pub(super) fn new(path: &Path) -> io::Result<Self> {
        let path = std::path::absolute(path)?;
        Ok(Self { path })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Images may come without it.
    pub(super) fn make(&self, user: &User) -> io::Result<()> {
        paths::make_directories(&self.path, user)
    }

    /// Where a path leads, links followed. A path from the top is one from the root.
    pub(super) fn resolve(&self, path: &str) -> Result<PathBuf, Error> {
        let root = follow(&self.path).map_err(|e| Error::of_path("reading", &self.path, &e))?;
        let below = root.join(relative(path)?);
        let real = follow(&below).map_err(|e| Error::of_path("reading", &below, &e))?;
        if real.starts_with(&root) {
            Ok(real)
        } else {
            Err(leads_out(path))
        }
    }

    /// The entry itself: links are followed on the way to it, but not at its end.
    pub(super) fn resolve_entry(&self, path: &str) -> Result<PathBuf, Error> {
        let relative = relative(path)?;
        match (
            relative.parent().and_then(Path::to_str),
            relative.file_name(),
        ) {
            (Some(parent), Some(name)) => Ok(self.resolve(parent)?.join(name)),
            _ => self.resolve(""),
        }
    }

    /// The entries of a directory by their names, without those that lead nowhere or out of the root.
    pub(super) fn list(&self, directory: &Path) -> Result<Vec<Entry>, Refusal> {
        let root = follow(&self.path).map_err(|e| Refusal::of_path("reading", &self.path, &e))?;
        let children =
            tree::children(directory).map_err(|e| Refusal::of_path("reading", directory, &e))?;
        let inside = children
            .into_iter()
            .filter(|path| follow(path).is_ok_and(|real| real.starts_with(&root)));
        let entries = inside.filter_map(|path| {
            Some(Entry {
                name: path.file_name()?.to_string_lossy().into_owned(),
                metadata: fs::metadata(&path).ok()?,
            })
        });
        Ok(entries.collect())
    }
}

/// Without its dots, which must not lead out.
fn relative(path: &str) -> Result<PathBuf, Error> {
    paths::check(path)?;
    let path = path.trim_start_matches('/');
    let mut depth = 0_usize;
    for component in Path::new(path).components() {
        match component {
            Component::ParentDir => depth = depth.checked_sub(1).ok_or_else(|| leads_out(path))?,
            Component::Normal(_) => depth += 1,
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    Ok(paths::clean(Path::new(path)))
}

fn leads_out(path: &str) -> Error {
    let message = format!("path '{path}' leads out of the sandbox's root");
    Error::new(Code::PermissionDenied, message)
}

/// Follows all links of an absolute path, of which the end may be missing.
fn follow(path: &Path) -> io::Result<PathBuf> {
    let mut real = PathBuf::from("/");
    // the next component last
    let mut ahead: Vec<PathBuf> = components(path);
    let mut links = 0;
    while let Some(component) = ahead.pop() {
        if component == Path::new("..") {
            real.pop();
            continue;
        }
        let next = real.join(&component);
        let Ok(target) = fs::read_link(&next) else {
            real = next;
            continue;
        };
        links += 1;
        if links > MOST_LINKS {
            return Err(io::Error::from_raw_os_error(libc::ELOOP));
        }
        if target.is_absolute() {
            real = PathBuf::from("/");
        }
        ahead.extend(components(&target));
    }
    Ok(real)
}

fn components(path: &Path) -> Vec<PathBuf> {
    let named = path.components().filter_map(|component| match component {
        Component::Normal(_) | Component::ParentDir => Some(Path::new(&component).to_owned()),
        Component::CurDir | Component::RootDir | Component::Prefix(_) => None,
    });
    let mut named: Vec<PathBuf> = named.collect();
    named.reverse();
    named
}

/// The path that follows the name of an endpoint in its address.
pub(super) fn path_of(encoded: &str) -> Result<String, Refusal> {
    let path = percent_encoding::percent_decode_str(encoded).decode_utf8();
    path.map(Into::into)
        .map_err(|_| Refusal::bad_request("the path is not UTF-8"))
}

pub(super) fn metadata(path: &Path) -> Result<fs::Metadata, Refusal> {
    fs::metadata(path).map_err(|e| Refusal::of_existing("reading", path, &e))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use super::Root;
    use crate::code::Code;

    #[test]
    fn paths_lead_to_where_their_links_lead_as_long_as_it_is_inside() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().canonicalize().unwrap();
        let real = top.join("real");
        fs::create_dir_all(real.join("a")).unwrap();
        fs::create_dir(top.join("real-not")).unwrap();
        for (link, target) in [
            ("inside", "a/../a"),
            ("back", "../real/a"),
            ("beside", "../real-not"),
            ("out", "/"),
            ("dangling", "../gone"),
            ("loop", "loop"),
        ] {
            symlink(target, real.join(link)).unwrap();
        }
        symlink("real", top.join("root")).unwrap();
        let root = Root::new(&top.join("root")).unwrap();
        for (path, leads_to) in [
            ("", ""),
            (".", ""),
            ("//x//y/", "x/y"),
            ("a/../x", "x"),
            ("inside/x", "a/x"),
            ("back/x", "a/x"),
            ("a/new/..", "a"),
        ] {
            let found = root.resolve(path).unwrap();
            assert_eq!(found, real.join(leads_to), "{path}");
        }
        for path in [
            "..",
            "/../x",
            "a/../../real",
            "out",
            "out/etc",
            "beside/x",
            "dangling",
        ] {
            assert_eq!(
                root.resolve(path).unwrap_err().code,
                Code::PermissionDenied,
                "{path}"
            );
        }
        assert_eq!(
            root.resolve("loop").unwrap_err().code,
            Code::FailedPrecondition
        );
        for path in ["a\0b", &"a/".repeat(2048)] {
            assert_eq!(root.resolve(path).unwrap_err().code, Code::InvalidArgument);
        }
        assert_eq!(root.resolve_entry("out").unwrap(), real.join("out"));
        assert_eq!(
            root.resolve_entry("out/etc").unwrap_err().code,
            Code::PermissionDenied
        );
        assert_eq!(root.resolve_entry("/").unwrap(), Path::new(&real));
        let listed = root.list(&real).unwrap();
        let names: Vec<&str> = listed.iter().map(|entry| entry.name.as_str()).collect();
        assert_eq!(names, ["a", "back", "inside"]);
    }
}
