//! What all pods of the node share: the way to the API, to images, to the network, and to new shims.

use std::{
    collections::BTreeMap,
    io,
    net::Ipv4Addr,
    path::PathBuf,
    process::Command,
    sync::{Arc, Mutex as Lock, PoisonError},
    time::Instant,
};

use container::{Helper, PodSettings, UserNamespace};
use k8s_openapi::{
    api::core::v1::{Container, Pod, Secret},
    apimachinery::pkg::api::resource::Quantity,
};
use kube::{Api, Client, ResourceExt as _};
use tokio::sync::{Mutex, Semaphore};

use super::{
    dial::Dialer, events::Events, ids::Ids, place::PodPlace, tenants::Tenants, trouble::Trouble,
    ways::Ways,
};
use crate::{
    clock::Clock,
    image::{self, Auth, Decision, Image, Images, Keyring, Presence, PullPolicy, Reference},
};

pub(crate) struct Site {
    pub(crate) client: Client,
    pub(crate) clock: Clock,
    /// Where pods, by uid, have their directories.
    pub(crate) pods: PathBuf,
    /// Where claims have their volumes.
    pub(crate) claims: PathBuf,
    /// A directory that is kept in memory.
    pub(crate) memory: PathBuf,
    pub(crate) host_paths: Vec<PathBuf>,
    pub(crate) allocatable: BTreeMap<String, Quantity>,
    pub(crate) cgroup_parent: String,
    pub(crate) is_root: bool,
    /// Whether containers are kept apart from the machine, or are plain processes of this user.
    pub(crate) is_isolated: bool,
    pub(crate) helpers: Helpers,
    pub(crate) images: Images,
    pub(crate) pulls: Pulls,
    pub(crate) ways: Arc<Ways>,
    pub(crate) dialer: Dialer,
    pub(crate) tenants: Tenants,
    pub(crate) events: Events,
    /// Looks at the files of pods are taken one at a time.
    pub(crate) measuring: Semaphore,
    pub(crate) ids: Ids,
}

impl Site {
    pub(crate) fn place(&self, uid: &str) -> PodPlace {
        PodPlace::new(&self.pods, uid)
    }

    /// The directory in memory of one pod.
    pub(crate) fn memory(&self, uid: &str) -> PathBuf {
        self.memory.join(uid)
    }

    /// The users of a pod, where they are not those of the machine.
    pub(crate) fn user_namespace(
        &self,
        pod: &Pod,
        place: &PodPlace,
    ) -> io::Result<Option<UserNamespace>> {
        let host_users = pod.spec.as_ref().and_then(|spec| spec.host_users);
        match (self.is_isolated, self.is_root, host_users) {
            (false, _, _) | (true, true, None | Some(true)) => Ok(None),
            (true, false, _) => Ok(Some(UserNamespace::of_caller())),
            (true, true, Some(false)) => self.ids.of(place, &self.pods).map(Some),
        }
    }

    /// Where a pod is reached: at the address that its network has given it, and without isolation at the machine's own.
    pub(crate) fn address(&self, given: Option<Ipv4Addr>) -> Option<Ipv4Addr> {
        given.or((!self.is_isolated).then_some(Ipv4Addr::LOCALHOST))
    }

    /// The image of a container, pulled if its policy says so.
    pub(crate) async fn image(&self, pod: &Pod, container: &Container) -> Result<Image, Trouble> {
        let name = container.image.as_deref().unwrap_or_default();
        let policy = container.image_pull_policy.as_deref();
        let reference = image::reference(name).map_err(|error| {
            let message = format!("Failed to apply default image tag {name:?}: {error}");
            Trouble::new("InvalidImageName", message)
        })?;
        if !self.is_isolated && !self.images.is_built_in(&reference) {
            return Err(Trouble::config(format!(
                "image {name:?} cannot be run without isolation, where a container has the files of this machine and no others: \
                 use sandbar/base, or run sandbar where it can isolate"
            )));
        }
        let policy = policy
            .and_then(PullPolicy::parse)
            .unwrap_or(PullPolicy::IfNotPresent);
        let found = self.find(&reference).await?;
        let presence = match &found {
            None => Presence::Absent,
            Some(image) if image.is_built_in => Presence::BuiltIn,
            Some(_) => Presence::Present,
        };
        match (policy.decide(name, presence), found) {
            (Decision::Use, Some(image)) => {
                let message = format!("Image {name:?} is on this machine already");
                self.events.tell(pod, &container.name, "Pulled", message);
                Ok(image)
            }
            (Decision::Fail { reason, message }, _) => Err(Trouble::new(reason, message)),
            (Decision::Use, None) | (Decision::Pull, _) => {
                let (tell, begun) = (&self.events, Instant::now());
                let message = format!("Pulling image {name:?}");
                tell.tell(pod, &container.name, "Pulling", message);
                let image = self.pull(pod, &reference, policy).await?;
                let time = format!(" in {} ms", begun.elapsed().as_millis());
                let message = format!("Image {name:?} pulled");
                tell.tell_more(pod, &container.name, "Pulled", message, &time);
                Ok(image)
            }
        }
    }

