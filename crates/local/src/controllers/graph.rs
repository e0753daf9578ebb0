//! Who owns whom, and what becomes of an object whose owners go. Nothing here acts.

use std::collections::{BTreeMap, HashMap};

use super::seen::{Head, Owner, Seen};
use crate::server::act::Propagation;
use crate::store::Key;

/// The dependents of each owner, by uid, whether or not the owner exists. It only saves looking at every object.
#[derive(Debug, Default)]
pub(super) struct Graph {
    /// With whether the owner's end waits for the dependent's.
    dependents: HashMap<Box<str>, BTreeMap<Key, bool>>,
    /// Owners that wait for their dependents to go.
    waiting: HashMap<Box<str>, Key>,
}

impl Graph {
    /// Takes a write in. Returns which objects to look at because of it.
    pub(super) fn apply(&mut self, seen: &Seen<'_>) -> Vec<Key> {
        let before = seen.before.as_ref().map(|state| &state.head);
        let after = seen.after.as_ref().map(|state| &state.head);
        let mut look_at = Vec::new();
        self.link(seen.key, before, after, &mut look_at);
        match after {
            Some(head) => self.progressed(seen.key, before, head, &mut look_at),
            None => self.gone(before, &mut look_at),
        }
        look_at
    }

    pub(super) fn dependents(&self, uid: &str) -> Vec<Key> {
        let dependents = self.dependents.get(uid);
        dependents
            .into_iter()
            .flat_map(BTreeMap::keys)
            .cloned()
            .collect()
    }

    pub(super) fn is_blocked(&self, uid: &str) -> bool {
        let mut dependents = self
            .dependents
            .get(uid)
            .into_iter()
            .flat_map(BTreeMap::values);
        dependents.any(|blocks| *blocks)
    }

    fn link(
        &mut self,
        key: &Key,
        before: Option<&Head<'_>>,
        after: Option<&Head<'_>>,
        look_at: &mut Vec<Key>,
    ) {
        let was = before.map(Head::owners).unwrap_or_default();
        let is = after.map(Head::owners).unwrap_or_default();
        if was == is {
            return;
        }
        for owner in was {
            let stays = is.iter().any(|other| other.uid == owner.uid);
            if !stays && let Some(others) = self.dependents.get_mut(&*owner.uid) {
                others.remove(key);
                if others.is_empty() {
                    self.dependents.remove(&*owner.uid);
                }
            }
            // it may have waited for this one
            look_at.extend(self.waiting.get(&*owner.uid).cloned());
        }
        for owner in is {
            let others = self
                .dependents
                .entry(owner.uid.as_ref().into())
                .or_default();
            others.insert(key.clone(), owner.blocks());
        }
        if !is.is_empty() {
            look_at.push(key.clone());
        }
    }

    fn progressed(
        &mut self,
        key: &Key,
        before: Option<&Head<'_>>,
        head: &Head<'_>,
        look_at: &mut Vec<Key>,
    ) {
        let orphaned = before.is_some_and(|before| before.is_orphaning());
        if head.is_orphaning() && !orphaned {
            look_at.push(key.clone());
        }
        let waited = before.is_some_and(|before| before.is_waiting());
        if head.is_waiting() && !waited {
            self.waiting.insert(head.uid.as_ref().into(), key.clone());
            look_at.extend(self.dependents(&head.uid));
            look_at.push(key.clone());
        }
        if !head.is_waiting() {
            self.waiting.remove(&*head.uid);
        }
    }

    fn gone(&mut self, last: Option<&Head<'_>>, look_at: &mut Vec<Key>) {
        let Some(last) = last else {
            return;
        };
        self.waiting.remove(&*last.uid);
        look_at.extend(self.dependents(&last.uid));
    }
}

