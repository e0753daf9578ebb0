//! User namespaces: in one, somebody who is nobody outside is root.

use std::{fs, io};

use rustix::process::{Gid, Uid, WaitOptions};
use rustix::thread::UnshareFlags;

use crate::settings::{IdMap, UserNamespace};
use crate::sys;

const ALL_IDS: u32 = u32::MAX;

/// Whether this process lives in the namespace that the machine started with.
pub(crate) fn is_initial() -> io::Result<bool> {
    let maps = parse(&fs::read_to_string("/proc/self/uid_map")?);
    Ok(maps.iter().any(|m| m.count == ALL_IDS))
}

/// Makes this process root in a new namespace. A process outside writes the mapping; one that has entered has no say in it.
pub(crate) fn enter(namespace: &UserNamespace) -> io::Result<()> {
    let (wait, go) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let entering = std::process::id();
    let Some(writer) = sys::fork()? else {
        drop(go);
        let mut byte = [0];
        let entered = rustix::io::read(&wait, &mut byte) == Ok(1);
        let written = entered && write_mapping(entering, namespace).is_ok();
        sys::exit_child(i32::from(!written));
    };
    sys::unshare(UnshareFlags::NEWUSER)?;
    rustix::io::write(&go, b"x")?;
    let status = rustix::process::waitpid(Some(writer), WaitOptions::empty())?;
    if status.and_then(|(_, s)| s.exit_status()) != Some(0) {
        return Err(io::Error::other("the mapping of users was not accepted"));
    }
    let (uid, gid) = (Uid::from_raw(0), Gid::from_raw(0));
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    rustix::thread::set_thread_res_uid(uid, uid, uid)?;
    Ok(())
}

fn write_mapping(pid: u32, namespace: &UserNamespace) -> io::Result<()> {
    if !rustix::process::geteuid().is_root() {
        // whoever may not set groups outside must not shed them inside either
        fs::write(format!("/proc/{pid}/setgroups"), "deny")?;
    }
    for (kind, maps) in [("uid_map", &namespace.uids), ("gid_map", &namespace.gids)] {
        let own = parse(&fs::read_to_string(format!("/proc/self/{kind}"))?);
        fs::write(format!("/proc/{pid}/{kind}"), render(maps, &own))?;
    }
    Ok(())
}

fn parse(text: &str) -> Vec<IdMap> {
    let line = |line: &str| {
        let mut numbers = line.split_ascii_whitespace().map(str::parse);
        let mut next = || numbers.next()?.ok();
        Some(IdMap {
            inside: next()?,
            outside: next()?,
            count: next()?,
        })
    };
    text.lines().filter_map(line).collect()
}

/// Ids outside are those of the caller, who may be further outside than this process: they are said in this process's own.
fn render(maps: &[IdMap], own: &[IdMap]) -> String {
    let here = |outside: u32| {
        let covers = |m: &&IdMap| outside.checked_sub(m.outside).is_some_and(|d| d < m.count);
        let map = own.iter().find(covers);
        map.map_or(outside, |m| m.inside + (outside - m.outside))
    };
    let line = |m: &IdMap| format!("{} {} {}\n", m.inside, here(m.outside), m.count);
    maps.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::{parse, render};

    #[test]
    fn ids_are_said_in_the_terms_of_whoever_writes_them() {
        let wanted = parse("0 1000 1\n1 100000 65536");
        let everything = parse("         0          0 4294967295");
        assert_eq!(render(&wanted, &everything), "0 1000 1\n1 100000 65536\n");
        let root_is_1000 = parse("0 1000 1");
        assert_eq!(render(&parse("0 1000 1"), &root_is_1000), "0 0 1\n");
    }
}
