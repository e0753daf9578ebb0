//! What differs between the versions, kind by kind. Callers have checked that metadata and spec are
//! objects.

use serde_json::{Map, Value, json};

use super::{ConversionError, name_of, riders::MayRide, set_annotation, take_annotation};

pub(super) struct Kind {
    pub(super) group: &'static str,
    name: &'static str,
    /// The annotation that keeps the v1alpha1 object.
    pub(super) state: &'static str,
    /// Whether its content is read. Where it is not, malformed content is nobody's concern.
    pub(super) reads_state: bool,
    pub(super) to_v1beta1: fn(&mut Value) -> Result<(), ConversionError>,
    /// The second argument is the saved v1alpha1 object, or null.
    pub(super) to_v1alpha1: fn(&mut Value, &Value),
    pub(super) may_ride: &'static [MayRide],
}

static KINDS: [Kind; 4] = [
    Kind {
        group: "agents.x-k8s.io",
        name: "Sandbox",
        state: "api.agents.x-k8s.io/v1alpha1-sandbox-state",
        reads_state: true,
        to_v1beta1: sandbox_to_v1beta1,
        to_v1alpha1: sandbox_to_v1alpha1,
        may_ride: &[
            MayRide {
                field: "/spec/operatingMode",
                fits: Value::is_string,
                derived_from: &["/spec/replicas"],
            },
            of_status("/status/nodeName", Value::is_string),
        ],
    },
    Kind {
        group: "extensions.agents.x-k8s.io",
        name: "SandboxClaim",
        state: "api.agents.x-k8s.io/v1alpha1-sandboxclaim-state",
        reads_state: true,
        to_v1beta1: claim_to_v1beta1,
        to_v1alpha1: claim_to_v1alpha1,
        may_ride: &[
            MayRide {
                field: "/spec/warmPoolRef",
                fits: Value::is_object,
                derived_from: &["/spec/sandboxTemplateRef", "/spec/warmpool"],
            },
            MayRide {
                field: "/spec/volumeClaimTemplates",
                fits: Value::is_array,
                derived_from: &[],
            },
        ],
    },
    Kind {
        group: "extensions.agents.x-k8s.io",
        name: "SandboxTemplate",
        state: "api.agents.x-k8s.io/v1alpha1-sandboxtemplate-state",
        reads_state: false,
        to_v1beta1: template_to_v1beta1,
        to_v1alpha1: template_to_v1alpha1,
        may_ride: &[],
    },
    Kind {
        group: "extensions.agents.x-k8s.io",
        name: "SandboxWarmPool",
        state: "api.agents.x-k8s.io/v1alpha1-sandboxwarmpool-state",
        reads_state: false,
        to_v1beta1: |_| Ok(()),
        to_v1alpha1: pool_to_v1alpha1,
        may_ride: &[
            MayRide {
                field: "/spec/replicas",
                fits: Value::is_i64,
                derived_from: &["/spec/replicas"],
            },
            MayRide {
                field: "/spec/claimPolicy",
                fits: Value::is_string,
                derived_from: &[],
            },
            MayRide {
                field: "/spec/updateStrategy/type",
                fits: Value::is_string,
                derived_from: &["/spec/updateStrategy/type"],
            },
            MayRide {
                field: "/spec/updateStrategy/rollingUpdate",
                fits: Value::is_object,
                derived_from: &["/spec/updateStrategy/type"],
            },
            of_status("/status/observedGeneration", Value::is_i64),
            of_status("/status/updatedReplicas", Value::is_i64),
            of_status("/status/updatedAvailableReplicas", Value::is_i64),
            of_status("/status/currentRevision", Value::is_string),
            of_status("/status/updateRevision", Value::is_string),
            of_status("/status/conditions", Value::is_array),
        ],
    },
];

/// Nothing of v1alpha1 tells it.
const fn of_status(field: &'static str, fits: fn(&Value) -> bool) -> MayRide {
    MayRide {
        field,
        fits,
        derived_from: &["/metadata/uid"],
    }
}

pub(super) fn find(group: &str, name: &str) -> Option<&'static Kind> {
    KINDS
        .iter()
        .find(|kind| kind.group == group && kind.name == name)
}

