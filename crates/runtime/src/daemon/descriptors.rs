//! How many descriptors may be open: for the daemon as many as there can be, for commands what the sandbox was started with.
//!
//! A command takes four of the daemon's, and a container often begins with 1024. Commands are not given more: there are programs
//! that look at each possible descriptor, or cannot use high ones.

use std::sync::OnceLock;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

static OF_COMMANDS: OnceLock<Rlimit> = OnceLock::new();

/// First called before anything is started.
pub(super) fn raise() {
    let limit = *OF_COMMANDS.get_or_init(|| getrlimit(Resource::Nofile));
    let highest = Rlimit {
        current: limit.maximum,
        ..limit
    };
    // without it there is only less room
    let _ = setrlimit(Resource::Nofile, highest);
}

/// What `set` is to be given in a command, or in a program that takes over.
pub(super) fn of_commands() -> Option<Rlimit> {
    OF_COMMANDS.get().copied()
}

/// One system call, as may be made between fork and exec.
pub(super) fn set(limit: Option<Rlimit>) {
    if let Some(limit) = limit {
        let _ = setrlimit(Resource::Nofile, limit);
    }
}
