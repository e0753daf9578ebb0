//! The sandbox that is started for a claim.

use std::collections::BTreeSet;

use api::{
    open::known,
    sigs::{
        shared::{Blueprint, ClaimEnvVar, EnvVarsInjectionPolicy, PersistentVolumeClaimTemplate},
        v1beta1::VolumeClaimTemplatesPolicy,
    },
};
use serde_json::{Value, json};

use super::{metadata, status::Problem, view::Claim};
use crate::sigs::{names, pool::member, template::view::Template};

/// Whether what the claim asks for cannot be had of a pod that runs already.
pub(super) fn is_needed(claim: &Claim) -> bool {
    let has_env = claim.spec.request.env.iter().flatten().next().is_some();
    let volumes = claim.spec.volume_claim_templates.iter().flatten();
    has_env || volumes.count() > 0
}

/// What to create; it is called like the claim.
pub(super) fn sandbox(
    claim: &Claim,
    template: &Template,
    trace: Option<&str>,
) -> Result<Value, Problem> {
    let mut blueprint = template.blueprint.clone();
    blueprint.volume_claim_templates = volumes(claim, template)?;
    blueprint.pod_template.metadata = Some(metadata::pod(claim, template)?);
    inject(claim, template, &mut blueprint)?;
    let meta = &claim.meta;
    let name = &*meta.key.name;
    let mut labels = json!({
        names::CLAIM_UID: &*meta.uid,
        names::LAUNCH_TYPE: names::COLD,
        names::TEMPLATE_REF_HASH: &*template.name_hash,
    });
    if let Some(client) = meta.labels.get(names::CREATED_BY) {
        labels[names::CREATED_BY] = json!(client);
    }
    let mut annotations = json!({
        names::TEMPLATE_REF: &*template.meta.key.name,
        names::REVISION: member::target(template).as_str(),
        // a pod is called like its sandbox, and saying so now saves saying it later
        names::POD_NAME: name,
    });
    if let Some(trace) = trace {
        annotations[names::TRACE_CONTEXT] = json!(trace);
    }
    Ok(json!({
        "metadata": {
            "name": name,
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [metadata::owner(claim)],
        },
        "spec": blueprint,
    }))
}

fn rejected_volumes(why: impl Into<String>) -> Problem {
    Problem::lasting("VolumeClaimTemplatesError", why.into())
}

fn volume_name(volume: &PersistentVolumeClaimTemplate) -> &str {
    let metadata = volume.metadata.as_ref();
    let name = metadata.and_then(|metadata| metadata.name.as_deref());
    name.unwrap_or_default()
}

/// The template's volume claims with those of the claim, as far as the template lets it bring any.
fn volumes(
    claim: &Claim,
    template: &Template,
) -> Result<Option<Vec<PersistentVolumeClaimTemplate>>, Problem> {
    let given = &template.blueprint.volume_claim_templates;
    let wanted = claim.spec.volume_claim_templates.as_deref();
    let wanted = wanted.unwrap_or_default();
    check_names("the template", given.as_deref().unwrap_or_default())?;
    check_names("the claim", wanted)?;
    if wanted.is_empty() {
        return Ok(given.clone());
    }
    let mut all = given.clone().unwrap_or_default();
    let may_override = match known(&template.spec.volume_claim_templates_policy) {
        Some(VolumeClaimTemplatesPolicy::Allowed) => false,
        Some(VolumeClaimTemplatesPolicy::Overrides) => true,
        Some(VolumeClaimTemplatesPolicy::Disallowed) | None => {
            return Err(rejected_volumes(format!(
                "SandboxTemplate {:?} does not let claims bring volumeClaimTemplates",
                &*template.meta.key.name
            )));
        }
    };
    for volume in wanted {
        let name = volume_name(volume);
        match all.iter_mut().find(|old| volume_name(old) == name) {
            None => all.push(volume.clone()),
            Some(old) if may_override => *old = volume.clone(),
            Some(_) => {
                return Err(rejected_volumes(format!(
                    "volumeClaimTemplates: {name:?} is the template's, whose policy Allowed lets claims only add"
                )));
            }
        }
    }
    Ok(Some(all))
}

fn check_names(whose: &str, volumes: &[PersistentVolumeClaimTemplate]) -> Result<(), Problem> {
    let mut names = BTreeSet::new();
    for (index, volume) in volumes.iter().enumerate() {
        let name = volume_name(volume);
        if name.is_empty() {
            return Err(rejected_volumes(format!(
                "volumeClaimTemplates[{index}] of {whose} has no name"
            )));
        }
        if !names.insert(name) {
            return Err(rejected_volumes(format!(
                "volumeClaimTemplates of {whose} has {name:?} twice"
            )));
        }
    }
    Ok(())
}

fn rejected_env(why: String) -> Problem {
    Problem::lasting("EnvVarsInjectionRejected", why)
}

fn inject(claim: &Claim, template: &Template, blueprint: &mut Blueprint) -> Result<(), Problem> {
    let wanted = claim.spec.request.env.as_deref().unwrap_or_default();
    if wanted.is_empty() {
        return Ok(());
    }
    let may_override = match known(&template.spec.policies.env_vars_injection_policy) {
        Some(EnvVarsInjectionPolicy::Allowed) => false,
        Some(EnvVarsInjectionPolicy::Overrides) => true,
        Some(EnvVarsInjectionPolicy::Disallowed) | None => {
            let name = &*template.meta.key.name;
            return Err(rejected_env(format!(
                "SandboxTemplate {name:?} does not let claims set variables"
            )));
        }
    };
    let mut spec = blueprint.pod_template.spec.json().clone();
    for variable in wanted {
        set(&mut spec, variable, may_override)?;
    }
    blueprint.pod_template.spec = spec.into();
    Ok(())
}

fn set(spec: &mut Value, variable: &ClaimEnvVar, may_override: bool) -> Result<(), Problem> {
    let ClaimEnvVar {
        name,
        value,
        container_name,
    } = variable;
    let wanted = container_name.as_deref().filter(|name| !name.is_empty());
    let place = target(spec, wanted);
    let Some(container) = place.and_then(|place| spec.pointer_mut(&place)) else {
        return Err(Problem::error(format!(
            "env {name:?}: the template has no container {:?}",
            wanted.unwrap_or_default()
        )));
    };
    let has_sources = container["envFrom"]
        .as_array()
        .is_some_and(|sources| !sources.is_empty());
    if has_sources && !may_override {
        return Err(rejected_env(format!(
            "env {name:?}: container {} takes variables from elsewhere (envFrom), which the policy Allowed does not \
             let claims mix with",
            container["name"]
        )));
    }
    let entry = json!({"name": name, "value": value});
    let Some(variables) = container["env"].as_array_mut() else {
        container["env"] = json!([entry]);
        return Ok(());
    };
    match variables.iter_mut().find(|old| old["name"] == **name) {
        None => variables.push(entry),
        Some(old) if may_override => *old = entry,
        Some(_) => {
            return Err(Problem::error(format!(
                "env {name:?}: it is set already, and the policy Allowed lets claims only add"
            )));
        }
    }
    Ok(())
}

/// Where in a pod spec the container of this name is, or the first one.
fn target(spec: &Value, name: Option<&str>) -> Option<String> {
    ["containers", "initContainers"].iter().find_map(|list| {
        let containers = spec[*list].as_array()?;
        let place = match name {
            Some(name) => containers.iter().position(|one| one["name"] == *name)?,
            None => 0,
        };
        Some(format!("/{list}/{place}"))
    })
}