fn sandbox_to_v1beta1(sandbox: &mut Value) -> Result<(), ConversionError> {
    let mode = operating_mode(sandbox);
    remove(sandbox, "spec", "replicas");
    remove(sandbox, "status", "replicas");
    sandbox["spec"]["operatingMode"] = json!(mode);
    Ok(())
}

fn operating_mode(v1alpha1: &Value) -> &'static str {
    match v1alpha1["spec"].get("replicas").and_then(Value::as_i64) {
        Some(0) => "Suspended",
        _ => "Running",
    }
}

fn sandbox_to_v1alpha1(sandbox: &mut Value, saved: &Value) {
    let suspended = sandbox["spec"]["operatingMode"] == "Suspended";
    let by_mode = json!(if suspended { 0 } else { 1 });
    remove(sandbox, "spec", "operatingMode");
    remove(sandbox, "status", "nodeName");

    let saved_running = !saved.is_null() && operating_mode(saved) == "Running";
    let replicas = match saved["spec"].get("replicas") {
        _ if suspended || !saved_running => Some(&by_mode),
        saved => saved,
    };
    restore(sandbox, "spec", "replicas", replicas);
    if sandbox.get("status").is_none() {
        return;
    }
    // The saved count is as old as the last v1alpha1 write: it holds only while the rest of the
    // status is still the one it was written with.
    let mut saved_status = saved["status"].clone();
    let saved_replicas = saved_status
        .as_object_mut()
        .and_then(|status| status.remove("replicas"));
    let replicas = match saved_status == sandbox["status"] {
        true => saved_replicas,
        false => Some(by_mode),
    };
    restore(sandbox, "status", "replicas", replicas.as_ref());
}

/// A pool without members, which stands for "no pool" in v1beta1: it names the template only.
const SHADOW_POOL_PREFIX: &str = "shadow-pool-";

/// Values of `warmpool` that name no pool.
const NO_POOL: &[&str] = &["", "none", "default"];

fn claim_to_v1beta1(claim: &mut Value) -> Result<(), ConversionError> {
    let pool = pool_of(claim);
    remove(claim, "spec", "sandboxTemplateRef");
    remove(claim, "spec", "warmpool");
    claim["spec"]["warmPoolRef"] = json!({ "name": pool });
    Ok(())
}

/// The pool a v1alpha1 claim means: the one it names, else the one its sandbox came from, else the
/// shadow pool of its template.
fn pool_of(v1alpha1: &Value) -> String {
    let spec = &v1alpha1["spec"];
    if let Some(pool) = specific_pool(spec) {
        return pool.to_owned();
    }
    let bound = bound_sandbox(v1alpha1);
    if !bound.is_empty() && Some(bound) != v1alpha1["metadata"]["name"].as_str() {
        return pool_of_member(bound).to_owned();
    }
    format!("{SHADOW_POOL_PREFIX}{}", template_name(spec))
}

fn specific_pool(v1alpha1_spec: &Value) -> Option<&str> {
    v1alpha1_spec["warmpool"]
        .as_str()
        .filter(|pool| !NO_POOL.contains(pool))
}

fn template_name(v1alpha1_spec: &Value) -> &str {
    v1alpha1_spec["sandboxTemplateRef"]["name"]
        .as_str()
        .unwrap_or_default()
}

fn bound_sandbox(claim: &Value) -> &str {
    claim["status"]["sandbox"]["name"]
        .as_str()
        .unwrap_or_default()
}

/// Generated names are the prefix, cut to this length, and five characters more.
const GENERATED_PREFIX: usize = 58;

/// A member is called `<pool>-<five characters>`. The server cuts the prefix of a pool name of 58
/// characters or more, the dash with it; what is left of such a name is its first 58.
fn pool_of_member(sandbox: &str) -> &str {
    if sandbox.len() == GENERATED_PREFIX + 5
        && sandbox.is_ascii()
        && !sandbox[GENERATED_PREFIX - 1..].contains('-')
    {
        return &sandbox[..GENERATED_PREFIX];
    }
    sandbox.rsplit_once('-').map_or(sandbox, |(pool, _)| pool)
}

