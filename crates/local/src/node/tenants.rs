//! The pods that are here, for those who want to speak with their containers.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, PoisonError, RwLock};

use tokio::sync::watch;

use super::place::PodPlace;

/// A pod of this node. Clones are of the same pod.
#[derive(Clone)]
pub(crate) struct Tenant {
    pub(crate) place: PodPlace,
    /// Absent before its shim runs and after it has ended.
    pub(crate) pod: Option<Arc<container::Pod>>,
    /// The run of each container that lives now.
    pub(crate) running: watch::Receiver<BTreeMap<String, u32>>,
}

/// By uid.
#[derive(Clone, Default)]
pub(crate) struct Tenants(Arc<RwLock<HashMap<String, Tenant>>>);

impl Tenants {
    pub(crate) fn get(&self, uid: &str) -> Option<Tenant> {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        all.get(uid).cloned()
    }

    pub(crate) fn set(&self, uid: &str, tenant: Tenant) {
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        all.insert(uid.to_owned(), tenant);
    }

    pub(crate) fn remove(&self, uid: &str) {
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        all.remove(uid);
    }
}
