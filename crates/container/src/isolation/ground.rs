//! Whether containers can have their files in a certain directory, found out by trying.

use std::ffi::CStr;
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, ErrorKind};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::Access;
use rustix::mount::{MountFlags, UnmountFlags};

use super::Impossible;

const ELSEWHERE: &str = "name a directory on another file system, such as one of a local disk";

/// Makes a container's files below a directory, or where it would be made, and removes them. To be called in a mount namespace
/// that nobody else sees. A directory that nothing can be made in, or not enough because its disk is full, is not judged: whoever uses it will
/// say so, and why.
pub(super) fn attempt(directory: &Path, is_root: bool) -> Result<(), Impossible> {
    let Some(ground) = directory.ancestors().find(|path| path.is_dir()) else {
        return Ok(());
    };
    let Ok(trial) = Trial::make(ground) else {
        return Ok(());
    };
    match trial.run(is_root) {
        Err(error) if !trial.lacks_space(&error) => {
            let reason = format!(
                "containers cannot have their files in {}: {error}",
                directory.display()
            );
            return Err(Impossible::new(reason, ELSEWHERE));
        }
        _ => {}
    }
    if trial.is_runnable() {
        return Ok(());
    }
    let reason = format!(
        "programs cannot be run in {}, and so not in volumes of containers: it is mounted noexec",
        directory.display()
    );
    Err(Impossible::new(
        reason,
        format!("remount it with the option exec, or {ELSEWHERE}"),
    ))
}

fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded
    )
}

/// A directory that goes with this.
struct Trial(PathBuf);

impl Trial {
    fn make(ground: &Path) -> io::Result<Self> {
        let trial = Self(own_place(ground)?);
        for part in ["lower", "upper", "work", "merged"] {
            fs::create_dir(trial.0.join(part))?;
        }
        for file in ["lower/old", "program"] {
            let path = trial.0.join(file);
            fs::write(&path, "")?;
            fs::set_permissions(path, PermissionsExt::from_mode(0o700))?;
        }
        Ok(trial)
    }

    /// What containers do with layers: write, and hide what is below.
    fn run(&self, is_root: bool) -> io::Result<()> {
        let doing = |what: &'static str| {
            move |error: io::Error| io::Error::new(error.kind(), format!("{what}: {error}"))
        };
        // from within: no path has to be put among the options
        std::env::set_current_dir(&self.0)?;
        let options: &CStr = match is_root {
            true => c"lowerdir=lower,upperdir=upper,workdir=work",
            false => c"lowerdir=lower,upperdir=upper,workdir=work,userxattr",
        };
        rustix::mount::mount(
            "overlay",
            "merged",
            "overlay",
            MountFlags::NODEV,
            Some(options),
        )
        .map_err(|error| doing("mounting an overlay")(error.into()))?;
        fs::write("merged/new", "").map_err(doing("writing to an overlay"))?;
        fs::remove_file("merged/old").map_err(doing("removing from an overlay"))
    }

    /// Whether it failed for want of space. An overlay that has none for itself says that it is read-only.
    fn lacks_space(&self, error: &io::Error) -> bool {
        is_full(error) || fs::create_dir(self.0.join("more")).is_err_and(|error| is_full(&error))
    }

    /// Of what is mounted noexec the kernel says that it is.
    fn is_runnable(&self) -> bool {
        rustix::fs::access(self.0.join("program"), Access::EXEC_OK).is_ok()
    }
}

/// A new directory. Who tries beside this one has the same process id, each in a pid namespace of its own; and what somebody who
/// was killed has left behind is in nobody's way.
fn own_place(ground: &Path) -> io::Result<PathBuf> {
    loop {
        let number = RandomState::new().hash_one(());
        let place = ground.join(format!(".isolation-probe-{number:016x}"));
        match fs::create_dir(&place) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            made => return made.map(|()| place),
        }
    }
}

impl Drop for Trial {
    fn drop(&mut self) {
        let _ = std::env::set_current_dir("/");
        let _ = rustix::mount::unmount(self.0.join("merged"), UnmountFlags::DETACH);
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::own_place;

    #[test]
    fn two_who_try_at_once_are_not_in_each_others_way() {
        let ground = tempfile::tempdir().unwrap();
        let places = [(); 2].map(|()| own_place(ground.path()).unwrap());
        assert_ne!(places[0], places[1]);
        assert!(places.iter().all(|place| place.is_dir()));
    }
}
