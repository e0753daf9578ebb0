//! The garbage collector: objects go with the last of their owners.

use std::sync::{Mutex, MutexGuard, PoisonError};

use futures::{StreamExt as _, stream};
use serde_json::Value;
use tokio::sync::watch;

use super::graph::{Decision, Dependents, Found, Graph, decide};
use super::queue::{Outcome, Queue};
use super::seen::{FOREGROUND, Head, ORPHAN, Owner, Seen};
use super::{Controller, Heard, settled};
use crate::kinds::Part;
use crate::server::Server;
use crate::server::act::{DeleteOptions, Propagation};
use crate::status::Failure;
use crate::store::Key;

/// Events own nothing and are owned by nothing.
const EVENTS: &str = "events";
const AT_ONCE: usize = 16;

pub(super) struct Garbage {
    server: Server,
    graph: Mutex<Graph>,
    heard: watch::Receiver<Heard>,
}

impl Controller for Garbage {
    fn notice(&self, seen: &Seen<'_>, queue: &Queue) {
        if seen.key.resource() == EVENTS {
            return;
        }
        let look_at = self.graph().apply(seen);
        for key in &look_at {
            queue.add(key);
        }
    }

    async fn work(&self, key: &Key) -> Outcome {
        let Some(entry) = self.server.store().get(key) else {
            return Outcome::Done;
        };
        let head = Head::read(entry.value.rest());
        if head.is_orphaning() {
            return self.orphan(key, &head).await;
        }
        if head.is_waiting() {
            if !self.catch_up().await {
                return Outcome::Again;
            }
            let blocked = self.graph().is_blocked(&head.uid);
            return match blocked {
                true => Outcome::Done,
                false => settled(self.drop_finalizer(key, &head, FOREGROUND).await),
            };
        }
        match head.is_ending() {
            true => Outcome::Done,
            false => self.judge(key, &head).await,
        }
    }
}

impl Garbage {
    pub(super) fn new(server: &Server, heard: watch::Receiver<Heard>) -> Self {
        Self {
            server: server.clone(),
            graph: Mutex::default(),
            heard,
        }
    }

    /// Has the graph be as new as what was read from the store: one that is older may lack the dependents that an owner
    /// had when it was deleted. `false` if nobody tells it of writes any more.
    async fn catch_up(&self) -> bool {
        let now = Some(self.server.store().revision());
        let mut heard = self.heard.clone();
        heard.wait_for(|heard| *heard >= now).await.is_ok()
    }

    fn graph(&self) -> MutexGuard<'_, Graph> {
        self.graph.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn judge(&self, key: &Key, head: &Head<'_>) -> Outcome {
        let owners = head.owners().iter();
        let found: Vec<Found> = owners.map(|owner| self.look_up(key, owner)).collect();
        let dependents = match found.contains(&Found::Waiting) {
            true if !self.catch_up().await => return Outcome::Again,
            true => self.dependents_of(head),
            false => Dependents::default(),
        };
        match decide(head, &found, dependents) {
            Decision::Keep => Outcome::Done,
            Decision::Unknown => Outcome::Blocked,
            Decision::Forget(lost) => {
                let version = Some(head.resource_version.as_ref());
                settled(self.forget(key, version, &lost).await)
            }
            Decision::Delete(propagation) => settled(self.delete(key, head, propagation).await),
            // the write is noticed, and then nothing is in the way of the deletion
            Decision::Unblock => settled(self.unblock(key, head).await),
        }
    }

    fn look_up(&self, dependent: &Key, owner: &Owner<'_>) -> Found {
        let Some(resource) = self.server.resource_named(&owner.api_version, &owner.kind) else {
            return Found::Unknown;
        };
        let namespace = match resource.namespaced {
            true if dependent.namespace().is_empty() => return Found::Misplaced,
            true => dependent.namespace(),
            false => "",
        };
        let key = Key::new(&resource.stored_as, namespace, &owner.name);
        let Some(entry) = self.server.store().get(&key) else {
            return Found::Absent;
        };
        let head = Head::read(entry.value.rest());
        match head.uid == owner.uid {
            // what cannot be read is there all the same
            false if head.uid.is_empty() => Found::Unknown,
            false => Found::Absent,
            true if head.is_waiting() => Found::Waiting,
            true => Found::Solid,
        }
    }

