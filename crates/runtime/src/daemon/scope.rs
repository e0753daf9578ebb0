//! Whose files a request is about.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::task::spawn_blocking;

use super::error::Error;
use super::users::{Names, User};
use super::{Daemon, paths};

pub(super) struct Scope {
    pub(super) daemon: Arc<Daemon>,
    pub(super) user: User,
}

impl Scope {
    /// Of the user that a request names, or the default one.
    pub(super) fn of(daemon: Arc<Daemon>, named: Option<&str>) -> Result<Self, Error> {
        let user = daemon.user(named)?;
        Ok(Self { daemon, user })
    }

    pub(super) fn resolve(&self, path: &str) -> Result<PathBuf, Error> {
        let workdir = self.daemon.settings.default_workdir();
        paths::resolve(path, &self.user, workdir.as_deref())
    }

    /// What the numbers of owners mean.
    pub(super) fn names(&self) -> Names {
        self.daemon.accounts.names()
    }

    /// Works where a slow disk holds up nobody else, with the rights that the user has here.
    pub(super) async fn elsewhere<T: Send + 'static, E: From<Error> + Send + 'static>(
        self,
        work: impl FnOnce(&Self) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E> {
        let work = move || {
            let _rights = self.daemon.act_for(&self.user)?;
            work(&self)
        };
        let done = spawn_blocking(work).await;
        done.unwrap_or_else(|broken| Err(Error::broken(broken).into()))
    }
}
