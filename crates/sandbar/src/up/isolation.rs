//! Whether sandboxes are kept apart, found out before anything else is done.

use std::{path::Path, process::Command};

use anyhow::{Context as _, Result, bail};
use container::isolation::{Impossible, check};

use super::{HELPER, OWN, PLAIN_HELPER, PROBE, USERS_PROBE};

const FLAG: &str = "--insecure-no-isolation";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Isolation {
    Namespaces,
    /// Sandboxes are plain processes of this user.
    None,
}

impl Isolation {
    /// The best there is for sandboxes with their files in this directory. If that is none at all, it has to be allowed.
    pub(super) fn find(directory: &Path, is_none_allowed: bool) -> Result<Self> {
        let mut probe = own(PROBE);
        probe.arg(std::path::absolute(directory).context("finding the data directory")?);
        let found = check(probe).context("trying whether sandboxes can be isolated")?;
        let Err(Impossible { reason, remedy }) = found else {
            return Ok(Self::Namespaces);
        };
        if !is_none_allowed {
            bail!(
                "sandboxes cannot be isolated here: {reason}\n{remedy}\nto run them without isolation, as processes that may read and \
                 change all that you may, give {FLAG}"
            );
        }
        eprintln!(
            "sandbar: WARNING: sandboxes are NOT ISOLATED, as {FLAG} allows: {reason}\n\
             sandbar: WARNING: what runs in them may read and change all that you may on this machine; {remedy}"
        );
        Ok(Self::None)
    }

    /// Whether the kernel holds sandboxes to limits of memory: only root may say so to it.
    pub(super) fn has_cgroups(self) -> bool {
        self == Self::Namespaces && rustix::process::geteuid().is_root()
    }

    /// Whether a sandbox can be told to have users of its own, who are nobody on the machine; why not, if root's cannot. Those of
    /// an ordinary user have them anyway, and those that are not isolated never.
    pub(super) fn can_have_users(self, data: &Path) -> Result<bool> {
        if !self.has_cgroups() {
            return Ok(false);
        }
        // the base image is made of the machine's
        let tried = container::users::check(own(USERS_PROBE), &[data, Path::new("/usr")]);
        let tried = tried.context("trying whether sandboxes can have users of their own")?;
        if let Err(reason) = &tried {
            eprintln!("sandbar: sandboxes of the warm pool have this machine's users: {reason}");
        }
        Ok(tried.is_ok())
    }

    /// The process that forks sandboxes.
    pub(super) fn helper(self) -> Command {
        own(match self {
            Self::Namespaces => HELPER,
            Self::None => PLAIN_HELPER,
        })
    }
}

fn own(what: &str) -> Command {
    let mut command = Command::new(OWN);
    command.arg(what);
    command
}
