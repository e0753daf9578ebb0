//! Whether sandboxes are kept apart, found out before anything else is done.

use std::process::Command;

use anyhow::{Context as _, Result, bail};
use container::isolation::{Impossible, check};

use super::{HELPER, OWN, PLAIN_HELPER, PROBE};

const FLAG: &str = "--insecure-no-isolation";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Isolation {
    Namespaces,
    /// Sandboxes are plain processes of this user.
    None,
}

impl Isolation {
    /// The best there is. If that is none at all, it has to be allowed.
    pub(super) fn find(is_none_allowed: bool) -> Result<Self> {
        let found = check(own(PROBE)).context("trying whether sandboxes can be isolated")?;
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
