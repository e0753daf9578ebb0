//! What is known of watched objects.
//!
//! A store holds small views, not objects. It learns from a watch and from the answers to our own writes, so that a pass
//! never decides on a state that it has itself changed: an answer counts until the watch has come as far. Whoever loses
//! an answer, or starts anew, decides on older views, and the preconditions of its writes keep that from doing harm.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    fmt::Debug,
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use kube::{Resource, runtime::watcher::Event};
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use crate::meta::{Key, Meta};

/// The view of an object that is kept.
pub trait View: Send + Sync + Sized + 'static {
    type Object: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + 'static;

    /// Texts that many objects have in common are kept once.
    fn of(object: Self::Object, texts: &mut Texts) -> Self;
    fn meta(&self) -> &Meta;
}

/// Clones are one store.
pub struct Store<V> {
    state: Arc<RwLock<State<V>>>,
    listed: Arc<watch::Sender<bool>>,
}

impl<V> Clone for Store<V> {
    fn clone(&self) -> Self {
        Self {
            state: Arc::clone(&self.state),
            listed: Arc::clone(&self.listed),
        }
    }
}

impl<V: View> Default for Store<V> {
    fn default() -> Self {
        Self {
            state: Arc::new(RwLock::new(State {
                views: HashMap::new(),
                owned: HashMap::new(),
                listing: HashMap::new(),
                watched: 0,
                texts: Texts::default(),
            })),
            listed: Arc::new(watch::Sender::new(false)),
        }
    }
}

impl<V: View> Store<V> {
    pub fn get(&self, key: &Key) -> Option<Arc<V>> {
        self.state().views.get(key).cloned()
    }

    /// All that the object with this uid controls, in the order of their names.
    pub fn owned_by(&self, uid: &str) -> Vec<Arc<V>> {
        let state = self.state();
        let keys = state.owned.get(uid).into_iter().flatten();
        keys.filter_map(|key| state.views.get(key).cloned())
            .collect()
    }

    pub fn len(&self) -> usize {
        self.state().views.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Resolves when everything has been listed once.
    pub async fn listed(&self) {
        // the sender lives in `self`
        let _ = self.listed.subscribe().wait_for(|listed| *listed).await;
    }

    /// An answer of the server to a write or a read of ours.
    pub fn learn(&self, object: V::Object) -> Arc<V> {
        let mut state = self.state_mut();
        let view = Arc::new(V::of(object, &mut state.texts));
        // the watch has been beyond it, and may have seen the object change or go
        if view.meta().version > state.watched {
            state.insert(Arc::clone(&view));
        }
        view
    }

    /// The view of an object that the watch need not know of.
    pub fn see(&self, object: V::Object) -> Arc<V> {
        Arc::new(V::of(object, &mut self.state_mut().texts))
    }

    /// The object with this uid is gone, says an answer.
    pub fn forget(&self, key: &Key, uid: &str) {
        let mut state = self.state_mut();
        if state
            .views
            .get(key)
            .is_some_and(|view| *view.meta().uid == *uid)
        {
            state.remove(key);
        }
    }

    /// Tells which views have come, changed or gone: each as it was and as it is.
    pub(crate) fn apply(&self, event: Event<V::Object>) -> Vec<Arc<V>> {
        let mut state = self.state_mut();
        match event {
            Event::Init => {
                state.listing = HashMap::new();
                Vec::new()
            }
            Event::InitApply(object) => {
                let view = Arc::new(V::of(object, &mut state.texts));
                state.listing.insert(view.meta().key.clone(), view);
                Vec::new()
            }
            Event::InitDone => {
                let touched = state.replace();
                drop(state);
                self.listed.send_replace(true);
                touched
            }
            Event::Apply(object) => {
                let view = Arc::new(V::of(object, &mut state.texts));
                if !state.moves_on(view.meta().version) {
                    return Vec::new();
                }
                let old = state.insert(Arc::clone(&view));
                old.into_iter().chain([view]).collect()
            }
            Event::Delete(object) => {
                let view = V::of(object, &mut state.texts);
                if !state.moves_on(view.meta().version) {
                    return Vec::new();
                }
                let old = state.remove(&view.meta().key);
                old.into_iter().chain([Arc::new(view)]).collect()
            }
        }
    }

    fn state(&self) -> RwLockReadGuard<'_, State<V>> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn state_mut(&self) -> RwLockWriteGuard<'_, State<V>> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

struct State<V> {
    views: HashMap<Key, Arc<V>>,
    /// By the uid of their controller.
    owned: HashMap<Box<str>, BTreeSet<Key>>,
    /// What a list in progress has brought.
    listing: HashMap<Key, Arc<V>>,
    /// The watch has told everything up to this version.
    watched: u64,
    texts: Texts,
}

impl<V: View> State<V> {
    /// Whether an event is news. A watch that was sent back repeats what is known, and objects that are long gone
    /// would come to life for a while.
    fn moves_on(&mut self, version: u64) -> bool {
        let is_news = version > self.watched;
        self.watched = self.watched.max(version);
        is_news
    }

    /// Leaves a newer view of the same object as it is.
    fn insert(&mut self, view: Arc<V>) -> Option<Arc<V>> {
        let key = view.meta().key.clone();
        let newer = |old: &Arc<V>| old.meta().version > view.meta().version;
        if self.views.get(&key).is_some_and(newer) {
            return None;
        }
        let old = self.remove(&key);
        if let Some(owner) = &view.meta().owner {
            let owned = self.owned.entry(owner.uid.clone()).or_default();
            owned.insert(key.clone());
        }
        self.views.insert(key, view);
        old
    }

    fn remove(&mut self, key: &Key) -> Option<Arc<V>> {
        let old = self.views.remove(key)?;
        if let Some(owner) = &old.meta().owner
            && let Some(owned) = self.owned.get_mut(&owner.uid)
        {
            owned.remove(key);
            if owned.is_empty() {
                self.owned.remove(&owner.uid);
            }
        }
        Some(old)
    }

    /// A list is the whole truth: what it lacks is gone, whatever answers said.
    fn replace(&mut self) -> Vec<Arc<V>> {
        let listing = std::mem::take(&mut self.listing);
        let mut touched: Vec<Arc<V>> = Vec::new();
        for (_, old) in self.views.drain() {
            touched.push(old);
        }
        self.owned.clear();
        for (_, view) in listing {
            self.watched = self.watched.max(view.meta().version);
            touched.push(Arc::clone(&view));
            self.insert(view);
        }
        touched
    }
}

/// Texts of which there is one however many objects hold it.
#[derive(Default)]
pub struct Texts {
    known: HashSet<Arc<str>>,
    /// How many there may be before those are dropped that nobody holds any more.
    limit: usize,
}

impl Texts {
    const LEAST: usize = 64;

    pub fn share(&mut self, text: String) -> Arc<str> {
        if let Some(known) = self.known.get(text.as_str()) {
            return Arc::clone(known);
        }
        if self.known.len() >= self.limit {
            self.known.retain(|known| Arc::strong_count(known) > 1);
            self.limit = Self::LEAST.max(2 * self.known.len());
        }
        let text: Arc<str> = text.into();
        self.known.insert(Arc::clone(&text));
        text
    }
}

#[cfg(test)]
mod tests;
