//! What is to be done next about a template.

use serde_json::{Value, json};

use super::{
    policy,
    view::{Policy, Template},
};
use crate::{meta::Meta, sigs::names};

#[derive(Clone, Debug, PartialEq)]
pub enum Act {
    /// A patch of the template.
    Label(Value),
    Create(Value),
    Patch(Meta, Value),
    Delete(Meta),
}

#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    Act(Act),
    Rest,
    /// The policy that has the name is not the template's.
    Barred {
        policy: Box<str>,
        why: String,
    },
}

/// `found` has the name of the template's policy.
pub fn decide(template: &Template, found: Option<&Policy>) -> Step {
    let meta = &template.meta;
    if meta.is_deleting {
        return Step::Rest;
    }
    if meta.labels.get(names::TEMPLATE_REF_HASH) != Some(&*template.name_hash) {
        let labels = json!({names::TEMPLATE_REF_HASH: &*template.name_hash});
        return Step::Act(Act::Label(json!({"metadata": {"labels": labels}})));
    }
    match (policy::wanted(template), found) {
        (None, Some(found)) if found.meta.is_controlled_by(&meta.uid) => delete(found),
        (None, _) => Step::Rest,
        (Some(wanted), None) => Step::Act(Act::Create(body(template, &wanted))),
        (Some(wanted), Some(found)) if found.meta.is_controlled_by(&meta.uid) => {
            repair(found, &wanted)
        }
        (Some(_), Some(found)) => Step::Barred {
            policy: found.meta.uid.clone(),
            why: format!(
                "NetworkPolicy {:?} exists and is not controlled by this SandboxTemplate",
                found.meta.key.name
            ),
        },
    }
}

/// What no pod gets of the metadata that the template asks for, because it is not a template's to give.
pub fn reserved(template: &Template) -> Option<String> {
    let metadata = template.blueprint.pod_template.metadata.as_ref()?;
    let keys = [
        ("labels", &metadata.labels),
        ("annotations", &metadata.annotations),
    ]
    .into_iter()
    .flat_map(|(field, map)| map.iter().flatten().map(move |(key, _)| (field, key)))
    .filter(|(_, key)| names::is_reserved(key));
    let keys: Vec<String> = keys
        .map(|(field, key)| format!("{field}[{key:?}]"))
        .collect();
    (!keys.is_empty()).then(|| {
        format!(
            "podTemplate.metadata: {} reserved and given to no pod; remove or rename what is yours",
            match &keys[..] {
                [key] => format!("{key} is"),
                keys => format!("{} are", keys.join(", ")),
            }
        )
    })
}

fn delete(found: &Policy) -> Step {
    match found.meta.is_deleting {
        true => Step::Rest,
        false => Step::Act(Act::Delete(found.meta.clone())),
    }
}

fn body(template: &Template, spec: &Value) -> Value {
    let meta = &template.meta;
    json!({
        "metadata": {
            "name": policy::name(&meta.key.name),
            "ownerReferences": [meta.as_owner(names::EXTENSIONS_API_VERSION, "SandboxTemplate")],
        },
        "spec": spec,
    })
}

/// One that is going is made anew when it is gone.
fn repair(found: &Policy, wanted: &Value) -> Step {
    let (is, shall) = (policy::canonical(&found.spec), policy::canonical(wanted));
    if is == shall || found.meta.is_deleting {
        return Step::Rest;
    }
    let patch = json!({"spec": policy::patch(&is, &shall)});
    Step::Act(Act::Patch(found.meta.clone(), patch))
}