    fn dependents_of(&self, head: &Head<'_>) -> Dependents {
        let keys = self.graph().dependents(&head.uid);
        let waits = |key: &Key| {
            let entry = self.server.store().get(key);
            entry.is_some_and(|entry| Head::read(entry.value.rest()).is_waiting())
        };
        Dependents {
            any: !keys.is_empty(),
            waiting: keys.iter().any(waits),
        }
    }

    async fn delete(
        &self,
        key: &Key,
        head: &Head<'_>,
        propagation: Propagation,
    ) -> Result<(), Failure> {
        let options = DeleteOptions {
            propagation: Some(propagation),
            uid: Some(head.uid.to_string()),
            version: Some(head.resource_version.to_string()),
            ..DeleteOptions::default()
        };
        self.server.end(key, &options).await
    }

    /// Has all dependents forget the owner, and then lets it go.
    async fn orphan(&self, key: &Key, head: &Head<'_>) -> Outcome {
        if !self.catch_up().await {
            return Outcome::Again;
        }
        let dependents = self.graph().dependents(&head.uid);
        let lost = &[head.uid.to_string()];
        let edits = dependents
            .into_iter()
            .map(|key| async move { self.forget(&key, None, lost).await });
        let results: Vec<Outcome> = stream::iter(edits)
            .buffer_unordered(AT_ONCE)
            .map(settled)
            .collect()
            .await;
        if results.contains(&Outcome::Blocked) {
            return Outcome::Blocked;
        }
        match results.iter().all(|outcome| *outcome == Outcome::Done) {
            true => settled(self.drop_finalizer(key, head, ORPHAN).await),
            false => Outcome::Again,
        }
    }

    /// The references to some owners go; those to others stay.
    async fn forget(
        &self,
        key: &Key,
        version: Option<&str>,
        lost: &[String],
    ) -> Result<(), Failure> {
        let edit = |object: &mut Value| keep_owners(object, |owner| !lost.contains(owner));
        self.server.edit(key, Part::Main, version, edit).await
    }

    async fn unblock(&self, key: &Key, head: &Head<'_>) -> Result<(), Failure> {
        let edit = |object: &mut Value| {
            let owners = object["metadata"]["ownerReferences"].as_array_mut();
            for owner in owners.into_iter().flatten() {
                if owner["blockOwnerDeletion"] == true {
                    owner["blockOwnerDeletion"] = false.into();
                }
            }
        };
        let version = Some(head.resource_version.as_ref());
        self.server.edit(key, Part::Main, version, edit).await
    }

    async fn drop_finalizer(
        &self,
        key: &Key,
        head: &Head<'_>,
        finalizer: &str,
    ) -> Result<(), Failure> {
        let edit = |object: &mut Value| remove_finalizer(object, finalizer);
        let version = Some(head.resource_version.as_ref());
        self.server.edit(key, Part::Main, version, edit).await
    }
}

fn keep_owners(object: &mut Value, keep: impl Fn(&String) -> bool) {
    let keeps = |owner: &Value| match &owner["uid"] {
        Value::String(uid) => keep(uid),
        _ => true,
    };
    retain(object, "ownerReferences", keeps);
}

pub(super) fn remove_finalizer(object: &mut Value, finalizer: &str) {
    retain(object, "finalizers", |name| *name != *finalizer);
}

