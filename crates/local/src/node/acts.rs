//! What is done about a pod: one function for each step of its plan. They touch the machine and tell what came of it.

mod files;

use std::{
    collections::BTreeMap,
    fs::{self, File, Permissions},
    io,
    net::Ipv4Addr,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use container::PodSettings;
use futures::future::join_all;
use k8s_openapi::{
    api::core::v1::{Container, Pod, PodSpec},
    jiff::Timestamp,
};
use tokio::{sync::watch, task::spawn_blocking, time::timeout};

use super::{
    admission, claims,
    documents::Documents,
    end,
    facts::{Begin, Made, Run, START_ERROR},
    hooks, machine,
    place::PodPlace,
    plan,
    probes::Target,
    record::{self, ShellRecord},
    settings,
    site::Site,
    storage,
    trouble::Trouble,
    volumes::{self, Volumes},
    works::Works,
};
use crate::{image::Image, kubelet::resize::wanted};
use files::{forget, hosts};

const SIGTERM: i32 = 15;
const SIGKILL: i32 = 9;
/// A killed process is gone in moments; one that is not hangs in the kernel.
const AFTER_KILL: Duration = Duration::from_secs(10);
/// What is left to a container whose hook has taken all the time, as a kubelet has it.
const LEAST: Duration = Duration::from_secs(2);

/// A pod on this machine.
#[derive(Clone)]
pub(crate) struct Lodging {
    pub(crate) site: Arc<Site>,
    pub(crate) uid: String,
    pub(crate) place: PodPlace,
    /// The run of each container that lives.
    pub(crate) running: watch::Receiver<BTreeMap<String, u32>>,
    pub(crate) works: Works,
}

/// What containers live in, when it is there.
#[derive(Clone)]
pub(crate) struct Home {
    pub(crate) shim: Arc<container::Pod>,
    pub(crate) address: Option<Ipv4Addr>,
    /// Counts those that the pod has had.
    pub(crate) number: u32,
}

impl Lodging {
    /// Makes what the containers live in: a shim, a network, and the files that name both.
    pub(crate) async fn make(&self, pod: &Pod) -> Result<Home, Trouble> {
        let failed = |message: String| {
            let message = format!("Failed to create pod sandbox: {message}");
            Trouble::new("FailedCreatePodSandBox", message)
        };
        let dir = self.place.shim();
        // made by a process that died before it was answered: nobody speaks to it
        if container::has_shim(&dir) {
            end::settle(&dir).await;
        }
        fs::create_dir_all(&dir).map_err(|error| failed(io_error(&dir, &error)))?;
        let users = self.site.user_namespace(pod, &self.place);
        let users = users.map_err(|error| failed(error.to_string()))?;
        let settings = PodSettings {
            dir,
            hostname: settings::hostname(pod).to_owned(),
            cgroup_parent: self.site.cgroup_parent.clone(),
            cgroup: machine::pod_cgroup(&self.uid),
            user_namespace: users,
            first: pod.spec.as_ref().and_then(plan::first),
            isolated: self.site.is_isolated,
            sysctls: pod
                .spec
                .as_ref()
                .map(admission::sysctls)
                .unwrap_or_default(),
        };
        let mut record = ShellRecord {
            number: record::shell(&self.place).number + 1,
            is_whole: false,
            is_plain: !self.site.is_isolated,
        };
        let saved = record::save_shell(&self.place, &record);
        saved.map_err(|error| failed(error.to_string()))?;
        let started = self.site.helpers.start_pod(&settings).await;
        let shim = Arc::new(started.map_err(|error| failed(error.to_string()))?);
        let furnished = async {
            let address = self
                .site
                .ways
                .attach(pod, &shim.network_namespace())
                .await?;
            let address = self.site.address(address);
            self.write_etc(pod, address)
                .map_err(|error| error.to_string())?;
            record.is_whole = true;
            let saved = record::save_shell(&self.place, &record);
            saved.map_err(|error| error.to_string())?;
            Ok::<_, String>(address)
        };
        match furnished.await {
            Ok(address) => Ok(Home {
                shim,
                address,
                number: record.number,
            }),
            Err(message) => {
                // why it could not be made says more than why it could not be removed
                let _ = shim.stop(&[], Duration::ZERO).await;
                self.detach().await;
                Err(failed(message))
            }
        }
    }

    fn write_etc(&self, pod: &Pod, address: Option<Ipv4Addr>) -> io::Result<()> {
        let hostname = settings::hostname(pod);
        let hosts = hosts(pod, hostname, address);
        let resolv_conf = self.site.ways.resolv_conf(pod);
        for (file, text) in [
            ("hosts", hosts),
            ("hostname", format!("{hostname}\n")),
            ("resolv.conf", resolv_conf),
        ] {
            let path = self.place.etc(file);
            if let Some(directory) = path.parent() {
                fs::create_dir_all(directory)?;
            }
            fs::write(path, text)?;
        }
        Ok(())
    }

    /// Starts a container, from the pull of its image to its hook. If that fails, the container has been ended.
    pub(crate) async fn start(
        &self,
        pod: &Pod,
        container: &Container,
        Begin {
            first_attempt,
            crashes,
        }: Begin,
        home: &Home,
        target: Target,
    ) -> Result<(Run, Option<Trouble>), Trouble> {
        let name = container.name.as_str();
        let image = self.site.image(pod, container).await?;
        let documents = Documents::fetch(&self.site.client, pod).await?;
        let volumes = self.volumes(pod, &documents, home.address).await?;
        // one whose directory is there was begun by a process that died
        let free = (first_attempt..).find(|attempt| !self.place.run(name, *attempt).exists());
        let attempt = free.unwrap_or(first_attempt);
        let ip = home.address.map(|address| address.to_string());
        let host_ip = self.site.ways.host_ip();
        let settings = settings::settings(&settings::Ask {
            pod,
            container,
            attempt,
            image: &image,
            place: &self.place,
            pod_ip: ip.as_deref(),
            host_ip: &host_ip,
            allocatable: &self.site.allocatable,
            documents: &documents,
            volumes: &volumes,
            is_root: self.site.is_root,
            is_isolated: self.site.is_isolated,
        })?;
        let made = Made {
            attempt,
            shell: home.number,
            image: container.image.clone().unwrap_or_default(),
            image_id: image_id(&image),
            resources: wanted(container),
            stop_signal: settings.stop_signal.unwrap_or(SIGTERM),
            crashes,
        };
        self.prepare(name, &made, &image)?;
        let tell = |reason, what: &str| {
            let message = format!("{what} container {name}");
            self.site.events.tell(pod, name, reason, message);
        };
        let started = match home.shim.start(&settings).await {
            Err(container::Error::Unstartable(message)) => {
                tell("Created", "Made");
                return Ok(self.unstarted(name, made, message));
            }
            started => started.map_err(start_trouble)?,
        };
        tell("Created", "Made");
        tell("Started", "Started");
        if let Some(why) = started.limits_not_applied.filter(|_| is_limited(container)) {
            let message = format!("limits of container {name} are not in force: {why}");
            self.site.events.warn(pod, "LimitsNotInForce", message);
        }
        let run = Run {
            made,
            started_at: moment(started.started_at),
            end: None,
        };
        let hooked = self.post_start(pod, container, &run, home, &target).await;
        Ok((run, hooked.err()))
    }

    /// A run that ended before it began: what follows from that is the same as with any other.
    fn unstarted(&self, name: &str, made: Made, message: String) -> (Run, Option<Trouble>) {
        let now = self.site.clock.now();
        let trouble = Trouble::new(START_ERROR, format!("Error: {message}"));
        let run = Run {
            made,
            started_at: now,
            end: Some(end::unstarted(message, now)),
        };
        // a process that comes back without it tries once more
        let _ = record::save_unstarted(&self.place, name, &run);
        (run, Some(trouble))
    }

    async fn volumes(
        &self,
        pod: &Pod,
        documents: &Documents,
        address: Option<Ipv4Addr>,
    ) -> Result<Volumes, Trouble> {
        self.with_sources(pod, documents, address, volumes::prepare)
            .await
    }

    /// Brings Secrets, ConfigMaps and the like in volumes up to date.
    pub(crate) async fn refresh(
        &self,
        pod: &Pod,
        address: Option<Ipv4Addr>,
    ) -> Result<bool, Trouble> {
        let documents = Documents::fetch(&self.site.client, pod).await?;
        self.with_sources(pod, &documents, address, volumes::refresh)
            .await
    }

    /// Which limit of storage the pod exceeds, in words, if it does any.
    pub(crate) async fn measure(&self, pod: &Pod) -> Option<String> {
        let memory = self.site.memory(&self.uid);
        let allowances = storage::allowances(pod, &self.place, &memory);
        let _turn = self.site.measuring.acquire().await;
        let measured = spawn_blocking(move || storage::exceeded(&allowances));
        measured.await.unwrap_or_default()
    }

    /// Does something about the volumes on a thread that may wait for the disk.
    async fn with_sources<T: Send + 'static>(
        &self,
        pod: &Pod,
        documents: &Documents,
        address: Option<Ipv4Addr>,
        work: fn(&volumes::Sources<'_>) -> Result<T, Trouble>,
    ) -> Result<T, Trouble> {
        let claims = claims::directories(&self.site.client, pod, &self.site.claims).await?;
        let (site, place, uid) = (Arc::clone(&self.site), self.place.clone(), self.uid.clone());
        let (pod, documents) = (pod.clone(), documents.clone());
        let worked = self.works.run(move || {
            let ip = address.map(|address| address.to_string());
            work(&volumes::Sources {
                pod: &pod,
                place: &place,
                documents: &documents,
                claims: &claims,
                memory: &site.memory(&uid),
                may_mount: site.is_root && site.is_isolated,
                host_paths: &site.host_paths,
                pod_ip: ip.as_deref(),
                host_ip: &site.ways.host_ip(),
                allocatable: &site.allocatable,
            })
        });
        worked
            .await
            .unwrap_or_else(|error| Err(Trouble::create(error.to_string())))
    }

    /// Everything that has to be there before a container may be started.
    fn prepare(&self, name: &str, made: &Made, image: &Image) -> Result<(), Trouble> {
        let create = |error: &dyn std::fmt::Display| Trouble::create(error.to_string());
        let holder = holder(&self.uid, name);
        self.site
            .images
            .hold(&holder, image)
            .map_err(|error| create(&error))?;
        let files = || {
            let log = self.place.log(name, made.attempt);
            let last_words = self.place.last_words(name, made.attempt);
            for path in [&log, &last_words] {
                if let Some(directory) = path.parent() {
                    fs::create_dir_all(directory)?;
                }
            }
            if !self.site.is_isolated {
                fs::create_dir_all(self.place.workplace(name))?;
            }
            // whoever the container runs as may write it
            File::create(last_words)?.set_permissions(Permissions::from_mode(0o666))?;
            if let Some(old) = made.attempt.checked_sub(2) {
                forget(&self.place.log(name, old))?;
                forget(&self.place.last_words(name, old))?;
            }
            record::save_run(&self.place, name, made)
        };
        files().map_err(|error: io::Error| create(&error))
    }

    async fn post_start(
        &self,
        pod: &Pod,
        container: &Container,
        run: &Run,
        home: &Home,
        target: &Target,
    ) -> Result<(), Trouble> {
        let lifecycle = container.lifecycle.as_ref();
        let Some(hook) = lifecycle.and_then(|lifecycle| lifecycle.post_start.as_ref()) else {
            return Ok(());
        };
        let Err(message) = hooks::run(hook, container, target).await else {
            return Ok(());
        };
        let grace = pod.spec.as_ref().map(plan::grace).unwrap_or_default();
        self.end_run(&container.name, &run.made, home, grace).await;
        Err(Trouble::new("PostStartHookError", message))
    }

    fn tell_of_end(&self, pod: &Pod, name: &str) {
        let message = format!("Ending container {name}");
        self.site.events.tell(pod, name, "Killing", message);
    }

    /// Asks a container to end, and makes it when its time is up.
    pub(crate) async fn stop(
        &self,
        pod: &Pod,
        container: &Container,
        made: &Made,
        home: &Home,
        target: &Target,
        grace: Duration,
    ) {
        self.tell_of_end(pod, &container.name);
        let left = left_by(pre_stop(container, target), grace).await;
        self.end_run(&container.name, made, home, left).await;
    }

    async fn end_run(&self, name: &str, made: &Made, home: &Home, grace: Duration) {
        let mut running = self.running.clone();
        let has_ended = |running: &BTreeMap<String, u32>| running.get(name) != Some(&made.attempt);
        if !grace.is_zero() && home.shim.kill(name, made.stop_signal).await.is_ok() {
            let _ = timeout(grace, running.wait_for(has_ended)).await;
        }
        if !has_ended(&self.running.borrow()) && home.shim.kill(name, SIGKILL).await.is_ok() {
            let _ = timeout(AFTER_KILL, running.wait_for(has_ended)).await;
        }
    }

    /// Gives a container that runs other limits.
    pub(crate) async fn resize(
        &self,
        container: &Container,
        made: &Made,
        home: &Home,
    ) -> Result<Made, Trouble> {
        let wanted = wanted(container);
        let limits = settings::limits(Some(&wanted));
        let resized = home.shim.resize(&container.name, &limits).await;
        resized.map_err(|error| Trouble::new("ResizeError", error.to_string()))?;
        let made = Made {
            resources: wanted,
            ..made.clone()
        };
        let saved = record::save_run(&self.place, &container.name, &made);
        saved.map_err(|error| Trouble::new("ResizeError", error.to_string()))?;
        Ok(made)
    }

    /// Ends a pod by the time that `by` tells, which may become an earlier one.
    pub(crate) async fn end(
        &self,
        pod: &Pod,
        alive: BTreeMap<String, Made>,
        home: &Home,
        targets: &BTreeMap<String, Target>,
        mut by: watch::Receiver<Option<Timestamp>>,
    ) {
        // a pod that nobody knows any more has none
        let spec = pod.spec.clone().unwrap_or_default();
        alive.keys().for_each(|name| self.tell_of_end(pod, name));
        let unasked = AtomicUsize::new(0);
        let asking = self.ask_to_end(&spec, &alive, home, targets, &unasked);
        self.until(&mut by, asking).await;
        let order: Vec<String> = spec.containers.iter().map(|app| app.name.clone()).collect();
        loop {
            let mut left = self.left(*by.borrow_and_update());
            if unasked.load(Ordering::Relaxed) > 0 {
                left = left.max(LEAST);
            }
            tokio::select! {
                // a shim that does not answer is ended by whoever settles the pod
                _ = timeout(left + AFTER_KILL, home.shim.stop(&order, left)) => break,
                changed = by.changed() => if changed.is_err() { break },
            }
        }
        self.detach().await;
    }

    /// Each container has its own hook, and is signalled after it whatever others do; but sidecars end one after the other, the
    /// last first, when nothing is left that may need them. `unasked` counts those that have not been signalled.
    async fn ask_to_end(
        &self,
        spec: &PodSpec,
        alive: &BTreeMap<String, Made>,
        home: &Home,
        targets: &BTreeMap<String, Target>,
        unasked: &AtomicUsize,
    ) {
        let asked = plan::ends(spec).filter_map(|(container, after)| {
            let name = &container.name;
            let (made, target) = (alive.get(name)?, targets.get(name)?);
            unasked.fetch_add(1, Ordering::Relaxed);
            Some(async move {
                let mut running = self.running.clone();
                pre_stop(container, target).await;
                let is_due = |running: &BTreeMap<String, u32>| {
                    !after.iter().any(|name| running.contains_key(*name))
                };
                let _ = running.wait_for(is_due).await;
                let is_asked = home.shim.kill(name, made.stop_signal).await.is_ok();
                unasked.fetch_sub(1, Ordering::Relaxed);
                if is_asked {
                    let has_ended = |running: &BTreeMap<String, u32>| !running.contains_key(name);
                    let _ = running.wait_for(has_ended).await;
                }
            })
        });
        join_all(asked).await;
    }

    /// Waits for something, but no longer than until the time that `by` tells.
    async fn until(
        &self,
        by: &mut watch::Receiver<Option<Timestamp>>,
        work: impl Future<Output = ()>,
    ) {
        let mut work = std::pin::pin!(work);
        loop {
            let left = self.left(*by.borrow_and_update());
            tokio::select! {
                () = &mut work => return,
                () = tokio::time::sleep(left) => return,
                changed = by.changed() => if changed.is_err() { return },
            }
        }
    }

    fn left(&self, by: Option<Timestamp>) -> Duration {
        let left = by.map(|by| by.duration_since(self.site.clock.now()));
        left.and_then(|left| Duration::try_from(left).ok())
            .unwrap_or_default()
    }

    /// What cannot be taken off the net now is swept at the next start.
    pub(crate) async fn detach(&self) {
        let _ = self.site.ways.detach(&self.uid).await;
    }

    /// Removes every trace of a pod that has ended.
    pub(crate) async fn clean(&self, containers: &[String]) {
        self.site.tenants.remove(&self.uid);
        self.site.events.forget(&self.uid);
        self.detach().await;
        let (lodging, containers) = (self.clone(), containers.to_vec());
        let _alone = self.works.done().await;
        let cleaned = spawn_blocking(move || {
            for name in containers {
                let _ = lodging.site.images.release(&holder(&lodging.uid, &name));
            }
            // what runs on must be found again
            if container::has_shim(&lodging.place.shim()) {
                return Ok(());
            }
            let _ = volumes::memory::remove(&lodging.site.memory(&lodging.uid));
            container::remove_tree(lodging.place.path())
        });
        // what is left is found and removed at the next start
        let _ = cleaned.await;
    }
}

/// Waits for something, but not for longer than it has, and tells how much of its time is left to what comes after it.
async fn left_by(first: impl Future<Output = ()>, time: Duration) -> Duration {
    let begun = tokio::time::Instant::now();
    let _ = timeout(time, first).await;
    time.saturating_sub(begun.elapsed()).max(LEAST)
}

fn is_limited(container: &Container) -> bool {
    let limits = container.resources.as_ref();
    let limits = limits.and_then(|resources| resources.limits.as_ref());
    limits.is_some_and(|limits| limits.contains_key("cpu") || limits.contains_key("memory"))
}

async fn pre_stop(container: &Container, target: &Target) {
    let lifecycle = container.lifecycle.as_ref();
    if let Some(hook) = lifecycle.and_then(|lifecycle| lifecycle.pre_stop.as_ref()) {
        // whatever comes of it, the container ends
        let _ = hooks::run(hook, container, target).await;
    }
}

/// Who holds an image.
pub(crate) fn holder(uid: &str, container: &str) -> String {
    format!("{uid}.{container}")
}

fn image_id(image: &Image) -> String {
    match &image.digest {
        Some(digest) => {
            let name = image.name.split(['@']).next().unwrap_or_default();
            let (repository, tag) = name.rsplit_once(':').unwrap_or((name, ""));
            let repository = if tag.contains('/') { name } else { repository };
            format!("{repository}@{digest}")
        }
        None => image.id.clone(),
    }
}

fn start_trouble(error: container::Error) -> Trouble {
    match error {
        container::Error::Refused(message) => Trouble::config(message),
        error => Trouble::new("RunContainerError", error.to_string()),
    }
}

fn io_error(path: &Path, error: &io::Error) -> String {
    format!("{}: {error}", path.display())
}

pub(crate) fn moment(time: std::time::SystemTime) -> Timestamp {
    Timestamp::try_from(time).unwrap_or_default()
}

#[cfg(test)]
mod tests;
