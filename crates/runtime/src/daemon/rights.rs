//! Working on files with the rights of the user that a request names, not with the daemon's own.

use std::io;

use prost::Message;
use rustix::process::{Gid, Uid, getegid, getgroups};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use super::Daemon;
use super::error::Error;
use super::users::User;
use crate::code::Code;

/// What somebody may do with files. Watches leave theirs to a daemon that takes over.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Rights {
    #[prost(uint32, tag = "1")]
    uid: u32,
    #[prost(uint32, tag = "2")]
    gid: u32,
    #[prost(uint32, repeated, tag = "3")]
    groups: Vec<u32>,
}

/// As long as it is there, this thread has them. It must not be held where the thread may do something else in between.
#[must_use]
pub(super) struct Assumed {
    /// Those of the daemon, who is root.
    gid: Gid,
    groups: Vec<Gid>,
}

impl Daemon {
    /// The rights that a request for this user must do with, if they are not the daemon's, which are root's.
    pub(super) fn rights_of(&self, user: &User) -> Option<Rights> {
        let are_less = self.options.strict && !Uid::from_raw(user.uid).is_root();
        are_less.then(|| Rights {
            uid: user.uid,
            gid: user.gid,
            groups: user.groups.clone(),
        })
    }

    /// Takes them on.
    pub(super) fn act_for(&self, user: &User) -> Result<Option<Assumed>, Error> {
        let rights = self.rights_of(user);
        let assumed = rights.as_ref().map(Rights::assume).transpose();
        assumed.map_err(|error| {
            let message = format!("cannot take on the rights of user '{}': {error}", user.name);
            Error::new(Code::PermissionDenied, message)
        })
    }
}

impl Rights {
    /// Linux has users and groups of threads; what makes them those of a process is the C library, which is not asked.
    pub(super) fn assume(&self) -> io::Result<Assumed> {
        let own = getgroups()?;
        let gid = getegid();
        let groups: Vec<Gid> = self.groups.iter().map(|&gid| Gid::from_raw(gid)).collect();
        set_thread_groups(&groups)?;
        // from here on whatever fails is undone
        let assumed = Assumed { gid, groups: own };
        set_thread_res_gid(None, Gid::from_raw(self.gid), None)?;
        set_thread_res_uid(None, Uid::from_raw(self.uid), None)?;
        Ok(assumed)
    }
}

impl Drop for Assumed {
    fn drop(&mut self) {
        let own = set_thread_res_uid(None, Uid::ROOT, None)
            .and_then(|()| set_thread_res_gid(None, self.gid, None))
            .and_then(|()| set_thread_groups(&self.groups));
        // the real ids are still the daemon's, so that the kernel has no reason to refuse; a thread that stayed who it
        // is would do the next request's work as somebody else
        if own.is_err() {
            std::process::abort();
        }
    }
}
