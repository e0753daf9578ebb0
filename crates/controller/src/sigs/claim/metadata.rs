//! Labels and annotations that claims ask for, and those that say whose a sandbox is.

use std::collections::BTreeMap;

use api::{
    sigs::shared::{Blueprint, PodMetadata},
    structural::names::{label_value_problems, qualified_name_problems},
};
use engine::member::{Policy, Revision};
use serde_json::{Map, Value, json};

use super::{
    ledger::{Given, Memory},
    status::Problem,
    view::Claim,
};
use crate::{
    conditions::{self, READY},
    sigs::{
        blueprint, names, pool::member::revision, sandbox::view::Sandbox, template::view::Template,
    },
    trace,
};

/// Domains whose annotations control something.
const GUARDED: [&str; 4] = ["kubernetes.io", "k8s.io", names::GROUP, "sandbar.dev"];
/// Where the built-in network policy lets traffic in from.
const ROUTER: (&str, &str) = ("app", "sandbox-router");

/// Whether the metadata that a claim asks for is its to give.
pub(super) fn check(claim: &Claim, domains: &[String]) -> Result<(), Problem> {
    let Some(metadata) = &claim.spec.request.additional_pod_metadata else {
        return Ok(());
    };
    let labels = metadata.labels.iter().flatten();
    let labels = labels.map(|(key, value)| check_label(key, value, domains));
    let annotations = metadata.annotations.iter().flatten();
    let annotations = annotations.map(|(key, _)| check_annotation(key));
    let all: Result<(), String> = labels.chain(annotations).collect();
    all.map_err(|why| Problem::lasting("InvalidMetadata", why))
}

fn check_label(key: &str, value: &str, domains: &[String]) -> Result<(), String> {
    let at = format!("additionalPodMetadata.labels[{key:?}]");
    if key.eq_ignore_ascii_case(ROUTER.0) && value.eq_ignore_ascii_case(ROUTER.1) {
        return Err(format!("{at}: {value:?} is kept for the router"));
    }
    no_problems(&at, qualified_name_problems(key))?;
    let domain = key.split_once('/').map(|(domain, _)| domain);
    if !domain.is_some_and(|domain| domains.iter().any(|allowed| is_within(domain, allowed))) {
        let allowed = domains.join(", ");
        return Err(format!(
            "{at}: the key must be in one of these domains: {allowed}"
        ));
    }
    no_problems(&at, label_value_problems(value))
}

fn check_annotation(key: &str) -> Result<(), String> {
    let at = format!("additionalPodMetadata.annotations[{key:?}]");
    no_problems(&at, qualified_name_problems(key))?;
    let domain = key.split_once('/').map(|(domain, _)| domain);
    let is_guarded = |domain: &str| GUARDED.iter().any(|guarded| is_within(domain, guarded));
    match domain.is_some_and(is_guarded) && key != names::SAFE_TO_EVICT {
        true => Err(format!("{at}: the domain is reserved")),
        false => Ok(()),
    }
}

fn no_problems(at: &str, problems: Vec<String>) -> Result<(), String> {
    match problems.is_empty() {
        true => Ok(()),
        false => Err(format!("{at}: {}", problems.join("; "))),
    }
}

