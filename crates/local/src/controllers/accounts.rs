//! What every namespace has: the account `default`, and the certificate to verify the API with.

use serde_json::{Value, json};

use super::queue::{Outcome, Queue};
use super::seen::{Head, Seen};
use super::{Controller, settled};
use crate::kinds::Part;
use crate::server::Server;
use crate::status::Failure;
use crate::store::Key;

const NAMESPACES: &str = "namespaces";
const ACCOUNTS: &str = "serviceaccounts";
const ACCOUNT: &str = "default";
const CONFIG_MAPS: &str = "configmaps";
const CERTIFICATE: &str = "kube-root-ca.crt";
const DESCRIPTION: (&str, &str) = (
    "kubernetes.io/description",
    "What verifies the certificate of this cluster's API.",
);

pub(super) struct Accounts {
    server: Server,
    root_certificate: String,
}

impl Controller for Accounts {
    fn notice(&self, seen: &Seen<'_>, queue: &Queue) {
        let namespace = seen.key.namespace();
        match (seen.key.resource(), seen.key.name(), &seen.after) {
            (NAMESPACES, _, Some(after)) if !after.head.is_ending() => queue.add(seen.key),
            (ACCOUNTS, ACCOUNT, None) | (CONFIG_MAPS, CERTIFICATE, _) => {
                queue.add(&Key::new(NAMESPACES, "", namespace));
            }
            _ => {}
        }
    }

    async fn work(&self, key: &Key) -> Outcome {
        let Some(entry) = self.server.store().get(key) else {
            return Outcome::Done;
        };
        if Head::read(entry.value.rest()).is_ending() {
            return Outcome::Done;
        }
        let account = self.ensure_account(key.name()).await;
        let certificate = self.ensure_certificate(key.name()).await;
        match (made(account), made(certificate)) {
            (Outcome::Done, Outcome::Done) => Outcome::Done,
            _ => Outcome::Again,
        }
    }
}

impl Accounts {
    pub(super) fn new(server: &Server, root_certificate: String) -> Self {
        Self {
            server: server.clone(),
            root_certificate,
        }
    }

    async fn ensure_account(&self, namespace: &str) -> Result<(), Failure> {
        let key = Key::new(ACCOUNTS, namespace, ACCOUNT);
        if self.server.store().get(&key).is_some() {
            return Ok(());
        }
        let account = json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": ACCOUNT, "namespace": namespace},
        });
        self.server.make(&key, account).await
    }

    async fn ensure_certificate(&self, namespace: &str) -> Result<(), Failure> {
        let key = Key::new(CONFIG_MAPS, namespace, CERTIFICATE);
        let data = json!({"ca.crt": self.root_certificate});
        if self.server.store().get(&key).is_some() {
            let edit = |map: &mut Value| {
                map["data"] = data.clone();
                let described = &mut map["metadata"]["annotations"][DESCRIPTION.0];
                if described.as_str().is_none_or(str::is_empty) {
                    *described = json!(DESCRIPTION.1);
                }
            };
            return self.server.edit(&key, Part::Main, None, edit).await;
        }
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {
                "name": CERTIFICATE, "namespace": namespace,
                "annotations": {DESCRIPTION.0: DESCRIPTION.1},
            },
            "data": data,
        });
        self.server.make(&key, map).await
    }
}

/// Somebody may have made it meanwhile, and a namespace that ends gets nothing new.
fn made(result: Result<(), Failure>) -> Outcome {
    match result {
        Err(failure) if matches!(failure.code(), 403 | 409) => Outcome::Done,
        result => settled(result),
    }
}
