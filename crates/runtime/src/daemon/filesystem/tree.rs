//! Listing, making, moving and removing.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use super::entry;
use crate::code::Code;
use crate::daemon::error::{Error, is_missing};
use crate::daemon::paths;
use crate::daemon::scope::Scope;
use crate::daemon::users::Names;
use crate::messages::filesystem::{EntryInfo, ListDirRequest, MoveRequest};

pub(super) fn stat(scope: &Scope, path: &str) -> Result<EntryInfo, Error> {
    let path = scope.resolve(path)?;
    describe(&path, &scope.names())
}

fn describe(path: &Path, names: &Names) -> Result<EntryInfo, Error> {
    entry::describe(path, names).map_err(|e| Error::of_existing("reading", path, &e))
}

/// A directory to look into, links followed.
pub(super) fn check_directory(path: &Path) -> Result<(), Error> {
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => Ok(()),
        Ok(_) => Err(Error::invalid(format!(
            "path '{}' is not a directory",
            path.display()
        ))),
        Err(error) => Err(Error::of_existing("reading", path, &error)),
    }
}

pub(super) fn list(scope: &Scope, request: &ListDirRequest) -> Result<Vec<EntryInfo>, Error> {
    let root = scope.resolve(&request.path)?;
    check_directory(&root)?;
    let names = scope.names();
    let deepest = request.depth.max(1);
    let mut entries = Vec::new();
    // what is still to be described, the next one last
    let mut ahead: Vec<(PathBuf, u32)> = Vec::new();
    let top = children(&root).map_err(|e| Error::of_path("reading", &root, &e))?;
    ahead.extend(top.into_iter().rev().map(|path| (path, 1)));
    while let Some((path, depth)) = ahead.pop() {
        // others may remove it meanwhile
        let Ok(entry) = entry::describe(&path, &names) else {
            continue;
        };
        let is_directory = !entry.is_symlink && entry.permissions.starts_with('d');
        entries.push(entry);
        if is_directory && depth < deepest {
            let below = children(&path).unwrap_or_default();
            ahead.extend(below.into_iter().rev().map(|path| (path, depth + 1)));
        }
    }
    Ok(entries)
}

/// In the order of their names.
pub(in crate::daemon) fn children(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found: Vec<PathBuf> = fs::read_dir(directory)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    found.sort();
    Ok(found)
}

pub(super) fn make_directory(scope: &Scope, path: &str) -> Result<EntryInfo, Error> {
    let path = scope.resolve(path)?;
    match fs::metadata(&path) {
        Ok(found) if found.is_dir() => {
            let message = format!("directory already exists: '{}'", path.display());
            return Err(Error::new(Code::AlreadyExists, message));
        }
        Ok(_) => return Err(in_the_way(&path)),
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(Error::of_path("making", &path, &error)),
    }
    paths::make_directories(&path, &scope.user).map_err(|e| Error::of_path("making", &path, &e))?;
    // a link that leads nowhere is there, and stays what it is
    if !path.is_dir() {
        return Err(in_the_way(&path));
    }
    describe(&path, &scope.names())
}

fn in_the_way(path: &Path) -> Error {
    let message = format!("path '{}' exists and is not a directory", path.display());
    Error::invalid(message)
}

pub(super) fn rename(scope: &Scope, request: &MoveRequest) -> Result<EntryInfo, Error> {
    let source = scope.resolve(&request.source)?;
    let destination = scope.resolve(&request.destination)?;
    if fs::symlink_metadata(&source).is_err_and(|e| is_missing(&e)) {
        return Err(Error::missing(&source));
    }
    if let Some(parent) = destination.parent() {
        paths::make_directories(parent, &scope.user)
            .map_err(|e| Error::of_path("making the directory of", &destination, &e))?;
    }
    fs::rename(&source, &destination).map_err(|e| {
        let to = destination.display();
        Error::of_path(&format!("moving to '{to}' from"), &source, &e)
    })?;
    describe(&destination, &scope.names())
}

/// What is not there needs no removing.
pub(super) fn remove(scope: &Scope, path: &str) -> Result<(), Error> {
    let path = scope.resolve(path)?;
    let removed = match fs::symlink_metadata(&path) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(&path),
        Ok(_) => fs::remove_file(&path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if !is_missing(&error) => Err(Error::of_path("removing", &path, &error)),
        _ => Ok(()),
    }
}