fn is_within(domain: &str, parent: &str) -> bool {
    let rest = domain.strip_suffix(parent);
    rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

/// Whether the claim asks for any metadata.
pub(super) fn is_asked_for(claim: &Claim) -> bool {
    let wanted = claim.spec.request.additional_pod_metadata.as_ref();
    wanted.is_some_and(|wanted| {
        let maps = [&wanted.labels, &wanted.annotations];
        maps.into_iter().flatten().any(|map| !map.is_empty())
    })
}

/// Which revision the claim wants, where it says so.
pub(super) fn wish(claim: &Claim) -> Result<Option<Policy>, Problem> {
    let Some(text) = claim.meta.annotations.get(names::CLAIM_POLICY) else {
        return Ok(None);
    };
    let policy = match text {
        "PreferNewest" => Policy::PreferNewest,
        "RequireNewest" => Policy::RequireNewest,
        "DrainOld" => Policy::DrainOld,
        _ => match text.strip_prefix("Pinned:") {
            Some(revision) if !revision.is_empty() => Policy::Pinned(Revision::from(revision)),
            _ => {
                let message = format!(
                    "annotation {}: {text:?} is none of PreferNewest, RequireNewest, DrainOld, Pinned:<revision>",
                    names::CLAIM_POLICY
                );
                return Err(Problem::lasting("InvalidClaimPolicy", message));
            }
        },
    };
    Ok(Some(policy))
}

/// The metadata of the pod template of a claimed sandbox.
pub(super) fn pod(claim: &Claim, template: &Template) -> Result<PodMetadata, Problem> {
    let base = template.blueprint.pod_template.metadata.as_ref();
    merge(claim, base, Some(&template.name_hash))
}

/// The same where the template cannot be read: what there is without what the pool put in.
fn pod_without_template(claim: &Claim, old: &Blueprint) -> Result<PodMetadata, Problem> {
    let mut base = old.pod_template.metadata.clone().unwrap_or_default();
    if let Some(labels) = &mut base.labels {
        labels.retain(|key, _| !POOL_LABELS.contains(&key.as_str()) && key != names::CREATED_BY);
    }
    if let Some(annotations) = &mut base.annotations {
        annotations.retain(|key, value| key != names::SAFE_TO_EVICT || value != "true");
    }
    merge(claim, Some(&base), None)
}

fn merge(
    claim: &Claim,
    base: Option<&PodMetadata>,
    template_hash: Option<&str>,
) -> Result<PodMetadata, Problem> {
    let wanted = claim.spec.request.additional_pod_metadata.clone();
    let wanted = wanted.unwrap_or_default();
    let (labels, annotations) = (
        wanted.labels.unwrap_or_default(),
        wanted.annotations.unwrap_or_default(),
    );
    let base_labels = base.and_then(|base| base.labels.as_ref());
    let base_annotations = base.and_then(|base| base.annotations.as_ref());
    no_override("label", base_labels, &labels)?;
    no_override("annotation", base_annotations, &annotations)?;
    let own = [
        (names::CLAIM_UID, Some(&*claim.meta.uid)),
        (names::TEMPLATE_REF_HASH, template_hash),
        (names::CREATED_BY, claim.meta.labels.get(names::CREATED_BY)),
    ];
    let own = own
        .into_iter()
        .filter_map(|(key, value)| Some((key.to_owned(), value?.to_owned())));
    Ok(blueprint::pod_metadata(
        base,
        own.chain(labels),
        annotations,
    ))
}

fn no_override(
    what: &str,
    base: Option<&BTreeMap<String, String>>,
    wanted: &BTreeMap<String, String>,
) -> Result<(), Problem> {
    let Some(base) = base else {
        return Ok(());
    };
    for (key, value) in wanted {
        if base.get(key).is_some_and(|own| own != value) {
            return Err(Problem::error(format!(
                "additionalPodMetadata: {what} {key:?} is set by the template to another value"
            )));
        }
    }
    Ok(())
}

/// The labels that members have and claimed sandboxes have not.
const POOL_LABELS: [&str; 3] = [
    names::WARM_POOL,
    names::TEMPLATE_HASH,
    names::POD_TEMPLATE_HASH,
];

/// The one write that makes a member the claim's.
pub(super) fn transfer(
    claim: &Claim,
    sandbox: &Sandbox,
    template: Option<&Template>,
    trace: Option<&str>,
) -> Result<Value, Problem> {
    let mut labels: Map<String, Value> = POOL_LABELS
        .into_iter()
        .map(|key| (key.to_owned(), Value::Null))
        .collect();
    labels.insert(names::LAUNCH_TYPE.to_owned(), json!(names::WARM));
    labels.insert(names::CLAIM_UID.to_owned(), json!(&*claim.meta.uid));
    let client = claim.meta.labels.get(names::CREATED_BY);
    labels.insert(names::CREATED_BY.to_owned(), json!(client));
    if let Some(template) = template {
        let hash = json!(&*template.name_hash);
        labels.insert(names::TEMPLATE_REF_HASH.to_owned(), hash);
    }
    // the labels that say so go, and the history is kept for as long as somebody runs it
    let revision = json!(revision(sandbox).as_str());
    let mut annotations = Map::from_iter([(names::REVISION.to_owned(), revision)]);
    if sandbox.meta.annotations.get(names::POD_NAME).is_none() {
        annotations.insert(names::POD_NAME.to_owned(), json!(sandbox.name()));
    }
    for key in [names::FENCE, names::FOR_ROLLOUT] {
        if sandbox.meta.annotations.get(key).is_some() {
            annotations.insert(key.to_owned(), Value::Null);
        }
    }
    if let Some(trace) = trace {
        annotations.insert(names::TRACE_CONTEXT.to_owned(), json!(trace));
    }
    let mut patch = json!({"metadata": {
        "labels": labels,
        "annotations": annotations,
        "ownerReferences": [owner(claim)],
    }});
    if let Some(pod) = pod_patch(claim, sandbox, template)? {
        patch["spec"]["podTemplate"]["metadata"] = pod;
    }
    Ok(patch)
}

pub(super) fn owner(claim: &Claim) -> Value {
    let version = names::EXTENSIONS_API_VERSION;
    claim.meta.as_owner(version, super::KIND)
}

/// What brings a sandbox of the claim in step with the claim and its template, if anything must.
pub(super) fn in_step(
    claim: &Claim,
    sandbox: &Sandbox,
    template: Option<&Template>,
) -> Result<Option<Value>, Problem> {
    let mut patch = json!({});
    let mut labels = Map::new();
    let mut want = |key: &str, value: Option<&str>| {
        if sandbox.meta.labels.get(key) != value {
            labels.insert(key.to_owned(), json!(value));
        }
    };
    if sandbox.meta.labels.get(names::LAUNCH_TYPE).is_none() {
        let is_cold = sandbox.name() == &*claim.meta.key.name && reference(claim).is_none();
        let launch = if is_cold { names::COLD } else { names::WARM };
        want(names::LAUNCH_TYPE, Some(launch));
    }
    if let Some(template) = template {
        want(names::TEMPLATE_REF_HASH, Some(&template.name_hash));
        want(names::CREATED_BY, claim.meta.labels.get(names::CREATED_BY));
        if let Some(pod) = pod_patch(claim, sandbox, Some(template))? {
            patch["spec"]["podTemplate"]["metadata"] = pod;
        }
    }
    if !labels.is_empty() {
        patch["metadata"]["labels"] = labels.into();
    }
    Ok((patch != json!({})).then_some(patch))
}

/// The merge patch from the pod metadata that a sandbox has to the one that it shall have.
fn pod_patch(
    claim: &Claim,
    sandbox: &Sandbox,
    template: Option<&Template>,
) -> Result<Option<Value>, Problem> {
    // the API server has checked it against the schema
    let Ok(old) = sandbox.blueprint() else {
        return Ok(None);
    };
    let new = match template {
        Some(template) => pod(claim, template)?,
        None => pod_without_template(claim, &old)?,
    };
    let old = old.pod_template.metadata.unwrap_or_default();
    let mut patch = Map::new();
    for (field, old, new) in [
        ("labels", old.labels, new.labels),
        ("annotations", old.annotations, new.annotations),
    ] {
        let difference = difference(&old.unwrap_or_default(), &new.unwrap_or_default());
        if !difference.is_empty() {
            patch.insert(field.to_owned(), difference.into());
        }
    }
    Ok((!patch.is_empty()).then(|| patch.into()))
}

fn difference(
    old: &BTreeMap<String, String>,
    new: &BTreeMap<String, String>,
) -> Map<String, Value> {
    let gone = old.keys().filter(|key| !new.contains_key(*key));
    let gone = gone.map(|key| (key.clone(), Value::Null));
    let set = new
        .iter()
        .filter(|(key, value)| old.get(*key) != Some(value));
    gone.chain(set.map(|(key, value)| (key.clone(), json!(value))))
        .collect()
}

/// The sandbox that the claim's own metadata names: the annotation, or the label that older controllers wrote.
pub(super) fn reference(claim: &Claim) -> Option<&str> {
    let meta = &claim.meta;
    let name = meta.annotations.get(names::SANDBOX_NAME);
    name.or_else(|| meta.labels.get(names::SANDBOX_NAME))
        .filter(|name| !name.is_empty())
}

/// What is left to be written on a claim that has its answer: once, when it is Ready, or to correct what is wrong.
pub(super) fn bookkeeping(
    claim: &Claim,
    sandbox: &str,
    memory: &Memory,
    without_stamps: bool,
) -> Option<Value> {
    let meta = &claim.meta;
    let named = meta.annotations.get(names::SANDBOX_NAME);
    let has_label = meta.labels.get(names::SANDBOX_NAME).is_some();
    let is_wrong = has_label || named.is_some_and(|name| name != sandbox);
    let is_ready = conditions::is_true(claim.status.conditions.as_ref(), READY);
    let mut annotations = Map::new();
    let is_stamped = is_ready && !without_stamps;
    if is_stamped {
        let stamps = [
            (
                names::FIRST_OBSERVED,
                memory.observed.map(|at| at.to_string()),
            ),
            (
                names::FIRST_READY,
                Some(
                    memory
                        .ready
                        .map_or("unknown".to_owned(), |at| at.to_string()),
                ),
            ),
        ];
        for (key, stamp) in stamps {
            if let Some(stamp) = stamp.filter(|_| meta.annotations.get(key).is_none()) {
                annotations.insert(key.to_owned(), json!(stamp));
            }
        }
        // neither is worth a write of its own
        if let Some(Given { revision, is_stale }) = &memory.given
            && annotations.contains_key(names::FIRST_READY)
        {
            annotations.insert(names::REVISION.to_owned(), json!(revision));
            if *is_stale {
                annotations.insert(names::STALE.to_owned(), json!("true"));
            }
        }
        if let Some(trace) = &memory.trace
            && annotations.contains_key(names::FIRST_OBSERVED)
            && trace::of(&meta.annotations).is_none()
        {
            annotations.insert(names::TRACE_CONTEXT.to_owned(), json!(trace));
        }
    }
    // the reference names only what it adopts, so that its other claims are not worth a write of its own
    let is_adopted = sandbox != &*meta.key.name;
    let is_unnamed = is_stamped && named.is_none() && (is_adopted || !annotations.is_empty());
    if is_wrong || is_unnamed {
        annotations.insert(names::SANDBOX_NAME.to_owned(), json!(sandbox));
    }
    let mut metadata = Map::new();
    if !annotations.is_empty() {
        metadata.insert("annotations".to_owned(), annotations.into());
    }
    if has_label {
        let label = json!({names::SANDBOX_NAME: null});
        metadata.insert("labels".to_owned(), label);
    }
    (!metadata.is_empty()).then(|| json!({"metadata": metadata}))
}
