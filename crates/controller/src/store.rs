//! What is known of watched objects.
//!
//! A store holds small views, not objects. It learns from a watch and from the answers to our own writes, so that a pass
//! never decides on a state that it has itself changed: an answer counts until the watch has come as far, also through a
//! new list of everything, which may be older than answers that came while it was read. Whoever loses an answer, or starts
//! anew, decides on older views, and the preconditions of its writes keep that from doing harm.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    fmt::Debug,
    sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
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

/// Something that has become known of one object.
pub struct Change<'a, V> {
    pub before: Option<&'a Arc<V>>,
    pub after: Option<&'a Arc<V>>,
    pub by: By,
}

impl<'a, V> Change<'a, V> {
    /// As it was and as it is.
    pub fn views(&self) -> impl Iterator<Item = &'a Arc<V>> {
        self.before.into_iter().chain(self.after)
    }
}

/// How a change has become known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    Watch,
    /// By the answer to a write of this manager.
    Answer(&'static str),
}

type Listener<V> = Box<dyn Fn(&Change<'_, V>) + Send + Sync>;

/// Clones are one store.
pub struct Store<V> {
    state: Arc<RwLock<State<V>>>,
    listed: Arc<watch::Sender<bool>>,
    listener: Arc<OnceLock<Listener<V>>>,
}

impl<V> Clone for Store<V> {
    fn clone(&self) -> Self {
        Self {
            state: Arc::clone(&self.state),
            listed: Arc::clone(&self.listed),
            listener: Arc::clone(&self.listener),
        }
    }
}

impl<V: View> Default for Store<V> {
    fn default() -> Self {
        Self {
            state: Arc::new(RwLock::new(State {
                views: HashMap::new(),
                owned: HashMap::new(),
                listing: None,
                answers: BTreeMap::new(),
                watched: 0,
                texts: Texts::default(),
            })),
            listed: Arc::new(watch::Sender::new(false)),
            listener: Arc::default(),
        }
    }
}

impl<V: View> Store<V> {
    pub fn get(&self, key: &Key) -> Option<Arc<V>> {
        self.state().views.get(key).cloned()
    }

    /// Everything, in no order.
    pub fn all(&self) -> Vec<Arc<V>> {
        self.state().views.values().cloned().collect()
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

    /// The watch has told everything up to this version.
    pub fn watched(&self) -> u64 {
        self.state().watched
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Resolves when everything has been listed once.
    pub async fn listed(&self) {
        // the sender lives in `self`
        let _ = self.listed.subscribe().wait_for(|listed| *listed).await;
    }

    /// Whom to tell of every change, once however it becomes known. There is one; the first counts.
    pub fn tell(&self, listener: impl Fn(&Change<'_, V>) + Send + Sync + 'static) {
        let _ = self.listener.set(Box::new(listener));
    }

    /// The answer of the server to a write of this manager.
    pub fn learn(&self, object: V::Object, by: &'static str) -> Arc<V> {
        self.take_in(object, By::Answer(by))
    }

    /// The answer to a read: what somebody else has written, and perhaps not for whoever has read it.
    pub fn hear(&self, object: V::Object) -> Arc<V> {
        self.take_in(object, By::Watch)
    }

    fn take_in(&self, object: V::Object, by: By) -> Arc<V> {
        let mut state = self.state_mut();
        let view = Arc::new(V::of(object, &mut state.texts));
        // the watch has been beyond it, and may have seen the object change or go
        if view.meta().version > state.watched {
            let step = state.insert(Arc::clone(&view));
            if step.is_some() {
                let Meta { version, key, .. } = view.meta();
                state.answers.insert(*version, key.clone());
            }
            drop(state);
            self.pass_on(step, by);
        }
        view
    }

    /// The view of an object that the watch need not know of.
    pub fn see(&self, object: V::Object) -> Arc<V> {
        Arc::new(V::of(object, &mut self.state_mut().texts))
    }

    /// The object with this uid is gone, says the answer to a write of this manager.
    pub fn forget(&self, key: &Key, uid: &str, by: &'static str) {
        let mut state = self.state_mut();
        let is_it = |view: &Arc<V>| *view.meta().uid == *uid;
        let step = match state.views.get(key).is_some_and(is_it) {
            true => state.remove(key),
            false => None,
        };
        if let Some(listing) = &mut state.listing {
            listing.gone.insert(uid.into());
        }
        drop(state);
        self.pass_on(step.map(|old| (Some(old), None)), By::Answer(by));
    }

    pub(crate) fn apply(&self, event: Event<V::Object>) {
        let mut state = self.state_mut();
        let steps = match event {
            Event::Init => {
                state.begin();
                Vec::new()
            }
            Event::InitApply(object) => {
                let view = Arc::new(V::of(object, &mut state.texts));
                let listing = state.listing.get_or_insert_default();
                listing.views.push(view);
                Vec::new()
            }
            Event::InitDone => {
                let steps = state.replace();
                self.listed.send_replace(true);
                steps
            }
            Event::Apply(object) => {
                let view = Arc::new(V::of(object, &mut state.texts));
                match state.moves_on(view.meta().version) {
                    Some(mut steps) => {
                        steps.extend(state.insert(view));
                        steps
                    }
                    None => Vec::new(),
                }
            }
            Event::Delete(object) => {
                drop(state);
                return self.lose(object.meta().clone().into());
            }
        };
        drop(state);
        self.pass_on(steps, By::Watch);
    }

    /// The watch says that there is nothing any more that could be shown.
    pub(crate) fn lose(&self, Meta { version, key, .. }: Meta) {
        let mut state = self.state_mut();
        let Some(mut steps) = state.moves_on(version) else {
            return;
        };
        steps.extend(state.remove(&key).map(|old| (Some(old), None)));
        drop(state);
        self.pass_on(steps, By::Watch);
    }

    fn pass_on(&self, steps: impl IntoIterator<Item = Step<V>>, by: By) {
        let Some(listener) = self.listener.get() else {
            return;
        };
        for (before, after) in steps {
            listener(&Change {
                before: before.as_ref(),
                after: after.as_ref(),
                by,
            });
        }
    }

    fn state(&self) -> RwLockReadGuard<'_, State<V>> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn state_mut(&self) -> RwLockWriteGuard<'_, State<V>> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A view before and after.
type Step<V> = (Option<Arc<V>>, Option<Arc<V>>);

struct State<V> {
    views: HashMap<Key, Arc<V>>,
    /// By the uid of their controller.
    owned: HashMap<Arc<str>, BTreeSet<Key>>,
    listing: Option<Listing<V>>,
    /// The answers that the watch has not come to yet, by their versions; during a list, those since it began.
    answers: BTreeMap<u64, Key>,
    /// The watch has told everything up to this version.
    watched: u64,
    texts: Texts,
}

/// A list in progress.
struct Listing<V> {
    /// What it has brought so far.
    views: Vec<Arc<V>>,
    /// The uids of what answers said to be gone meanwhile.
    gone: HashSet<Box<str>>,
}

impl<V> Default for Listing<V> {
    fn default() -> Self {
        Self {
            views: Vec::new(),
            gone: HashSet::new(),
        }
    }
}

impl<V: View> State<V> {
    /// What an event makes of answers, or nothing if it is no news: a watch that was sent back repeats what is known, and
    /// objects that are long gone would come to life for a while.
    fn moves_on(&mut self, version: u64) -> Option<Vec<Step<V>>> {
        if version <= self.watched {
            return None;
        }
        self.watched = version;
        let ahead = self.answers.split_off(&version);
        let passed = std::mem::replace(&mut self.answers, ahead);
        self.answers.remove(&version);
        // the watch tells every version in its turn, but for what was gone again before the list that it began with
        let unseen = passed.into_iter().filter_map(|(version, key)| {
            let is_unseen = |view: &Arc<V>| view.meta().version == version;
            self.views.get(&key).is_some_and(is_unseen).then_some(key)
        });
        let unseen: Vec<Key> = unseen.collect();
        let steps = unseen.iter().filter_map(|key| self.remove(key));
        Some(steps.map(|old| (Some(old), None)).collect())
    }

    /// Leaves a view of the same object that is as new or newer as it is.
    fn insert(&mut self, view: Arc<V>) -> Option<Step<V>> {
        let key = view.meta().key.clone();
        let known = |old: &Arc<V>| old.meta().version >= view.meta().version;
        if self.views.get(&key).is_some_and(known) {
            return None;
        }
        let old = self.remove(&key);
        if let Some(owner) = &view.meta().owner {
            let owned = self.owned.entry(Arc::clone(&owner.uid)).or_default();
            owned.insert(key.clone());
        }
        self.views.insert(key, Arc::clone(&view));
        Some((old, Some(view)))
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

    /// Whatever was answered before now is older than the list that begins.
    fn begin(&mut self) {
        self.answers.clear();
        self.listing = Some(Listing::default());
    }

    /// A list is the whole truth of its moment: what it lacks is gone, whatever answers said before. Answers that came since
    /// it began may be newer, and those beyond every version in it count until the watch has come as far.
    fn replace(&mut self) -> Vec<Step<V>> {
        let Listing { views, gone } = self.listing.take().unwrap_or_default();
        let newest = views.iter().map(|view| view.meta().version).max();
        self.watched = self.watched.max(newest.unwrap_or_default());
        self.answers = self.answers.split_off(&(self.watched + 1));
        self.owned.clear();
        let before = std::mem::take(&mut self.views).into_iter();
        let (newer, mut before): (HashMap<_, _>, HashMap<_, _>) =
            before.partition(|(key, view)| self.answers.get(&view.meta().version) == Some(key));
        for view in newer.into_values() {
            self.insert(view);
        }
        let mut steps = Vec::new();
        for view in views {
            if gone.contains(&view.meta().uid) {
                continue;
            }
            let old = before.remove(&view.meta().key);
            let is_known = |old: &Arc<V>| old.meta().version == view.meta().version;
            let is_known = old.as_ref().is_some_and(is_known);
            if self.insert(Arc::clone(&view)).is_some() && !is_known {
                steps.push((old, Some(view)));
            }
        }
        steps.extend(before.into_values().map(|old| (Some(old), None)));
        steps
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

    pub fn share(&mut self, text: impl AsRef<str> + Into<Arc<str>>) -> Arc<str> {
        if let Some(known) = self.known.get(text.as_ref()) {
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
