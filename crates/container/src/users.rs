//! Whether pods of root can have users of their own on this machine, found out by trying.
//!
//! Trying changes the process that tries, as with [`crate::isolation`]: [`run`] is a process of its own, and [`check`] asks it.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use rustix::fs::{Mode, OFlags};
use rustix::thread::UnshareFlags;

use crate::build::{Users, make_apart};
use crate::settings::{IdMap, UserNamespace};
use crate::sys;

/// The first Linux whose overlays may lie on mounts that map users.
const SINCE: (u32, u32) = (5, 19);
/// Some that are nobody's.
const IDS: IdMap = IdMap {
    inside: 0,
    outside: 0x7000_0000,
    count: 1 << 16,
};

/// Asks a program that calls [`run`] whether files in these directories can be shown to pods with users of their own, and if not
/// why. Blocks for the few milliseconds that it takes.
pub fn check(mut program: Command, directories: &[&Path]) -> io::Result<Result<(), String>> {
    let program = program.args(directories).env_clear();
    let output = program.stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(Ok(()));
    }
    let reason = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(Err(match reason.is_empty() {
        true => format!("whoever tried ended by {}", output.status),
        false => reason,
    }))
}

/// Tries, and tells what came of it. To be called first thing in `main`, before there is any thread.
pub fn run(directories: impl IntoIterator<Item = PathBuf>) -> ExitCode {
    match attempt(directories) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            // who does not hear why knows by the end of this process that it is
            let _ = io::stdout().write_all(reason.as_bytes());
            ExitCode::FAILURE
        }
    }
}

fn attempt(directories: impl IntoIterator<Item = PathBuf>) -> Result<(), String> {
    let system = rustix::system::uname();
    let release = system.release().to_string_lossy();
    if version(&release).is_none_or(|version| version < SINCE) {
        let (major, minor) = SINCE;
        return Err(format!(
            "it takes Linux {major}.{minor}, and this is {release}"
        ));
    }
    let ids = UserNamespace {
        uids: vec![IDS],
        gids: vec![IDS],
    };
    let namespace = make_apart(&ids, || {
        let own = UnshareFlags::NEWNET | UnshareFlags::NEWIPC | UnshareFlags::NEWUTS;
        sys::unshare(own).map_err(|error| format!("making namespaces: {error}"))
    })?;
    let users = Users {
        namespace: &namespace,
        ids: &ids,
    };
    for directory in directories {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::open(&directory, flags, Mode::empty());
        let opened = opened.map_err(|error| format!("{}: {error}", directory.display()))?;
        let mapped = users.map(&opened, &directory);
        mapped.map_err(|error| error.to_string())?;
    }
    Ok(())
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::version;

    #[test]
    fn a_kernel_is_known_by_its_first_two_numbers() {
        for (release, expected) in [
            ("6.18.44-fc-v509", Some((6, 18))),
            ("5.4.0-100-generic", Some((5, 4))),
            ("5.19", Some((5, 19))),
            ("nonsense", None),
        ] {
            assert_eq!(version(release), expected, "{release}");
        }
    }
}