fn claim_to_v1alpha1(claim: &mut Value, saved: &Value) {
    let pool = claim["spec"]["warmPoolRef"]["name"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    let saved = saved.get("spec");
    let unchanged = saved.is_some_and(|saved| still_means(saved, &pool, bound_sandbox(claim)));
    remove(claim, "spec", "warmPoolRef");
    remove(claim, "spec", "volumeClaimTemplates");

    let named = json!(pool);
    let (template, warmpool) = match (saved, pool.strip_prefix(SHADOW_POOL_PREFIX)) {
        (Some(saved), _) if unchanged => (
            saved.get("sandboxTemplateRef").cloned(),
            saved.get("warmpool").cloned(),
        ),
        (Some(saved), _) => (saved.get("sandboxTemplateRef").cloned(), Some(named)),
        (None, Some(template)) => (Some(json!({"name": template})), Some(json!("default"))),
        // v1alpha1 requires a template and v1beta1 does not know it; the pool's name holds the place
        (None, None) => (Some(json!({"name": named})), Some(named)),
    };
    restore(claim, "spec", "sandboxTemplateRef", template.as_ref());
    restore(claim, "spec", "warmpool", warmpool.as_ref());
}

/// Whether a v1beta1 claim for `pool` is still the saved v1alpha1 claim, or one that was re-pointed.
fn still_means(saved_spec: &Value, pool: &str, bound: &str) -> bool {
    let expected = specific_pool(saved_spec).unwrap_or_else(|| template_name(saved_spec));
    let from_bound = !bound.is_empty() && (pool == bound || pool == pool_of_member(bound));
    pool == expected || pool.strip_prefix(SHADOW_POOL_PREFIX) == Some(expected) || from_bound
}

/// Where the policy stands in the v1alpha1 view of a template.
const POLICY: &str = "api.agents.x-k8s.io/v1beta1-volume-claim-templates-policy";
const POLICIES: &[&str] = &["Disallowed", "Allowed", "Overrides"];

fn template_to_v1beta1(template: &mut Value) -> Result<(), ConversionError> {
    match take_annotation(template, POLICY) {
        None => Ok(()),
        Some(value) if POLICIES.contains(&value.as_str()) => {
            template["spec"]["volumeClaimTemplatesPolicy"] = json!(value);
            Ok(())
        }
        Some(value) => Err(ConversionError::UnknownPolicy {
            object: name_of(template),
            annotation: POLICY,
            value,
        }),
    }
}

fn template_to_v1alpha1(template: &mut Value, _: &Value) {
    take_annotation(template, POLICY);
    let policy = remove(template, "spec", "volumeClaimTemplatesPolicy");
    if let Some(policy) = policy
        .as_ref()
        .and_then(Value::as_str)
        .filter(|text| !text.is_empty())
    {
        set_annotation(template, POLICY, policy.to_owned());
    }
}

/// What the status of a pool tells in v1beta1 only.
const POOL_STATUS: &[&str] = &[
    "observedGeneration",
    "updatedReplicas",
    "updatedAvailableReplicas",
    "currentRevision",
    "updateRevision",
    "conditions",
];

fn pool_to_v1alpha1(pool: &mut Value, _: &Value) {
    for field in POOL_STATUS {
        remove(pool, "status", field);
    }
    remove(pool, "spec", "claimPolicy");
    if let Some(strategy) = section(&mut pool["spec"], "updateStrategy") {
        strategy.remove("rollingUpdate");
        // of the two that v1alpha1 knows, the one that takes nothing out of stock
        if strategy.get("type").is_some_and(|it| it == "RollingUpdate") {
            strategy.insert("type".to_owned(), json!("OnReplenish"));
        }
    }
    if pool["spec"].get("replicas").is_none() {
        pool["spec"]["replicas"] = json!(1);
    }
}

fn section<'a>(object: &'a mut Value, name: &str) -> Option<&'a mut Map<String, Value>> {
    object.get_mut(name)?.as_object_mut()
}

fn remove(object: &mut Value, of: &str, field: &str) -> Option<Value> {
    section(object, of)?.remove(field)
}

fn restore(object: &mut Value, of: &str, field: &str, value: Option<&Value>) {
    match (section(object, of), value) {
        (Some(fields), Some(value)) => _ = fields.insert(field.to_owned(), value.clone()),
        (Some(fields), None) => _ = fields.remove(field),
        (None, _) => {}
    }
}
