//! Watches that fill stores.

use std::{pin::pin, sync::Arc};

use futures::StreamExt as _;
use kube::{
    Api, Client, Resource as _,
    runtime::watcher::{self, Event, watcher},
};

use crate::{
    attempt::{Attempt, Unread},
    clock::Clock,
    queue::retry_after,
    store::{Store, View},
};

/// So many objects are read at a time: while they are, they take ten times the room of what is kept of them.
const PAGE: u32 = 250;

/// Where a controller looks.
#[derive(Clone)]
pub(crate) struct Scope {
    pub(crate) client: Client,
    /// Everywhere if there is none.
    pub(crate) namespace: Option<Arc<str>>,
    pub(crate) clock: Clock,
}

/// Keeps the store up to date with the objects that have the label. Never returns.
pub(crate) async fn follow<V: View>(scope: Scope, label: Option<&str>, store: Store<V>) {
    let api: Api<Attempt<V::Object>> = match &scope.namespace {
        Some(namespace) => Api::namespaced(scope.client.clone(), namespace),
        None => Api::all(scope.client.clone()),
    };
    let config = watcher::Config::default().page_size(PAGE);
    let config = match label {
        Some(label) => config.labels(label),
        None => config,
    };
    let mut events = pin!(watcher(api, config));
    let mut failures = 0_u32;
    let mut unread = Unread::default();
    while let Some(event) = events.next().await {
        let held = scope.clock.hold();
        match event {
            Ok(event) => {
                failures = 0;
                take_in(event, &store, &mut unread);
            }
            // the next poll begins anew
            Err(error) => {
                if failures.is_power_of_two() {
                    let kind = V::Object::kind(&());
                    tracing::warn!(%kind, %error, failures, "cannot watch");
                }
                let pause = scope.clock.sleep(retry_after(failures));
                failures = failures.saturating_add(1);
                drop(held);
                pause.await;
            }
        }
    }
}

/// What cannot be read is not there for controllers, and no reason to do without the others.
fn take_in<V: View>(event: Event<Attempt<V::Object>>, store: &Store<V>, unread: &mut Unread) {
    let mut tried = |object: Attempt<V::Object>| match object {
        Attempt::Read(object) => {
            unread.forget(object.meta());
            Ok(object)
        }
        Attempt::Failed(object) => {
            unread.tell(&V::Object::kind(&()), &object);
            Err(object)
        }
    };
    match event {
        Event::Init => store.apply(Event::Init),
        Event::InitDone => store.apply(Event::InitDone),
        Event::InitApply(object) => {
            if let Ok(object) = tried(object) {
                store.apply(Event::InitApply(object));
            }
        }
        Event::Apply(object) => match tried(object) {
            Ok(object) => store.apply(Event::Apply(object)),
            Err(object) => store.lose((*object).into()),
        },
        Event::Delete(object) => {
            unread.forget(object.meta());
            store.lose(object.meta().clone().into());
        }
    }
}