/// What there is where a reference to an owner leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// The owner, and it is there to stay, or ends without caring for its dependents.
    Solid,
    /// Nothing, or another object.
    Absent,
    /// The owner, which waits for its dependents to go.
    Waiting,
    /// Nobody knows: the kind is not served.
    Unknown,
    /// An object of the cluster cannot be owned by one in a namespace.
    Misplaced,
}

/// What is known about the dependents of an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Dependents {
    pub(super) any: bool,
    /// One of them waits for its own dependents.
    pub(super) waiting: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    Keep,
    /// Keep, without the references to these uids.
    Forget(Vec<String>),
    Delete(Propagation),
    /// Its owner waits for it, and it for its owner: it must not keep the owner any more before it is deleted.
    Unblock,
    /// Nobody can say yet.
    Unknown,
}

/// What becomes of an object that is not being deleted; `found` says what its owners are, in their order.
pub(super) fn decide(head: &Head<'_>, found: &[Found], dependents: Dependents) -> Decision {
    if found.contains(&Found::Unknown) {
        return Decision::Unknown;
    }
    if found.is_empty() || found.contains(&Found::Misplaced) {
        return Decision::Keep;
    }
    let waits = found.contains(&Found::Waiting);
    if found.contains(&Found::Solid) {
        let owners = head.owners().iter().zip(found);
        let lost = owners.filter(|(_, found)| matches!(found, Found::Absent | Found::Waiting));
        let lost: Vec<String> = lost.map(|(owner, _)| owner.uid.to_string()).collect();
        return match lost.is_empty() {
            true => Decision::Keep,
            false => Decision::Forget(lost),
        };
    }
    if waits && dependents.any {
        let blocks = head.owners().iter().any(Owner::blocks);
        return match dependents.waiting && blocks {
            true => Decision::Unblock,
            false => Decision::Delete(Propagation::Foreground),
        };
    }
    Decision::Delete(match head {
        head if head.has_finalizer(super::seen::ORPHAN) => Propagation::Orphan,
        head if head.has_finalizer(super::seen::FOREGROUND) => Propagation::Foreground,
        _ => Propagation::Background,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Decision, Dependents, Found, Graph, decide};
    use crate::controllers::seen::{Head, Seen};
    use crate::server::act::Propagation;
    use crate::store::{Change, Event, Key, Options, Precondition, Scope, Store};

    const NONE: Dependents = Dependents {
        any: false,
        waiting: false,
    };

    /// A store that tells a graph of what is written.
    struct World {
        store: Store,
        graph: Graph,
    }

    impl World {
        fn new() -> Self {
            Self {
                store: Store::open(Options::ephemeral()).unwrap(),
                graph: Graph::default(),
            }
        }

        fn key(name: &str) -> Key {
            Key::new("things", "default", name)
        }

        /// Writes an object, or deletes it. Returns the names of those to look at.
        async fn write(&mut self, name: &str, metadata: Option<Value>) -> Vec<String> {
            let after = self.store.revision();
            let deletes = metadata.is_none();
            let object = json!({"metadata": metadata}).to_string().into_bytes();
            let change = match deletes {
                false => Change::put(Self::key(name), Precondition::Any, |_| object),
                true => Change::delete(Self::key(name), Precondition::Any, |_| object),
            };
            self.store.write(change).await.unwrap();
            let mut watch = self.store.watch(Scope::all("things"), after).unwrap();
            let event: Event = watch.next().await.unwrap().unwrap();
            let look_at = self.graph.apply(&Seen::of(&event));
            look_at.iter().map(|key| key.name().to_owned()).collect()
        }
    }

    fn owned_by(uid: &str, blocks: bool) -> Value {
        json!({"uid": "child-uid", "ownerReferences": [{"uid": uid, "blockOwnerDeletion": blocks}]})
    }

    fn waiting(uid: &str) -> Value {
        json!({"uid": uid, "deletionTimestamp": "now", "finalizers": ["foregroundDeletion"]})
    }

    #[tokio::test]
    async fn an_owner_s_end_leads_to_its_dependents() {
        let mut world = World::new();
        assert!(
            world
                .write("owner", Some(json!({"uid": "o"})))
                .await
                .is_empty()
        );
        assert_eq!(
            world.write("child", Some(owned_by("o", false))).await,
            ["child"]
        );
        let mut changed = owned_by("o", false);
        changed["labels"] = json!({"x": "y"});
        assert!(world.write("child", Some(changed)).await.is_empty());
        assert_eq!(world.write("owner", None).await, ["child"]);
        assert!(world.write("child", None).await.is_empty());
        assert!(world.graph.dependents("o").is_empty());
    }

    #[tokio::test]
    async fn an_owner_that_waits_is_looked_at_when_a_dependent_lets_go() {
        let mut world = World::new();
        world.write("owner", Some(json!({"uid": "o"}))).await;
        world.write("child", Some(owned_by("o", true))).await;
        assert!(world.graph.is_blocked("o"));
        assert_eq!(
            world.write("owner", Some(waiting("o"))).await,
            ["child", "owner"]
        );
        assert_eq!(
            world.write("child", Some(owned_by("o", false))).await,
            ["owner", "child"]
        );
        assert!(!world.graph.is_blocked("o"));
        assert_eq!(world.write("child", None).await, ["owner"]);
        assert!(world.write("owner", None).await.is_empty());
        assert!(world.graph.waiting.is_empty() && world.graph.dependents.is_empty());
    }

    fn decided(metadata: &Value, found: &[Found], dependents: Dependents) -> Decision {
        let object = json!({"metadata": metadata}).to_string();
        decide(&Head::read(object.as_bytes()), found, dependents)
    }

    #[test]
    fn an_object_stays_with_its_last_owner() {
        let two = json!({"ownerReferences": [{"uid": "a"}, {"uid": "b"}]});
        let decided = |a, b| decided(&two, &[a, b], NONE);
        let forget = |uid: &str| Decision::Forget(vec![uid.to_owned()]);
        assert_eq!(decided(Found::Solid, Found::Solid), Decision::Keep);
        assert_eq!(decided(Found::Absent, Found::Solid), forget("a"));
        assert_eq!(decided(Found::Solid, Found::Waiting), forget("b"));
        let background = Decision::Delete(Propagation::Background);
        assert_eq!(decided(Found::Absent, Found::Absent), background);
        assert_eq!(decided(Found::Waiting, Found::Absent), background);
        assert_eq!(decided(Found::Unknown, Found::Absent), Decision::Unknown);
        assert_eq!(decided(Found::Misplaced, Found::Absent), Decision::Keep);
    }

    #[test]
    fn an_object_goes_the_way_its_finalizers_say() {
        let with = |finalizer: &str| {
            let metadata = json!({"ownerReferences": [{"uid": "a"}], "finalizers": [finalizer]});
            decided(&metadata, &[Found::Absent], NONE)
        };
        assert_eq!(with("orphan"), Decision::Delete(Propagation::Orphan));
        assert_eq!(
            with("foregroundDeletion"),
            Decision::Delete(Propagation::Foreground)
        );
        assert_eq!(
            with("example.com/x"),
            Decision::Delete(Propagation::Background)
        );
    }

    #[test]
    fn a_chain_goes_from_its_end_and_a_circle_is_opened_first() {
        let owned = |blocks: bool, waiting: bool| {
            let metadata = json!({"ownerReferences": [{"uid": "a", "blockOwnerDeletion": blocks}]});
            let dependents = Dependents { any: true, waiting };
            decided(&metadata, &[Found::Waiting], dependents)
        };
        assert_eq!(
            owned(true, false),
            Decision::Delete(Propagation::Foreground)
        );
        assert_eq!(owned(true, true), Decision::Unblock);
        assert_eq!(
            owned(false, true),
            Decision::Delete(Propagation::Foreground)
        );
    }
}
