//! From the spec of a pod and the config of an image to what `container` is told. Pure: it names files and makes none.

mod env;
mod expand;
pub(crate) mod fields;
mod limits;
mod mounts;
mod security;
mod signal;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use container::{ContainerSettings, Overlay, Root};
use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

pub(crate) use limits::{PIDS, limits};

use super::documents::Documents;
use super::place::PodPlace;
use super::trouble::Trouble;
use super::volumes::Volumes;
use crate::image::Image;
use env::Env;
use fields::Facts;
use security::{Identity, Wishes};

/// The longest name that a machine may have.
const LONGEST_HOSTNAME: usize = 63;

/// One run of a container, and all that its settings depend on.
pub(crate) struct Ask<'a> {
    pub(crate) pod: &'a Pod,
    /// One of the pod's containers or init containers.
    pub(crate) container: &'a Container,
    pub(crate) attempt: u32,
    pub(crate) image: &'a Image,
    pub(crate) place: &'a PodPlace,
    pub(crate) pod_ip: Option<&'a str>,
    pub(crate) host_ip: &'a str,
    /// Of the node.
    pub(crate) allocatable: &'a BTreeMap<String, Quantity>,
    pub(crate) documents: &'a Documents,
    pub(crate) volumes: &'a Volumes,
    /// Whether this process is root; otherwise only uid 0 and gid 0 exist in containers.
    pub(crate) is_root: bool,
    /// Whether the container is kept apart from the machine. Otherwise it is a plain process: it begins in its workplace, and
    /// what would have to be made for it is refused.
    pub(crate) is_isolated: bool,
}

impl<'a> Ask<'a> {
    fn facts(&self) -> Facts<'a> {
        Facts {
            pod: self.pod,
            pod_ip: self.pod_ip,
            host_ip: self.host_ip,
            allocatable: self.allocatable,
        }
    }
}

/// What `container` is told. `PATH` and `TERM`, where nobody sets them, are its to add.
pub(crate) fn settings(ask: &Ask<'_>) -> Result<ContainerSettings, Trouble> {
    security::refuse_the_machine(ask)?;
    let wishes = Wishes::of(ask);
    let identity = security::identity(ask, &wishes)?;
    let env = env::of_spec(ask)?;
    let read_only = wishes.is_read_only();
    let container = ask.container;
    let root = Root {
        layers: ask.image.layers.clone(),
        read_only,
    };
    let log = ask.place.log(&container.name, ask.attempt);
    let overlays = ask.image.overlays.iter().map(|overlay| Overlay {
        destination: overlay.at.clone(),
        layers: vec![overlay.lower.clone()],
        read_only,
    });
    Ok(ContainerSettings {
        attempt: ask.attempt,
        cwd: working_dir(ask),
        overlays: overlays.collect(),
        mounts: mounts::mounts(ask, &env, read_only)?,
        capabilities: wishes.capabilities(),
        privileged: wishes.is_privileged(),
        seccomp: wishes.seccomp()?,
        unmasked_proc: wishes.unmasked_proc(ask)?,
        limits: limits(container.resources.as_ref()),
        oom_score_adj: limits::oom_score_adj(ask.pod, container, ask.allocatable),
        stdin: container.stdin == Some(true),
        stdin_once: container.stdin_once == Some(true),
        tty: container.tty == Some(true),
        stop_signal: stop_signal(ask),
        env: env.over(surroundings(ask, &identity)),
        user: container::User {
            uid: identity.uid,
            gid: identity.gid,
            additional_gids: identity.additional_gids,
        },
        ..ContainerSettings::new(&container.name, root, command(ask, &env)?, log)
    })
}

/// The name of the pod's machine, as its processes see it.
pub(crate) fn hostname(pod: &Pod) -> &str {
    let spec = pod.spec.as_ref();
    let given = spec.and_then(|spec| {
        spec.hostname_override
            .as_deref()
            .or(spec.hostname.as_deref())
    });
    let given = given.filter(|name| !name.is_empty());
    let name = given.or(pod.metadata.name.as_deref()).unwrap_or_default();
    let short = name.get(..LONGEST_HOSTNAME).unwrap_or(name);
    short.trim_end_matches(['-', '.'])
}

/// Variables that the spec may override: those of the image and of the machine that the pod is.
fn surroundings(ask: &Ask<'_>, identity: &Identity) -> Env {
    let mut env = Env::of_lines(&ask.image.config.env);
    if !ask.is_isolated {
        let home = ask.place.workplace(&ask.container.name);
        env.set("HOME", home.to_string_lossy().into_owned());
    }
    if env.get("HOME").is_none() {
        let home = identity.home.clone();
        env.set("HOME", home.unwrap_or_else(|| "/".to_owned()));
    }
    env.set("HOSTNAME", hostname(ask.pod).to_owned());
    env
}

/// A command of the spec stands alone; arguments of the spec replace those of the image only.
fn command(ask: &Ask<'_>, env: &Env) -> Result<Vec<String>, Trouble> {
    let of_spec = |list: &Option<Vec<String>>| -> Vec<String> {
        let list = list.iter().flatten();
        list.map(|text| env.expand(text)).collect()
    };
    let (command, args) = (
        of_spec(&ask.container.command),
        of_spec(&ask.container.args),
    );
    let config = &ask.image.config;
    let all = match (command.is_empty(), args.is_empty()) {
        (true, true) => [config.entrypoint.clone(), config.cmd.clone()].concat(),
        (true, false) => [config.entrypoint.clone(), args].concat(),
        (false, _) => [command, args].concat(),
    };
    match all.first().is_none_or(String::is_empty) {
        true => Err(Trouble::create("no command specified")),
        false => Ok(all),
    }
}

fn working_dir(ask: &Ask<'_>) -> std::path::PathBuf {
    let of_spec = ask.container.working_dir.as_deref();
    let of_spec = of_spec.filter(|path| !path.is_empty());
    if let (None, false) = (of_spec, ask.is_isolated) {
        return ask.place.workplace(&ask.container.name);
    }
    mounts::absolute(of_spec.unwrap_or(&ask.image.config.working_dir))
}

fn stop_signal(ask: &Ask<'_>) -> Option<i32> {
    let lifecycle = ask.container.lifecycle.as_ref();
    let of_spec = lifecycle.and_then(|it| it.stop_signal.as_deref());
    signal::number(of_spec.unwrap_or(&ask.image.config.stop_signal))
}
