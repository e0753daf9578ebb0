//! Whether this replica does what it is there for.

use std::sync::{Arc, Mutex, PoisonError};

use controller::lease::Role;
use tokio::sync::watch;

/// What is known of the replica; clones are one.
#[derive(Clone)]
pub(super) struct Readiness {
    /// What is being waited for before there is any role.
    waiting: Arc<Mutex<Option<String>>>,
    pub(super) role: Arc<watch::Sender<Role>>,
    /// Whether the caches of a leader are filled.
    pub(super) listed: Arc<watch::Sender<bool>>,
}

impl Readiness {
    pub(super) fn new() -> Self {
        let role = Role::Unknown(String::new());
        Self {
            waiting: Arc::new(Mutex::new(Some("starting".to_owned()))),
            role: Arc::new(watch::Sender::new(role)),
            listed: Arc::new(watch::Sender::new(false)),
        }
    }

    /// The answer is whether that is news.
    pub(super) fn wait_for(&self, what: Option<String>) -> bool {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let is_news = *waiting != what;
        *waiting = what;
        is_news
    }

    /// What is missing, if anything.
    pub(super) fn check(&self) -> Result<(), String> {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(what) = &*waiting {
            return Err(what.clone());
        }
        match &*self.role.borrow() {
            Role::Unknown(why) if why.is_empty() => {
                Err("the lease has not been looked at yet".to_owned())
            }
            Role::Unknown(why) => Err(format!("the lease cannot be held: {why}")),
            Role::Standby { .. } => Ok(()),
            Role::Leading if *self.listed.borrow() => Ok(()),
            Role::Leading => Err("the caches are being filled".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use controller::lease::Role;

    use super::Readiness;

    #[test]
    fn a_replica_is_ready_when_it_stands_by_or_works() {
        let readiness = Readiness::new();
        assert_eq!(readiness.check(), Err("starting".to_owned()));
        assert!(readiness.wait_for(Some("kinds".to_owned())));
        assert!(!readiness.wait_for(Some("kinds".to_owned())));
        assert_eq!(readiness.check(), Err("kinds".to_owned()));
        readiness.wait_for(None);
        assert!(readiness.check().unwrap_err().contains("lease"));
        let standby = Role::Standby { holder: None };
        readiness.role.send_replace(standby);
        assert_eq!(readiness.check(), Ok(()));
        readiness.role.send_replace(Role::Leading);
        assert!(readiness.check().unwrap_err().contains("caches"));
        readiness.listed.send_replace(true);
        assert_eq!(readiness.check(), Ok(()));
    }
}
