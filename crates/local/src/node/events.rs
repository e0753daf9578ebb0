//! Events about pods, for those who ask why. Each occasion is told once.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, PoisonError},
};

use k8s_openapi::{
    api::core::v1::{Event, EventSource, ObjectReference, Pod},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{Api, Client, ResourceExt as _, api::PostParams};
use uuid::Uuid;

use crate::{clock::Clock, kubelet::container::stamp};

/// Of one pod no more is told.
const MOST: usize = 50;

/// Reasons and messages.
type Told = HashSet<(&'static str, String)>;

#[derive(Clone)]
pub(crate) struct Events {
    client: Client,
    clock: Clock,
    node: Arc<str>,
    told: Arc<Mutex<HashMap<String, Told>>>,
}

impl Events {
    pub(crate) fn new(client: Client, clock: Clock, node: &str) -> Self {
        Self {
            client,
            clock,
            node: node.into(),
            told: Arc::default(),
        }
    }

    /// Warns in the background; what cannot be told is lost.
    pub(crate) fn warn(&self, pod: &Pod, reason: &'static str, message: String) {
        let uid = pod.uid().unwrap_or_default();
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let told = told.entry(uid).or_default();
        if told.len() >= MOST || !told.insert((reason, message.clone())) {
            return;
        }
        let event = self.event(pod, reason, message);
        let namespace = pod.namespace().unwrap_or_default();
        let events: Api<Event> = Api::namespaced(self.client.clone(), &namespace);
        tokio::spawn(async move {
            let _ = events.create(&PostParams::default(), &event).await;
        });
    }

    pub(crate) fn forget(&self, uid: &str) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.remove(uid);
    }

    fn event(&self, pod: &Pod, reason: &str, message: String) -> Event {
        let now = stamp(self.clock.now());
        Event {
            metadata: ObjectMeta {
                name: Some(format!(
                    "{:.200}.{}",
                    pod.name_any(),
                    Uuid::new_v4().simple()
                )),
                namespace: pod.namespace(),
                ..ObjectMeta::default()
            },
            involved_object: ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Pod".to_owned()),
                name: Some(pod.name_any()),
                namespace: pod.namespace(),
                uid: pod.uid(),
                ..ObjectReference::default()
            },
            type_: Some("Warning".to_owned()),
            reason: Some(reason.to_owned()),
            message: Some(message),
            count: Some(1),
            first_timestamp: Some(now.clone()),
            last_timestamp: Some(now),
            source: Some(EventSource {
                component: Some("kubelet".to_owned()),
                host: Some(self.node.to_string()),
            }),
            ..Event::default()
        }
    }
}
