//! What the API server's plug-ins add to a new pod: its account with a token, its priority, and patience with nodes.

use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::{Map, Value, json};

use crate::kinds::Others;
use crate::kinds::access::{flag, items, items_mut, made, text, text_at};
use crate::status::{Failure, Qualified};

const PODS: Qualified = Qualified {
    group: "",
    plural: "pods",
};
pub(crate) const TOKEN_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const TOKEN_VOLUME: &str = "kube-api-access-";
const OF_THE_SYSTEM: &[(&str, i64)] = &[
    ("system-node-critical", 2_000_001_000),
    ("system-cluster-critical", 2_000_000_000),
];
const NODE_TROUBLES: &[&str] = &[
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
];

/// A new pod.
pub(super) fn admit(pod: &mut Value, others: &dyn Others) -> Result<(), Failure> {
    give_account(pod, others)?;
    give_priority(pod, others)?;
    be_patient(made(pod, "spec"));
    Ok(())
}

fn refused(pod: &Value, why: &str) -> Failure {
    Failure::forbidden(PODS, text_at(pod, "/metadata/name"), why)
}

fn give_account(pod: &mut Value, others: &dyn Others) -> Result<(), Failure> {
    let namespace = text_at(pod, "/metadata/namespace");
    let name = match text_at(pod, "/spec/serviceAccountName") {
        "" => "default",
        name => name,
    };
    let Some(account) = others.get("serviceaccounts", namespace, name) else {
        let why = format!(
            "error looking up service account {namespace}/{name}: serviceaccount \"{name}\" not found"
        );
        return Err(refused(pod, &why));
    };
    let name = name.to_owned();
    let volume = format!("{TOKEN_VOLUME}{}", suffix(pod));
    let spec = made(pod, "spec");
    spec.insert("serviceAccountName".to_owned(), name.clone().into());
    spec.insert("serviceAccount".to_owned(), name.into());
    let wish = ["automountServiceAccountToken"]
        .iter()
        .find_map(|field| spec.get(*field).or(account.get(*field)));
    if wish != Some(&Value::Bool(false)) {
        mount_token(spec, volume);
    }
    let secrets = items(&account, "imagePullSecrets");
    let has_own = spec
        .get("imagePullSecrets")
        .is_some_and(|it| it != &json!([]));
    if !has_own && !secrets.is_empty() {
        let names = secrets
            .iter()
            .map(|secret| json!({"name": text(secret, "name")}));
        spec.insert("imagePullSecrets".to_owned(), names.collect());
    }
    Ok(())
}

/// Five letters that differ between pods, but not between two tries of one.
fn suffix(pod: &Value) -> String {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut hasher = DefaultHasher::new();
    for field in ["namespace", "name", "uid", "creationTimestamp"] {
        text(&pod["metadata"], field).hash(&mut hasher);
    }
    let mut rest = hasher.finish();
    let mut next = || {
        let letter = LETTERS[usize::try_from(rest % 27).unwrap_or(0)];
        rest /= 27;
        char::from(letter)
    };
    (0..5).map(|_| next()).collect()
}

fn mount_token(spec: &mut Map<String, Value>, volume: String) {
    let present = spec
        .get("volumes")
        .and_then(Value::as_array)
        .and_then(|volumes| {
            let names = volumes.iter().map(|volume| text(volume, "name"));
            names
                .into_iter()
                .find(|name| name.starts_with(TOKEN_VOLUME))
        })
        .map(str::to_owned);
    let is_new = present.is_none();
    let volume = present.unwrap_or(volume);
    let mut needed = false;
    for list in ["initContainers", "containers"] {
        for container in items_mut(spec, list) {
            let mounts = container.entry("volumeMounts").or_insert(json!([]));
            let Value::Array(mounts) = mounts else {
                continue;
            };
            if !mounts
                .iter()
                .any(|mount| text(mount, "mountPath") == TOKEN_PATH)
            {
                mounts.push(json!({"name": volume, "readOnly": true, "mountPath": TOKEN_PATH}));
                needed = true;
            }
        }
    }
    if is_new && needed {
        let volumes = spec.entry("volumes").or_insert(json!([]));
        if let Value::Array(volumes) = volumes {
            volumes.push(token_volume(&volume));
        }
    }
}

