//! An instance of the program, and a client of its API. Nothing of it is left when its test ends, however it ends.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Output, Stdio},
    time::{Duration, Instant},
};

use k8s_openapi::{
    NamespaceResourceScope,
    api::core::v1::{ContainerStatus, Event, PersistentVolumeClaim, Pod},
    serde::{Serialize, de::DeserializeOwned},
};
use kube::{
    Api, Client, Config, Resource,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;
use testbed::Image;

/// Long enough also for a machine that is busy with thousands of processes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_sandbar");

pub(crate) struct Instance {
    /// Taken away before the directory that it lies on.
    _disk: Option<Disk>,
    directory: TempDir,
    /// The program, and before it what it is run by.
    launcher: Vec<String>,
    options: Vec<String>,
    process: Option<(Child, BufReader<ChildStdout>)>,
    pub(crate) introduction: String,
    pub(crate) client: Client,
}

impl Instance {
    /// Without a warm pool, unless the options say otherwise.
    pub(crate) async fn start() -> Self {
        Self::with(&["--pool", "0"]).await
    }

    pub(crate) async fn with(options: &[&str]) -> Self {
        Self::within(tempfile::tempdir().unwrap(), None, options).await
    }

    /// Without a warm pool, and with no more than so much space for all that it keeps.
    pub(crate) async fn on_a_small_disk(mebibytes: u32) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let disk = Disk::mount(directory.path(), mebibytes);
        Self::within(directory, Some(disk), &["--pool", "0"]).await
    }

    async fn within(directory: TempDir, disk: Option<Disk>, options: &[&str]) -> Self {
        let launcher = vec![PROGRAM.to_owned()];
        let mut instance = Self::launched(launcher, directory, options).await;
        instance._disk = disk;
        instance
    }

    /// By another program, which is given this one and its arguments.
    pub(crate) async fn launched(
        launcher: Vec<String>,
        directory: TempDir,
        options: &[&str],
    ) -> Self {
        let options: Vec<String> = options.iter().map(|&one| one.to_owned()).collect();
        let (process, introduction) = spawn(&launcher, &data(&directory), &options);
        let client = connect(&data(&directory)).await;
        Self {
            _disk: None,
            directory,
            launcher,
            options,
            process: Some(process),
            introduction,
            client,
        }
    }

    pub(crate) fn data(&self) -> PathBuf {
        data(&self.directory)
    }

    /// Ends the program by a signal, waits until it has, and returns the code that it ended with.
    pub(crate) fn end(&mut self, signal: Signal) -> Option<i32> {
        self.signal(signal);
        let (child, _) = self.process.as_mut()?;
        let start = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            assert!(start.elapsed() < PATIENCE, "{signal:?} never ended it");
            std::thread::sleep(Duration::from_millis(5));
        };
        self.process = None;
        status.code()
    }

    /// The program's process, or that of what it is run by.
    pub(crate) fn pid(&self) -> u32 {
        self.process.as_ref().unwrap().0.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        if let Some((child, _)) = &self.process {
            let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
            let _ = kill_process(pid, signal);
        }
    }

    /// Adds to how the program is started the next time.
    pub(crate) fn options_for_next_start(&mut self, more: &[&str]) {
        self.options.extend(more.iter().map(|&one| one.to_owned()));
    }

    /// Takes the last of them away again.
    pub(crate) fn forget_options(&mut self, count: usize) {
        self.options.truncate(self.options.len() - count);
    }

    /// Starts the program anew, in the same directory.
    pub(crate) async fn start_again(&mut self) {
        let (process, introduction) = spawn(&self.launcher, &self.data(), &self.options);
        self.process = Some(process);
        self.introduction = introduction;
        self.client = connect(&self.data()).await;
    }

    /// Does something with the API of a stopped instance, while nobody looks after its pods.
    pub(crate) async fn without_node(&self, work: impl AsyncFnOnce(Client)) {
        let mut child = Command::new(PROGRAM)
            .args(["api", "--port", "0", "--data-dir"])
            .arg(self.data())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut introduction = String::new();
        while !introduction.contains("ready") {
            assert_ne!(out.read_line(&mut introduction).unwrap(), 0);
        }
        work(connect(&self.data()).await).await;
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        kill_process(pid, Signal::TERM).unwrap();
        child.wait().unwrap();
    }

    /// The program with a subcommand, for this instance.
    pub(crate) fn sandbar(&self, args: &[&str]) -> Output {
        let mut command = command(&self.launcher);
        command.env_remove("KUBECONFIG").arg(args[0]);
        command.arg("--data-dir").arg(self.data()).args(&args[1..]);
        command.output().unwrap()
    }

    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::default_namespaced(self.client.clone())
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        self.api()
    }

    pub(crate) async fn create<K>(&self, object: Value) -> K
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + Serialize
            + DeserializeOwned,
    {
        let object: K = serde_json::from_value(object).unwrap();
        let created = self.api().create(&PostParams::default(), &object).await;
        created.unwrap()
    }

    /// A claim that pods may keep their files by.
    pub(crate) async fn disk(&self, name: &str) {
        let spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
        self.create::<PersistentVolumeClaim>(json!({"metadata": {"name": name}, "spec": spec}))
            .await;
    }

    /// A pod of the built-in image with one container `main` that runs a script.
    pub(crate) async fn run(&self, name: &str, script: &str) -> Pod {
        self.pod(name, json!({"containers": [sh("main", script)]}))
            .await
    }

    pub(crate) async fn pod(&self, name: &str, mut spec: Value) -> Pod {
        if spec.get("terminationGracePeriodSeconds").is_none() {
            spec["terminationGracePeriodSeconds"] = json!(1);
        }
        let meta = json!({"name": name, "labels": {"name": name}});
        self.create(json!({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}))
            .await
    }

    /// Waits until a pod is as it is asked to be, and says in the end how it was.
    pub(crate) async fn until(&self, name: &str, what: &str, holds: impl Fn(&Pod) -> bool) -> Pod {
        let start = Instant::now();
        loop {
            let pod = self.pods().get(name).await.unwrap();
            if holds(&pod) {
                return pod;
            }
            let status = serde_json::to_string_pretty(&pod.status).unwrap();
            assert!(start.elapsed() < PATIENCE, "{name} never {what}: {status}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub(crate) async fn ready(&self, name: &str) -> Pod {
        self.until(name, "became ready", is_ready).await
    }

    pub(crate) async fn phase(&self, name: &str, phase: &str) -> Pod {
        let is = |pod: &Pod| pod.status.as_ref().unwrap().phase.as_deref() == Some(phase);
        self.until(name, &format!("became {phase}"), is).await
    }

    /// Waits until something has been said for this reason, of whichever object.
    pub(crate) async fn event(&self, reason: &str) {
        eventually(&format!("an event says {reason}"), async || {
            let told = self.api::<Event>().list(&ListParams::default()).await;
            let mut all = told.unwrap().items.into_iter();
            all.any(|event| event.reason.as_deref() == Some(reason))
        })
        .await;
    }

    pub(crate) async fn delete(&self, name: &str) {
        self.pods()
            .delete(name, &DeleteParams::default())
            .await
            .unwrap();
        self.gone(name).await;
    }

    pub(crate) async fn gone(&self, name: &str) {
        eventually(&format!("{name} is gone"), async || {
            self.pods().get_opt(name).await.unwrap().is_none()
        })
        .await;
    }

    pub(crate) async fn patch(&self, name: &str, subresource: Option<&str>, patch: Value) {
        let (pods, patch) = (self.pods(), Patch::Strategic(patch));
        let params = PatchParams::default();
        match subresource {
            None => pods.patch(name, &params, &patch).await.unwrap(),
            Some(part) => pods
                .patch_subresource(part, name, &params, &patch)
                .await
                .unwrap(),
        };
    }

    /// What a container has said.
    pub(crate) async fn logs(&self, name: &str) -> String {
        self.pods()
            .logs(name, &kube::api::LogParams::default())
            .await
            .unwrap()
    }

    pub(crate) async fn says(&self, name: &str, text: &str) -> String {
        let start = Instant::now();
        loop {
            let said = self
                .pods()
                .logs(name, &kube::api::LogParams::default())
                .await;
            if said.as_ref().is_ok_and(|said| said.contains(text)) {
                return said.unwrap();
            }
            assert!(
                start.elapsed() < PATIENCE,
                "{name} never said {text:?}: {said:?}"
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// What a command in a pod prints, and how it ends.
    pub(crate) fn exec(&self, pod: &str, command: &[&str]) -> (String, i32) {
        let mut args = vec!["exec", pod, "--"];
        args.extend(command);
        let output = self.sandbar(&args);
        let text = String::from_utf8(output.stdout).unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        (text + &error, output.status.code().unwrap_or(-1))
    }

    /// Takes an image that has a shell of this machine and a file `/version`.
    pub(crate) fn import(&self, name: &str, version: &str) {
        let file = self.directory.path().join("image.tar");
        let mut image = Image::empty(name).file("/version", 0o644, format!("{version}\n"));
        for (path, bytes) in shell() {
            image = image.file(&path, 0o755, bytes);
        }
        image
            .command(&[
                "/bin/sh",
                "-c",
                "trap 'exit 0' TERM; cat /version; while :; do sleep 1; done",
            ])
            .write(&file)
            .unwrap();
        let output = Command::new(PROGRAM)
            .args(["image", "import", file.to_str().unwrap(), "--data-dir"])
            .arg(self.data())
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
    }

    /// Processes of this machine that belong to the instance's pods or are it.
    pub(crate) fn processes(&self) -> Vec<u32> {
        processes_of(&self.data())
    }

    /// Where the volumes in memory of its pods are.
    pub(crate) fn memory(&self) -> PathBuf {
        Path::new("/dev/shm").join(cgroup_of(self.data().to_str().unwrap()))
    }

    pub(crate) fn cgroups(&self) -> Vec<PathBuf> {
        let name = cgroup_of(self.data().to_str().unwrap());
        let mut all = vec![Path::new("/sys/fs/cgroup").join(&name)];
        let hierarchies = fs::read_dir("/sys/fs/cgroup").unwrap().flatten();
        all.extend(hierarchies.map(|hierarchy| hierarchy.path().join(&name)));
        all.retain(|path| path.exists());
        all
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        self.end(Signal::KILL);
        let down = command(&self.launcher)
            .args(["down", "--data-dir"])
            .arg(self.data())
            .output();
        if !std::thread::panicking() {
            let down = down.unwrap();
            assert!(down.status.success(), "{down:?}");
        }
    }
}

/// A file system of its own, in memory.
struct Disk(PathBuf);

impl Disk {
    fn mount(at: &Path, mebibytes: u32) -> Self {
        let size = format!("size={mebibytes}m,mode=755");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(at);
        assert!(mount.status().unwrap().success());
        Self(at.to_owned())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // lazily: what still lies on it goes with it
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

/// Processes of this machine that belong to the pods of a data directory or serve it.
pub(crate) fn processes_of(data: &Path) -> Vec<u32> {
    let own = data.to_str().unwrap();
    let cgroup = cgroup_of(own);
    let numbers = fs::read_dir("/proc").unwrap().flatten();
    let numbers = numbers.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers
        .filter(|pid: &u32| {
            let read = |file| fs::read_to_string(format!("/proc/{pid}/{file}"));
            let is_in_cgroup = read("cgroup").is_ok_and(|text| text.contains(&cgroup));
            let is_named = read("cmdline").is_ok_and(|text| text.contains(own));
            let marks = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            let is_marked = String::from_utf8_lossy(&marks).contains(own);
            is_in_cgroup || is_named || is_marked
        })
        .collect()
}

/// As the program derives it from its data directory.
fn cgroup_of(data: &str) -> String {
    let node = format!("{data}/node");
    let output = Command::new("sh")
        .args([
            "-c",
            "printf %s \"$1\" | sha256sum | cut -c-12",
            "sh",
            &node,
        ])
        .output()
        .unwrap();
    format!(
        "sandbar-{}",
        String::from_utf8(output.stdout).unwrap().trim()
    )
}

/// As the program spells it, which follows links.
fn data(directory: &TempDir) -> PathBuf {
    directory.path().canonicalize().unwrap().join("data")
}

pub(crate) fn command(launcher: &[String]) -> Command {
    let mut command = Command::new(&launcher[0]);
    command.args(&launcher[1..]);
    command
}

fn spawn(
    launcher: &[String],
    data: &Path,
    options: &[String],
) -> ((Child, BufReader<ChildStdout>), String) {
    let mut child = command(launcher)
        .args(["up", "--port", "0", "--data-dir"])
        .arg(data)
        .args(options)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut introduction = String::new();
    while !introduction.contains("ready") {
        assert_ne!(
            out.read_line(&mut introduction).unwrap(),
            0,
            "it ended after {introduction:?}"
        );
    }
    ((child, out), introduction)
}

async fn connect(data: &Path) -> Client {
    let kubeconfig = Kubeconfig::read_from(data.join("kubeconfig")).unwrap();
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .unwrap();
    Client::try_from(config).unwrap()
}

/// Held by whoever has thousands of processes: two at once are more than a small machine bears.
pub(crate) static CROWD: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// A shell and what it needs, as files of an image.
pub(crate) fn shell() -> Vec<(String, Vec<u8>)> {
    let programs = [
        "/bin/sh",
        "/bin/cat",
        "/bin/sleep",
        "/bin/test",
        "/bin/touch",
    ];
    let output = Command::new("ldd").args(programs).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let words = text.split_whitespace().filter(|word| word.starts_with('/'));
    let mut paths: Vec<String> = words
        .map(|word| word.trim_end_matches(':').to_owned())
        .collect();
    paths.extend(programs.map(str::to_owned));
    paths.sort();
    paths.dedup();
    paths
        .into_iter()
        .map(|path| (path.clone(), fs::read(path).unwrap()))
        .collect()
}

pub(crate) fn sh(name: &str, script: &str) -> Value {
    json!({"name": name, "image": "sandbar/base", "command": ["sh", "-c", script]})
}

/// The same container, ready once there is a file `/tmp/ready` in it.
pub(crate) fn ready_by_file(mut one: Value) -> Value {
    one["readinessProbe"] = json!({
        "exec": {"command": ["test", "-e", "/tmp/ready"]},
        "periodSeconds": 1, "failureThreshold": 1, "timeoutSeconds": 60,
    });
    one
}

pub(crate) fn is_ready(pod: &Pod) -> bool {
    let status = pod.status.as_ref().unwrap();
    let mut conditions = status.conditions.iter().flatten();
    conditions.any(|one| one.type_ == "Ready" && one.status == "True")
}

/// The status of a container, as it is before anything is known of it if nothing is.
pub(crate) fn container(pod: &Pod, name: &str) -> ContainerStatus {
    let status = pod.status.clone().unwrap_or_default();
    let inits = status.init_container_statuses.into_iter().flatten();
    let mut all = inits.chain(status.container_statuses.into_iter().flatten());
    all.find(|one| one.name == name).unwrap_or_default()
}

pub(crate) fn exit_code(pod: &Pod, name: &str) -> Option<i32> {
    Some(container(pod, name).state?.terminated?.exit_code)
}

pub(crate) fn ip(pod: &Pod) -> String {
    pod.status.as_ref().unwrap().pod_ip.clone().unwrap()
}

pub(crate) async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let start = Instant::now();
    while !holds().await {
        assert!(start.elapsed() < PATIENCE, "never: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