/// Keeps some items of a list in the metadata; without items there is no list.
fn retain(object: &mut Value, list: &'static str, keep: impl Fn(&Value) -> bool) {
    let Some(metadata) = object["metadata"].as_object_mut() else {
        return;
    };
    if let Some(Value::Array(items)) = metadata.get_mut(list) {
        items.retain(keep);
        if items.is_empty() {
            metadata.remove(list);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;
    use std::sync::Arc;
    use std::task::Poll;

    use serde_json::json;
    use tokio::sync::watch;

    use super::Garbage;
    use crate::clock::Clock;
    use crate::controllers::queue::{Outcome, Queue};
    use crate::controllers::seen::{Head, Seen};
    use crate::controllers::{Controller as _, Heard};
    use crate::server::Server;
    use crate::server::act::{DeleteOptions, Propagation};
    use crate::store::{Follow, Key, Options, Store};

    fn key(name: &str) -> Key {
        Key::new("configmaps", "default", name)
    }

    /// A collector that hears of writes only when it is told.
    struct World {
        server: Server,
        follow: Follow,
        garbage: Arc<Garbage>,
        told: watch::Sender<Heard>,
    }

    impl World {
        async fn new() -> Self {
            let store = Store::open(Options::ephemeral()).unwrap();
            let server = Server::open(store, Clock::system()).await;
            let (snapshot, follow) = server.store().follow();
            let (told, heard) = watch::channel(Some(snapshot.revision()));
            let garbage = Arc::new(Garbage::new(&server, heard));
            let namespace = json!({"metadata": {"name": "default"}});
            let default = Key::new("namespaces", "", "default");
            server.make(&default, namespace).await.unwrap();
            Self {
                server,
                follow,
                garbage,
                told,
            }
        }

        fn stored(&self, name: &str, judge: impl Fn(&Head<'_>) -> bool) -> bool {
            let entry = self.server.store().get(&key(name));
            entry.is_some_and(|entry| judge(&Head::read(entry.value.rest())))
        }

        /// A configmap whose owner's end waits for it.
        async fn make(&self, name: &str, owner: Option<&str>) {
            let owners = owner.map(|owner| {
                let entry = self.server.store().get(&key(owner)).unwrap();
                let uid = Head::read(entry.value.rest()).uid.into_owned();
                json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": uid,
                    "blockOwnerDeletion": true}])
            });
            let metadata = json!({"name": name, "namespace": "default", "ownerReferences": owners});
            let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
            self.server.make(&key(name), map).await.unwrap();
        }

        async fn end(&self, name: &str, propagation: Propagation) {
            let options = DeleteOptions {
                propagation: Some(propagation),
                ..DeleteOptions::default()
            };
            self.server.end(&key(name), &options).await.unwrap();
        }

        /// Tells the collector of all writes up to this one.
        async fn tell(&mut self, revision: u64) {
            let queue = Queue::default();
            while *self.told.borrow() < Some(revision) {
                let event = self.follow.next().await.unwrap();
                self.garbage.notice(&Seen::of(&event), &queue);
                self.told.send_replace(Some(event.entry.revision));
            }
        }

        /// Has the collector look at an object before it has heard of all that is stored.
        async fn look_too_early(&mut self, name: &str) -> Outcome {
            let garbage = Arc::clone(&self.garbage);
            let name = key(name);
            let mut work = pin!(garbage.work(&name));
            let first = poll_fn(|context| Poll::Ready(work.as_mut().poll(context))).await;
            assert_eq!(first, Poll::Pending);
            self.tell(self.server.store().revision()).await;
            work.await
        }
    }

    #[tokio::test]
    async fn an_object_is_not_judged_by_an_older_graph_than_its_owner_was_read_from() {
        let mut world = World::new().await;
        world.make("a", None).await;
        world.make("b", Some("a")).await;
        world.tell(world.server.store().revision()).await;
        world.make("c", Some("b")).await;
        world.end("a", Propagation::Foreground).await;
        assert_eq!(world.look_too_early("b").await, Outcome::Done);
        assert!(world.stored("b", |head| head.is_waiting()));
        assert!(world.stored("c", |head| !head.is_ending()));
    }

    #[tokio::test]
    async fn an_owner_waits_for_dependents_that_are_heard_of_after_its_end_was_read() {
        let mut world = World::new().await;
        world.make("a", None).await;
        world.make("b", Some("a")).await;
        world.end("a", Propagation::Foreground).await;
        assert_eq!(world.look_too_early("a").await, Outcome::Done);
        assert!(world.stored("a", |head| head.is_waiting()));
    }

    #[tokio::test]
    async fn a_dependent_that_is_heard_of_late_forgets_its_owner_too() {
        let mut world = World::new().await;
        world.make("a", None).await;
        world.make("b", Some("a")).await;
        world.end("a", Propagation::Orphan).await;
        assert_eq!(world.look_too_early("a").await, Outcome::Done);
        assert!(world.stored("b", |head| head.owners().is_empty()));
        assert!(!world.stored("a", |_| true));
    }
}