fn token_volume(name: &str) -> Value {
    json!({
        "name": name,
        "projected": {
            "defaultMode": 0o644,
            "sources": [
                {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                {"configMap": {
                    "items": [{"key": "ca.crt", "path": "ca.crt"}],
                    "name": "kube-root-ca.crt",
                }},
                {"downwardAPI": {"items": [{
                    "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"},
                    "path": "namespace",
                }]}},
            ],
        },
    })
}

struct Class {
    name: String,
    value: i64,
    preemption: String,
}

impl Class {
    fn of(class: &Value) -> Self {
        Self {
            name: text_at(class, "/metadata/name").to_owned(),
            value: class.get("value").and_then(Value::as_i64).unwrap_or(0),
            preemption: match text(class, "preemptionPolicy") {
                "" => "PreemptLowerPriority".to_owned(),
                policy => policy.to_owned(),
            },
        }
    }

    fn find(name: &str, others: &dyn Others) -> Option<Self> {
        const CLASSES: &str = "priorityclasses.scheduling.k8s.io";
        if name.is_empty() {
            let classes = others.list(CLASSES, None);
            let general = classes.iter().filter(|class| flag(class, "globalDefault"));
            let lowest = general.map(Self::of).min_by_key(|class| class.value);
            return Some(lowest.unwrap_or_else(|| Self::of(&Value::Null)));
        }
        let built_in = OF_THE_SYSTEM.iter().find(|(known, _)| *known == name);
        match built_in {
            Some((_, value)) => Some(Self::of(
                &json!({"metadata": {"name": name}, "value": value}),
            )),
            None => others.get(CLASSES, "", name).map(|class| Self::of(&class)),
        }
    }
}

fn give_priority(pod: &mut Value, others: &dyn Others) -> Result<(), Failure> {
    let name = text_at(pod, "/spec/priorityClassName");
    let Some(class) = Class::find(name, others) else {
        let why = format!("no PriorityClass with name {name} was found");
        return Err(refused(pod, &why));
    };
    let given = pod.pointer("/spec/priority").and_then(Value::as_i64);
    if let Some(given) = given.filter(|given| *given != class.value) {
        let why = format!(
            "the integer value of priority ({given}) must not be provided in pod spec; priority admission \
             controller computed {} from the given PriorityClass name",
            class.value
        );
        return Err(refused(pod, &why));
    }
    let given = text_at(pod, "/spec/preemptionPolicy");
    if !given.is_empty() && given != class.preemption {
        let why = format!(
            "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission \
             controller computed {} from the given PriorityClass name",
            class.preemption
        );
        return Err(refused(pod, &why));
    }
    let spec = made(pod, "spec");
    if !class.name.is_empty() {
        spec.insert("priorityClassName".to_owned(), class.name.into());
    }
    spec.insert("priority".to_owned(), class.value.into());
    spec.insert("preemptionPolicy".to_owned(), class.preemption.into());
    Ok(())
}

/// A node that is in trouble is given five minutes, unless the pod says otherwise.
pub(super) fn be_patient(spec: &mut Map<String, Value>) {
    for trouble in NODE_TROUBLES {
        let tolerations = spec.get("tolerations").and_then(Value::as_array);
        let said = tolerations.into_iter().flatten().any(|toleration| {
            let (key, effect) = (text(toleration, "key"), text(toleration, "effect"));
            (key.is_empty() || key == *trouble) && (effect.is_empty() || effect == "NoExecute")
        });
        if said {
            continue;
        }
        let tolerations = spec.entry("tolerations").or_insert(json!([]));
        if let Value::Array(tolerations) = tolerations {
            tolerations.push(json!({
                "effect": "NoExecute",
                "key": trouble,
                "operator": "Exists",
                "tolerationSeconds": 300,
            }));
        }
    }
}
