//! The pod that somebody means, and the container in it.

use anyhow::{Context as _, Result, bail, ensure};
use api::sigs::v1beta1::{Sandbox, SandboxClaim};
use controller::sigs::names::{EXTENSIONS, GROUP, POD_NAME};
use k8s_openapi::{NamespaceResourceScope, api::core::v1::Pod, serde::de::DeserializeOwned};
use kube::{Api, Resource, ResourceExt as _};

use super::place::Place;

/// The annotation with which a pod says which of its containers people mean.
const DEFAULT_CONTAINER: &str = "kubectl.kubernetes.io/default-container";

/// What leads to a pod.
#[derive(Debug, PartialEq, Eq)]
enum Lead<'a> {
    Pod(&'a str),
    Sandbox(&'a str),
    Claim(&'a str),
}

impl<'a> Lead<'a> {
    fn parse(target: &'a str) -> Result<Self> {
        let Some((word, name)) = target.split_once('/') else {
            return Ok(Self::Pod(target));
        };
        ensure!(
            !name.is_empty() && !name.contains('/'),
            "{target:?} is not KIND/NAME"
        );
        let lower = word.to_lowercase();
        let (kind, group) = lower.split_once('.').unwrap_or((&lower, ""));
        let is_of =
            |own: &str| group.is_empty() || group == own || group == format!("v1beta1.{own}");
        match kind {
            "pod" | "pods" | "po" if group.is_empty() => Ok(Self::Pod(name)),
            "sandbox" | "sandboxes" if is_of(GROUP) => Ok(Self::Sandbox(name)),
            "sandboxclaim" | "sandboxclaims" if is_of(EXTENSIONS) => Ok(Self::Claim(name)),
            _ => bail!("{word:?} has no containers: name a pod, sandbox/NAME or sandboxclaim/NAME"),
        }
    }
}

/// A container of a pod.
pub(super) struct Chosen {
    pub(super) pod: String,
    pub(super) container: String,
}

/// A pod and all its containers, in the order in which they began.
pub(super) async fn choose_all(place: &Place, target: &str) -> Result<(String, Vec<String>)> {
    let pod = find(place, target).await?;
    let spec = pod.spec.as_ref().context("the pod has no spec")?;
    let inits = spec.init_containers.iter().flatten();
    let own = inits.chain(&spec.containers).map(|one| &one.name);
    let ephemeral = spec.ephemeral_containers.iter().flatten();
    let all = own.chain(ephemeral.map(|one| &one.name));
    Ok((pod.name_any(), all.cloned().collect()))
}

/// Finds both; says so if it has chosen the container.
pub(super) async fn choose(
    place: &Place,
    target: &str,
    container: Option<String>,
) -> Result<Chosen> {
    let pod = find(place, target).await?;
    let container = match container {
        Some(container) => container,
        None => {
            let (container, note) = default_container(&pod)?;
            if let Some(note) = note {
                eprintln!("{note}");
            }
            container
        }
    };
    Ok(Chosen {
        pod: pod.name_any(),
        container,
    })
}

pub(super) fn api<K>(place: &Place) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    Api::namespaced(place.client.clone(), &place.namespace)
}

async fn read<K>(place: &Place, name: &str) -> Result<K>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + DeserializeOwned
        + std::fmt::Debug,
{
    place.ask(api::<K>(place).get(name)).await
}

async fn find(place: &Place, target: &str) -> Result<Pod> {
    let sandbox = match Lead::parse(target)? {
        Lead::Pod(name) => return read(place, name).await,
        Lead::Sandbox(name) => name.to_owned(),
        Lead::Claim(name) => {
            let claim: SandboxClaim = read(place, name).await?;
            let sandbox = claim.status.and_then(|status| status.sandbox?.name);
            sandbox.with_context(|| {
                format!("sandboxclaim {name:?} has no sandbox yet: follow it with `sandbar get sandboxclaims.{EXTENSIONS} {name} -w`")
            })?
        }
    };
    let found: Sandbox = read(place, &sandbox).await?;
    let pod = found.annotations().get(POD_NAME).cloned();
    let pod = pod.unwrap_or_else(|| sandbox.clone());
    let there = place.ask(api::<Pod>(place).get_opt(&pod)).await?;
    there.with_context(|| {
        format!(
            "sandbox {sandbox:?} has no pod now: `sandbar get sandboxes.{GROUP} {sandbox}` says how it is"
        )
    })
}

/// The one that the pod names, or the first; and what is to be said if there are others.
fn default_container(pod: &Pod) -> Result<(String, Option<String>)> {
    let spec = pod.spec.as_ref().context("the pod has no spec")?;
    let names: Vec<&str> = spec
        .containers
        .iter()
        .map(|one| one.name.as_str())
        .collect();
    let named = pod.annotations().get(DEFAULT_CONTAINER);
    if let Some(name) = named.filter(|name| names.contains(&name.as_str())) {
        return Ok((name.clone(), None));
    }
    let first = *names.first().context("the pod has no containers")?;
    let ephemeral = spec.ephemeral_containers.iter().flatten();
    let ephemeral = ephemeral.map(|one| format!("{} (ephem)", one.name));
    let init = spec.init_containers.iter().flatten();
    let init = init.map(|one| format!("{} (init)", one.name));
    let own = names.iter().map(|name| (*name).to_owned());
    let all: Vec<String> = own.chain(ephemeral).chain(init).collect();
    let note = (all.len() > 1)
        .then(|| format!("Defaulted container {first:?} out of: {}", all.join(", ")));
    Ok((first.to_owned(), note))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use serde_json::json;

    use super::{Lead, default_container};

    #[test]
    fn a_pod_is_named_itself_or_by_what_holds_it() {
        for (target, lead) in [
            ("box", Lead::Pod("box")),
            ("Pod/box", Lead::Pod("box")),
            ("sandbox/box", Lead::Sandbox("box")),
            ("sandboxes.agents.x-k8s.io/box", Lead::Sandbox("box")),
            ("sandboxclaim/mine", Lead::Claim("mine")),
            (
                "sandboxclaims.v1beta1.extensions.agents.x-k8s.io/mine",
                Lead::Claim("mine"),
            ),
        ] {
            assert_eq!(Lead::parse(target).unwrap(), lead, "{target}");
        }
        for target in ["service/a", "sandbox.agents.kruise.io/a", "pod/", "pod/a/b"] {
            assert!(Lead::parse(target).is_err(), "{target}");
        }
    }

    #[test]
    fn the_container_is_the_one_that_the_pod_names_or_the_first() {
        let mut pod = json!({"metadata": {}, "spec": {
            "containers": [{"name": "main"}, {"name": "side"}], "initContainers": [{"name": "before"}],
        }});
        let (container, note) =
            default_container(&serde_json::from_value(pod.clone()).unwrap()).unwrap();
        assert_eq!(container, "main");
        assert_eq!(
            note.unwrap(),
            "Defaulted container \"main\" out of: main, side, before (init)"
        );
        pod["metadata"]["annotations"] = json!({"kubectl.kubernetes.io/default-container": "side"});
        let chosen = default_container(&serde_json::from_value(pod).unwrap()).unwrap();
        assert_eq!(chosen, ("side".to_owned(), None));
    }
}
