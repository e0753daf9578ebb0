//! Which process is which: a process id alone does not say, because ids are used again.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::{fs, io};

use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde::{Deserialize, Serialize};

use crate::sys;

/// A process that cannot be taken for another one, not even after a reboot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Identity {
    pub(crate) pid: i32,
    /// Clock ticks from boot to the start of the process.
    pub(crate) started: u64,
    pub(crate) boot: String,
}

impl Identity {
    pub(crate) fn of(pid: i32) -> io::Result<Self> {
        Ok(Self {
            pid,
            started: read_stat(pid)?.started,
            boot: boot()?,
        })
    }

    /// Whether it still runs. One that has ended and waits to be reaped does not.
    pub(crate) fn is_alive(&self) -> bool {
        let same_boot = boot().is_ok_and(|boot| boot == self.boot);
        same_boot && read_stat(self.pid).is_ok_and(|s| s.started == self.started && !s.ended)
    }
}

/// A process that is held by more than its id: what is sent to it reaches no other, even if its id is used again.
pub(crate) struct Held {
    pub(crate) pid: i32,
    descriptor: OwnedFd,
}

impl Held {
    /// A child that has just been forked. If it cannot be held it is not left to itself.
    pub(crate) fn child(pid: Pid) -> io::Result<Self> {
        let pid = pid.as_raw_pid();
        Self::open(pid).inspect_err(|_| drop(sys::kill(pid, libc::SIGKILL)))
    }

    /// Only of one that cannot have been reaped yet, such as a child of this process.
    pub(crate) fn open(pid: i32) -> io::Result<Self> {
        let id = Pid::from_raw(pid).ok_or(io::ErrorKind::InvalidInput)?;
        let descriptor = pidfd_open(id, PidfdFlags::empty())?;
        Ok(Self { pid, descriptor })
    }

    /// One that somebody else names and shows. He is not taken at his word: who is in a pid namespace can name every number, but
    /// show only who is in there with him. Once it has been reaped, only who did that knows what number it had.
    pub(crate) fn shown(pid: i32, descriptor: OwnedFd, is_reaped: bool) -> io::Result<Self> {
        let is_it = shown_pid(&descriptor)?.map_or(is_reaped, |shown| shown == pid);
        is_it
            .then_some(Self { pid, descriptor })
            .ok_or_else(|| io::Error::other("it is not the process that was shown"))
    }

    /// Whether nothing is left of it, so that its number may have become that of another one.
    pub(crate) fn is_reaped(&self) -> bool {
        shown_pid(&self.descriptor).is_ok_and(|shown| shown.is_none())
    }

    pub(crate) fn show(self) -> OwnedFd {
        self.descriptor
    }

    pub(crate) fn signal(&self, signal: i32) -> io::Result<()> {
        sys::signal(self.descriptor.as_fd(), signal)
    }
}

/// None if it has been reaped, or cannot be seen from here.
fn shown_pid(descriptor: &OwnedFd) -> io::Result<Option<i32>> {
    let path = format!("/proc/self/fdinfo/{}", descriptor.as_raw_fd());
    let info = fs::read_to_string(path)?;
    let pid = info.lines().find_map(|line| line.strip_prefix("Pid:"));
    let pid: Option<i32> = pid.and_then(|pid| pid.trim().parse().ok());
    pid.map(|pid| (pid > 0).then_some(pid))
        .ok_or_else(|| io::Error::other("what was shown is not a process"))
}

/// The process that a process is a child of, unless it has ended.
pub(crate) fn parent(pid: i32) -> Option<i32> {
    let stat = read_stat(pid).ok()?;
    (!stat.ended).then_some(stat.parent)
}

struct Stat {
    parent: i32,
    started: u64,
    ended: bool,
}

fn read_stat(pid: i32) -> io::Result<Stat> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    parse_stat(&text).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
}

/// The name of the program is in parentheses and may itself contain some: fields are counted from the last one.
fn parse_stat(text: &str) -> Option<Stat> {
    let (_, rest) = text.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    Some(Stat {
        parent: fields.get(1)?.parse().ok()?,
        started: fields.get(19)?.parse().ok()?,
        ended: matches!(*fields.first()?, "Z" | "X"),
    })
}

fn boot() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?
        .trim()
        .to_owned())
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::process::{Child, Command};

    use super::{Held, Identity, parse_stat};

    #[test]
    fn a_program_named_like_the_line_itself_is_read_right() {
        let line = "7 (a) Z 1 (b)) S 1 7 7 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 12345 99 1";
        let stat = parse_stat(line).unwrap();
        assert_eq!((stat.started, stat.parent), (12345, 1));
        assert!(!stat.ended);
    }

    #[test]
    fn a_process_is_itself_and_no_other() {
        let me = Identity::of(i32::try_from(std::process::id()).unwrap()).unwrap();
        assert!(me.is_alive());
        let earlier = Identity {
            started: me.started - 1,
            ..me.clone()
        };
        assert!(!earlier.is_alive());
        let before_reboot = Identity {
            boot: "another".to_owned(),
            ..me
        };
        assert!(!before_reboot.is_alive());
    }

    fn sleeping() -> (Child, i32) {
        let child = Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        (child, pid)
    }

    #[test]
    fn nobody_is_taken_at_his_word_for_a_process_that_he_does_not_show() {
        let (mut one, pid) = sleeping();
        let (mut other, number) = sleeping();
        let show = || Held::open(pid).unwrap().show();
        assert!(Held::shown(number, show(), false).is_err());
        assert!(Held::shown(number, show(), true).is_err());
        assert!(Held::shown(pid, File::open("/dev/null").unwrap().into(), true).is_err());
        let held = Held::shown(pid, show(), false).unwrap();
        assert!(!held.is_reaped());
        held.signal(libc::SIGKILL).unwrap();
        one.wait().unwrap();
        assert!(held.is_reaped());
        assert!(held.signal(libc::SIGKILL).is_err());
        let gone = || held.descriptor.try_clone().unwrap();
        assert!(Held::shown(pid, gone(), false).is_err());
        assert!(Held::shown(pid, gone(), true).is_ok());
        assert!(other.try_wait().unwrap().is_none());
        other.kill().unwrap();
        other.wait().unwrap();
    }
}
