//! Removing what a container wrote, however it was nested, named or protected.

use std::fs::{self, DirEntry};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Removes a directory and everything in it. Unlike the standard library it neither recurses nor keeps descriptors open: a
/// sandbox may have nested directories deeper than either allows. Nothing may still be writing there.
pub fn remove_tree(top: &Path) -> io::Result<()> {
    let mut moved = Moved {
        top: top.to_owned(),
        next: 0,
    };
    loop {
        let entries = match list(top) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries?,
        };
        if entries.is_empty() {
            return fs::remove_dir(top);
        }
        for entry in entries {
            if is_dir(&entry)? {
                moved.empty(&entry.path())?;
                fs::remove_dir(entry.path())?;
            } else {
                fs::remove_file(entry.path())?;
            }
        }
    }
}

/// Directories that were deeper and are now directly below the top, so that no path grows.
struct Moved {
    top: PathBuf,
    next: u64,
}

impl Moved {
    fn empty(&mut self, dir: &Path) -> io::Result<()> {
        for entry in list(dir)? {
            if !is_dir(&entry)? {
                fs::remove_file(entry.path())?;
            } else if fs::remove_dir(entry.path()).is_err() {
                make_accessible(&entry.path())?;
                fs::rename(entry.path(), self.place())?;
            }
        }
        Ok(())
    }

    fn place(&mut self) -> PathBuf {
        loop {
            self.next += 1;
            let place = self.top.join(format!("moved-{}", self.next));
            if fs::symlink_metadata(&place).is_err() {
                return place;
            }
        }
    }
}

fn list(dir: &Path) -> io::Result<Vec<DirEntry>> {
    if let Err(error) = fs::read_dir(dir)
        && error.kind() == io::ErrorKind::PermissionDenied
    {
        make_accessible(dir)?;
    }
    fs::read_dir(dir)?.collect()
}

fn is_dir(entry: &DirEntry) -> io::Result<bool> {
    Ok(entry.file_type()?.is_dir())
}

/// The owner of a directory may have taken away his own rights to it.
fn make_accessible(dir: &Path) -> io::Result<()> {
    fs::set_permissions(dir, fs::Permissions::from_mode(0o700))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::remove_tree;

    #[test]
    fn directories_deeper_than_paths_and_descriptors_reach_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let outside = dir.path().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("file"), "").unwrap();
        let top = dir.path().join("top");
        fs::create_dir(&top).unwrap();
        // built from the inside out: no path is ever long
        let (new, old) = (dir.path().join("new"), dir.path().join("old"));
        fs::create_dir(&old).unwrap();
        for _ in 0..1200 {
            fs::create_dir(&new).unwrap();
            symlink(&outside, new.join("link")).unwrap();
            fs::rename(&old, new.join("directory")).unwrap();
            fs::rename(&new, &old).unwrap();
        }
        fs::rename(&old, top.join("moved-1")).unwrap();
        fs::create_dir_all(top.join("locked/in/deep")).unwrap();
        fs::set_permissions(top.join("locked"), PermissionsExt::from_mode(0o000)).unwrap();
        remove_tree(&top).unwrap();
        assert!(!top.exists());
        assert!(outside.join("file").exists());
        remove_tree(&top).unwrap();
    }
}
