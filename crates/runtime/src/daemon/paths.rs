//! From the paths of requests to paths of the file system, and directories on the way.

use std::fs::{self, DirBuilder};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, lchown};
use std::path::{Component, Path, PathBuf};

use super::error::Error;
use super::users::User;

/// What the kernel takes. Longer ones would be looked at directory by directory before it refuses them.
const LONGEST: usize = 4095;

pub(super) fn check(path: &str) -> Result<(), Error> {
    if path.contains('\0') {
        return Err(Error::invalid("the path contains a zero byte"));
    }
    if path.len() > LONGEST {
        let message = format!("the path is longer than {LONGEST} bytes");
        return Err(Error::invalid(message));
    }
    Ok(())
}

/// Nothing means the working directory; `~` the home, as does any relative path.
pub(super) fn resolve(path: &str, user: &User, workdir: Option<&Path>) -> Result<PathBuf, Error> {
    check(path)?;
    if path.is_empty() {
        return Ok(workdir.unwrap_or(&user.home).to_owned());
    }
    if let Some(rest) = path.strip_prefix('~') {
        return match rest.strip_prefix('/') {
            _ if rest.is_empty() => Ok(user.home.clone()),
            Some(below) => Ok(clean(&user.home.join(below.trim_start_matches('/')))),
            None => Err(Error::invalid(format!(
                "path '{path}': only '~' and '~/' are known, not the home of another user"
            ))),
        };
    }
    if path.starts_with('/') {
        return Ok(path.into());
    }
    Ok(clean(&user.home.join(path)))
}

/// Without `.` and `..`, which are taken as written: links are not looked at.
pub(super) fn clean(path: &Path) -> PathBuf {
    let mut cleaned = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                cleaned.pop();
            }
            Component::RootDir | Component::Prefix(_) | Component::Normal(_) => {
                cleaned.push(component);
            }
        }
    }
    cleaned
}

/// Makes the directory and those above it that are missing. They belong to the user.
pub(super) fn make_directories(path: &Path, user: &User) -> io::Result<()> {
    let missing: Vec<&Path> = path
        .ancestors()
        .take_while(|above| !above.as_os_str().is_empty() && !exists(above))
        .collect();
    for directory in missing.into_iter().rev() {
        match DirBuilder::new().mode(0o755).create(directory) {
            Ok(()) => give(directory, user)?,
            // somebody else was faster
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn exists(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

fn give(path: &Path, user: &User) -> io::Result<()> {
    // whoever has put a link in its place meanwhile must not be given what it leads to
    lchown(path, Some(user.uid), Some(user.gid))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, symlink};
    use std::path::Path;

    use rustix::process::geteuid;

    use super::{give, resolve};
    use crate::daemon::users::User;

    #[test]
    fn paths_are_resolved_by_their_form() {
        let user = User {
            name: "user".into(),
            uid: 1000,
            gid: 1000,
            groups: vec![1000],
            home: "/home/user".into(),
        };
        for (path, workdir, resolved) in [
            ("", None, "/home/user"),
            ("", Some("/work"), "/work"),
            ("~", Some("/work"), "/home/user"),
            ("~/a/../b", None, "/home/user/b"),
            ("a//b/.", Some("/work"), "/home/user/a/b"),
            ("../../../x", None, "/x"),
            ("/a/../b", None, "/a/../b"),
        ] {
            let found = resolve(path, &user, workdir.map(Path::new)).unwrap();
            assert_eq!(found, Path::new(resolved), "{path}");
        }
        let long = "a/".repeat(2048);
        for refused in ["~other", "~other/x", "a\0b", &long] {
            assert!(resolve(refused, &user, None).is_err(), "{refused}");
        }
    }

    #[test]
    fn what_a_link_leads_to_is_not_given_away() {
        if !geteuid().is_root() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("file"), dir.path().join("link"));
        fs::write(&file, "").unwrap();
        symlink(&file, &link).unwrap();
        let user = User {
            name: "user".into(),
            uid: 1000,
            gid: 1000,
            groups: vec![1000],
            home: "/".into(),
        };
        give(&link, &user).unwrap();
        assert_eq!(fs::metadata(&file).unwrap().uid(), 0);
        assert_eq!(fs::symlink_metadata(&link).unwrap().uid(), 1000);
    }
}
