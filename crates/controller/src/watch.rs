//! Watches that fill stores.

use std::{pin::pin, sync::Arc};

use futures::StreamExt as _;
use kube::{
    Api, Client, Resource as _,
    runtime::watcher::{self, watcher},
};

use crate::{
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
    let api: Api<V::Object> = match &scope.namespace {
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
    while let Some(event) = events.next().await {
        let held = scope.clock.hold();
        match event {
            Ok(event) => {
                failures = 0;
                store.apply(event);
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
