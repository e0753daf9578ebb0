//! What all pods of the node share: the way to the API, to images, to the network, and to new shims.

use std::{
    collections::BTreeMap,
    io,
    net::Ipv4Addr,
    path::PathBuf,
    process::Command,
    sync::{Arc, Mutex as Lock, PoisonError},
};

use container::{Helper, PodSettings, UserNamespace};
use k8s_openapi::{
    api::core::v1::{Pod, Secret},
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
    image::{self, Auth, Decision, Image, Images, Presence, PullPolicy, Reference},
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
    pub(crate) async fn image(
        &self,
        pod: &Pod,
        name: &str,
        policy: Option<&str>,
    ) -> Result<Image, Trouble> {
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
            (Decision::Use, Some(image)) => Ok(image),
            (Decision::Fail { reason, message }, _) => Err(Trouble::new(reason, message)),
            (Decision::Use, None) | (Decision::Pull, _) => self.pull(pod, &reference, policy).await,
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
        let auth = self.auth(pod, reference).await;
        let pulled = self.images.pull(reference, &auth, |_| {}).await;
        pulled.map_err(|error| Trouble::new("ErrImagePull", error.to_string()))
    }

    /// From the first pull secret that speaks of the image.
    async fn auth(&self, pod: &Pod, reference: &Reference) -> Auth {
        let spec = pod.spec.as_ref();
        let names = spec.and_then(|spec| spec.image_pull_secrets.clone());
        let secrets: Api<Secret> =
            Api::namespaced(self.client.clone(), &pod.namespace().unwrap_or_default());
        for name in names.unwrap_or_default() {
            let Ok(Some(secret)) = secrets.get_opt(&name.name).await else {
                continue;
            };
            let data = secret.data.unwrap_or_default();
            let new = data.get(".dockerconfigjson");
            let new = new.and_then(|text| Auth::from_docker_config(&text.0, reference));
            let found = new.or_else(|| {
                let old = data.get(".dockercfg")?;
                Auth::from_dockercfg(&old.0, reference)
            });
            if let Some(auth) = found {
                return auth;
            }
        }
        Auth::Anonymous
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
