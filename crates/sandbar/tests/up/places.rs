//! Data directories that sandboxes cannot have their files in.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::instance::PROGRAM;

/// A file system that is taken away with this.
struct Place {
    at: PathBuf,
    _directory: TempDir,
}

impl Place {
    fn mounted(arguments: impl FnOnce(&Path) -> Vec<String>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path().join("place");
        for part in ["place", "lower", "upper", "work"] {
            fs::create_dir(directory.path().join(part)).unwrap();
        }
        let arguments = arguments(directory.path());
        let mut mount = Command::new("mount");
        assert!(mount.args(arguments).arg(&at).status().unwrap().success());
        Self {
            at,
            _directory: directory,
        }
    }

    fn overlay() -> Self {
        Self::mounted(|directory| {
            let part = |name| directory.join(name).display().to_string();
            let (lower, upper, work) = (part("lower"), part("upper"), part("work"));
            let options = format!("lowerdir={lower},upperdir={upper},workdir={work}");
            ["-t", "overlay", "-o", &options, "overlay"]
                .map(str::to_owned)
                .to_vec()
        })
    }

    fn memory(options: &str) -> Self {
        Self::mounted(|_| {
            ["-t", "tmpfs", "-o", options, "tmpfs"]
                .map(str::to_owned)
                .to_vec()
        })
    }

    /// What comes of starting the program there, which ends by itself or is ended once it is ready.
    fn up(&self) -> Output {
        let mut up = Command::new("timeout");
        up.args(["--signal=TERM", "60", PROGRAM, "up", "--pool", "0"]);
        up.args(["--port", "0", "--data-dir"])
            .arg(self.at.join("data"));
        up.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = up.stderr(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        while lines.read_line(&mut said).unwrap() > 0 {
            if said.contains("ready after") {
                let pid = i32::try_from(child.id()).unwrap();
                // it passes the signal on
                kill_process(Pid::from_raw(pid).unwrap(), Signal::TERM).unwrap();
                break;
            }
        }
        lines.read_to_string(&mut said).unwrap();
        let output = child.wait_with_output().unwrap();
        Output {
            stdout: said.into_bytes(),
            ..output
        }
    }

    fn is_empty(&self) -> bool {
        fs::read_dir(&self.at).unwrap().next().is_none()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.at).status();
    }
}

#[test]
fn a_data_directory_that_no_container_can_have_files_in_is_refused_with_the_reason() {
    for (place, why, remedy) in [
        (
            Place::overlay(),
            "containers cannot have their files in",
            "another file system",
        ),
        (
            Place::memory("noexec"),
            "mounted noexec",
            "remount it with the option exec",
        ),
    ] {
        let output = place.up();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        let data = place.at.join("data").display().to_string();
        for part in [why, remedy, &data, "--insecure-no-isolation"] {
            assert!(said.contains(part), "{part:?} is not in: {said}");
        }
        assert!(place.is_empty(), "nothing is begun, and nothing is left");
    }
}

#[test]
fn a_data_directory_without_set_user_id_and_devices_will_do() {
    let place = Place::memory("nosuid,nodev");
    let output = place.up();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("ready after"), "{said}");
    let down = Command::new(PROGRAM)
        .args(["down", "--data-dir"])
        .arg(place.at.join("data"))
        .status();
    assert!(down.unwrap().success());
    assert!(place.is_empty(), "nor has the trial left anything");
}

#[test]
fn a_data_directory_without_space_is_not_taken_for_one_that_no_container_can_have_files_in() {
    // of the few files that there may be the trial itself takes most
    for files in 8..14 {
        let place = Place::memory(&format!("nr_inodes={files}"));
        let output = place.up();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_ne!(output.status.code(), Some(0), "{said}");
        assert!(said.contains("No space left"), "{files}: {said}");
        assert!(!said.contains("containers cannot have"), "{files}: {said}");
    }
}
