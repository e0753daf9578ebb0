//! The garbage collector: objects go with the last of their owners.

use std::sync::{Mutex, MutexGuard, PoisonError};

use futures::{StreamExt as _, stream};
use serde_json::Value;

use super::graph::{Decision, Dependents, Found, Graph, decide};
use super::queue::{Outcome, Queue};
use super::seen::{FOREGROUND, Head, ORPHAN, Owner, Seen};
use super::{Controller, settled};
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
    pub(super) fn new(server: &Server) -> Self {
        Self {
            server: server.clone(),
            graph: Mutex::default(),
        }
    }

    fn graph(&self) -> MutexGuard<'_, Graph> {
        self.graph.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn judge(&self, key: &Key, head: &Head<'_>) -> Outcome {
        let owners = head.owners().iter();
        let found: Vec<Found> = owners.map(|owner| self.look_up(key, owner)).collect();
        let dependents = match found.contains(&Found::Waiting) {
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
