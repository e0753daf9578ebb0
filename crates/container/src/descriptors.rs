//! How many descriptors may be open: for this process as many as there can be, for containers what it was started with.
//!
//! A pod takes several of this process's, and a shell often begins with 1024. Containers are not given more: there are programs
//! that look at each possible descriptor, or cannot use high ones.

use std::sync::OnceLock;

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit, setrlimit};

static OF_CONTAINERS: OnceLock<Rlimit> = OnceLock::new();

/// Raises the limit of this process. Helpers that are started from now on have the one from before, and with them all containers.
pub fn raise() {
    let limit = *OF_CONTAINERS.get_or_init(|| getrlimit(Resource::Nofile));
    let highest = Rlimit {
        current: limit.maximum,
        ..limit
    };
    // without it there is only less room
    let _ = setrlimit(Resource::Nofile, highest);
}

/// Gives a new process what this one had. One that cannot be given it has more, and so have its containers.
pub(crate) fn give_back(process: Pid) {
    if let Some(limit) = OF_CONTAINERS.get() {
        let _ = prlimit(Some(process), Resource::Nofile, *limit);
    }
}
