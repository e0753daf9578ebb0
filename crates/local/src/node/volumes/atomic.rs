//! A directory whose files change all at once, as a kubelet lays it out: files are in a directory of their own to which
//! `..data` leads, and what containers read are links through `..data`. Only this module writes there.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{PermissionsExt as _, fchown, symlink};
use std::path::{Path, PathBuf};

use k8s_openapi::jiff::Timestamp;

use super::ownership;
use super::payload::{File, Payload};

const DATA: &str = "..data";
const NEXT: &str = "..data_tmp";
const DIRECTORY: u32 = 0o755;

/// Makes the directory hold the files; tells whether it did not.
pub(super) fn write(path: &Path, payload: &Payload, group: Option<u32>) -> io::Result<bool> {
    let wanted: Payload = payload
        .iter()
        .map(|(path, file)| {
            let mode = ownership::file_mode(file.mode, group);
            let content = file.content.clone();
            (path.clone(), File { content, mode })
        })
        .collect();
    let current = current(path);
    let is_same = current
        .as_ref()
        .is_some_and(|current| held(&path.join(current)).is_ok_and(|held| held == wanted));
    let name = match current {
        Some(current) if is_same => current,
        _ => {
            fs::create_dir_all(path)?;
            ownership::set_directory(path, DIRECTORY, group)?;
            replace(path, &wanted, group)?
        }
    };
    // also when nothing has changed: whoever wrote last may have been stopped before this
    link(path, &wanted)?;
    tidy(path, &wanted, &name)?;
    Ok(!is_same)
}

/// The name of the directory that holds the files now.
fn current(path: &Path) -> Option<OsString> {
    let target = fs::read_link(path.join(DATA)).ok()?;
    let name = target.file_name()?.to_owned();
    (target == Path::new(&name)).then_some(name)
}

fn replace(path: &Path, wanted: &Payload, group: Option<u32>) -> io::Result<OsString> {
    let now = Timestamp::now();
    let name = format!("..{}", now.strftime("%Y_%m_%d_%H_%M_%S.%9f"));
    let directory = path.join(&name);
    make_directory(&directory, group)?;
    for (relative, file) in wanted {
        let place = directory.join(relative);
        if let Some(parent) = place.parent() {
            make_parents(&directory, parent, group)?;
        }
        write_file(&place, file, group)?;
    }
    let next = path.join(NEXT);
    match fs::remove_file(&next) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => symlink(&name, &next)?,
    }
    fs::rename(&next, path.join(DATA))?;
    Ok(name.into())
}

fn make_directory(path: &Path, group: Option<u32>) -> io::Result<()> {
    fs::create_dir(path)?;
    ownership::set_directory(path, DIRECTORY, group)
}

fn make_parents(top: &Path, path: &Path, group: Option<u32>) -> io::Result<()> {
    let missing: Vec<&Path> = path
        .ancestors()
        .take_while(|ancestor| *ancestor != top && !ancestor.is_dir())
        .collect();
    missing
        .into_iter()
        .rev()
        .try_for_each(|path| make_directory(path, group))
}

fn write_file(place: &Path, file: &File, group: Option<u32>) -> io::Result<()> {
    let mut opened = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(place)?;
    opened.write_all(&file.content)?;
    if group.is_some() {
        fchown(&opened, None, group)?;
    }
    opened.set_permissions(Permissions::from_mode(file.mode))
}

/// The files of a directory.
fn held(top: &Path) -> io::Result<Payload> {
    let mut held = Payload::new();
    let mut rest: Vec<PathBuf> = vec![top.to_owned()];
    while let Some(directory) = rest.pop() {
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            let metadata = path.symlink_metadata()?;
            if metadata.is_dir() {
                rest.push(path);
                continue;
            }
            let relative = path.strip_prefix(top).ok().and_then(Path::to_str);
            let relative = relative.ok_or(io::ErrorKind::InvalidData)?.to_owned();
            let file = File {
                content: fs::read(&path)?,
                mode: metadata.permissions().mode() & 0o777,
            };
            held.insert(relative, file);
        }
    }
    Ok(held)
}

/// The names directly below the volume.
fn tops(wanted: &Payload) -> BTreeSet<&str> {
    let paths = wanted.keys();
    paths.filter_map(|path| path.split('/').next()).collect()
}

fn link(path: &Path, wanted: &Payload) -> io::Result<()> {
    for top in tops(wanted) {
        match symlink(Path::new(DATA).join(top), path.join(top)) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Removes links to what is no more, and directories that were replaced or never finished.
fn tidy(path: &Path, wanted: &Payload, current: &OsString) -> io::Result<()> {
    let tops = tops(wanted);
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let name = entry.file_name();
        let is_kept = name == *current
            || name == DATA
            || name.to_str().is_some_and(|name| tops.contains(name));
        if is_kept {
            continue;
        }
        match entry.file_type()?.is_dir() {
            true => fs::remove_dir_all(entry.path())?,
            false => fs::remove_file(entry.path())?,
        }
    }
    Ok(())
}