    async fn find(&self, reference: &Reference) -> Result<Option<Image>, Trouble> {
        let (images, reference) = (self.images.clone(), reference.clone());
        let found = tokio::task::spawn_blocking(move || images.get(&reference)).await;
        match found {
            Ok(found) => found.map_err(|error| Trouble::new("ErrImagePull", error.to_string())),
            Err(error) => Err(Trouble::new("ErrImagePull", error.to_string())),
        }
    }

    async fn pull(
        &self,
        pod: &Pod,
        reference: &Reference,
        policy: PullPolicy,
    ) -> Result<Image, Trouble> {
        let turn = self.pulls.turn(reference);
        let _turn = turn.lock().await;
        // whoever was before may have brought it
        if policy == PullPolicy::IfNotPresent
            && let Some(image) = self.find(reference).await?
        {
            return Ok(image);
        }
        let mut errors = Vec::new();
        for auth in self.auths(pod, reference).await {
            match self.images.pull(reference, &auth, |_| {}).await {
                Ok(image) => return Ok(image),
                Err(error) => {
                    let is_final = !error.is_refusal();
                    errors.push(error.to_string());
                    if is_final {
                        break;
                    }
                }
            }
        }
        Err(Trouble::new("ErrImagePull", all_of(errors)))
    }

    /// Those of whom the pull secrets speak, in the order in which they are to ask; if there are none, nobody in particular.
    async fn auths(&self, pod: &Pod, reference: &Reference) -> Vec<Auth> {
        let spec = pod.spec.as_ref();
        let names = spec.and_then(|spec| spec.image_pull_secrets.clone());
        let secrets: Api<Secret> =
            Api::namespaced(self.client.clone(), &pod.namespace().unwrap_or_default());
        let mut keyring = Keyring::default();
        for name in names.unwrap_or_default() {
            let Ok(Some(secret)) = secrets.get_opt(&name.name).await else {
                continue;
            };
            let data = secret.data.unwrap_or_default();
            if let Some(text) = data.get(".dockerconfigjson") {
                keyring.add_docker_config(&text.0, reference);
            }
            if let Some(text) = data.get(".dockercfg") {
                keyring.add_dockercfg(&text.0, reference);
            }
        }
        let auths = keyring.in_order();
        match auths.is_empty() {
            true => vec![Auth::Anonymous],
            false => auths,
        }
    }
}

/// Several errors as one, as kubelets put them.
fn all_of(mut errors: Vec<String>) -> String {
    match errors.len() {
        1 => errors.remove(0),
        _ => format!("[{}]", errors.join(", ")),
    }
}

/// One pull of an image at a time.
#[derive(Default)]
pub(crate) struct Pulls(Lock<BTreeMap<String, Arc<Mutex<()>>>>);

impl Pulls {
    fn turn(&self, reference: &Reference) -> Arc<Mutex<()>> {
        let mut turns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        turns.retain(|_, turn| Arc::strong_count(turn) > 1);
        Arc::clone(turns.entry(reference.whole()).or_default())
    }
}

/// The process that forks shims, started anew if it is gone.
pub(crate) struct Helpers {
    command: Box<dyn Fn() -> Command + Send + Sync>,
    current: Mutex<Option<Arc<Helper>>>,
}

impl Helpers {
    pub(crate) fn new(command: Box<dyn Fn() -> Command + Send + Sync>) -> Self {
        Self {
            command,
            current: Mutex::default(),
        }
    }

    pub(crate) async fn start_pod(
        &self,
        settings: &PodSettings,
    ) -> Result<container::Pod, container::Error> {
        let helper = self.get(None).await?;
        match helper.start_pod(settings).await {
            Err(container::Error::HelperGone(_) | container::Error::ShimGone) => {
                self.get(Some(&helper)).await?.start_pod(settings).await
            }
            started => started,
        }
    }

    /// The helper, another one than that which is no good any more.
    async fn get(&self, gone: Option<&Arc<Helper>>) -> Result<Arc<Helper>, container::Error> {
        let mut current = self.current.lock().await;
        match &*current {
            Some(helper) if gone.is_none_or(|gone| !Arc::ptr_eq(gone, helper)) => {
                Ok(Arc::clone(helper))
            }
            _ => {
                let fresh = Arc::new(Helper::spawn((self.command)())?);
                *current = Some(Arc::clone(&fresh));
                Ok(fresh)
            }
        }
    }
}
