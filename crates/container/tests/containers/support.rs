//! Pods that leave nothing behind, however their test ends.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use container::{
    ContainerSettings, ContainerState, Event, Exec, ExecSettings, Exit, Helper, IdMap, Overlay,
    Pod, PodSettings, Root, UserNamespace, remains, sweep,
};
use rustix::fs::{Mode, OFlags};
use tempfile::TempDir;
use tokio::io::AsyncReadExt;
use tokio::sync::Mutex;

/// Who root of a pod with users of its own is outside.
pub(crate) const FIRST: u32 = 0x7fff_0000;

/// A helper, a directory and a cgroup of one test.
pub(crate) struct Machine {
    pub(crate) helper: Option<Helper>,
    pub(crate) dir: TempDir,
    pub(crate) cgroup: String,
    pods: Vec<PathBuf>,
}

pub(crate) fn helper_program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_container-helper"))
}

/// Removes the file of a helper, as who puts another one in its place does, and runs what was opened before.
pub(crate) fn helper_without_a_file(program: &Path) -> Helper {
    let opened = fs::File::open(program).unwrap();
    fs::remove_file(program).unwrap();
    let path = format!("/proc/self/fd/{}", opened.as_raw_fd());
    Helper::spawn(Command::new(path)).unwrap()
}

impl Machine {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let name = dir.path().file_name().unwrap().to_string_lossy();
        let cgroup = format!("sandbar-test{}", name.replace('.', "-"));
        make_layer(&dir.path().join("layer"));
        Self {
            helper: Some(Helper::spawn(Command::new(helper_program())).unwrap()),
            dir,
            cgroup,
            pods: Vec::new(),
        }
    }

    pub(crate) fn pod_settings(&mut self, name: &str) -> PodSettings {
        let dir = self.dir.path().join(name);
        fs::create_dir(&dir).unwrap();
        self.pods.push(dir.clone());
        PodSettings {
            dir,
            hostname: name.to_owned(),
            cgroup_parent: self.cgroup.clone(),
            cgroup: format!("pod-{name}"),
            user_namespace: None,
            first: None,
            isolated: true,
            sysctls: BTreeMap::new(),
        }
    }

    pub(crate) async fn pod(&mut self, name: &str) -> Pod {
        let settings = self.pod_settings(name);
        let helper = self.helper.as_ref().unwrap();
        helper.start_pod(&settings).await.unwrap()
    }

    /// One whose users are nobody outside of it.
    pub(crate) async fn own_users(&mut self, name: &str) -> Pod {
        let mut settings = self.pod_settings(name);
        settings.user_namespace = Some(own_users());
        let helper = self.helper.as_ref().unwrap();
        helper.start_pod(&settings).await.unwrap()
    }

    pub(crate) fn log(&self, name: &str) -> PathBuf {
        self.dir.path().join(format!("{name}.log"))
    }

    /// A container that runs a script on the host's programs.
    pub(crate) fn sh(&self, name: &str, script: &str) -> ContainerSettings {
        self.command(name, &["/bin/sh", "-c", script])
    }

    pub(crate) fn command(&self, name: &str, args: &[&str]) -> ContainerSettings {
        let root = Root {
            layers: vec![self.dir.path().join("layer")],
            read_only: false,
        };
        let args = args.iter().map(|&a| a.to_owned()).collect();
        let mut settings = ContainerSettings::new(name, root, args, self.log(name));
        settings.overlays = vec![Overlay {
            destination: "/usr".into(),
            layers: vec!["/usr".into()],
            read_only: true,
        }];
        settings
    }

    /// What the container said, without times and marks.
    pub(crate) fn said(&self, name: &str) -> String {
        text_of(&fs::read_to_string(self.log(name)).unwrap())
    }

    /// No process, mount or cgroup of this test is left once the helper has ended.
    pub(crate) async fn assert_nothing_left(&mut self) {
        self.helper = None;
        eventually("all cgroups are gone", || self.cgroups().is_empty()).await;
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let own = self.dir.path().to_string_lossy();
        let left: Vec<&str> = mounts.lines().filter(|l| l.contains(&*own)).collect();
        assert_eq!(left, Vec::<&str>::new());
    }

    /// The test's cgroups, with whatever is in them.
    pub(crate) fn cgroups(&self) -> Vec<PathBuf> {
        let hierarchies = fs::read_dir("/sys/fs/cgroup").unwrap().flatten();
        let own = hierarchies.map(|h| h.path().join(&self.cgroup));
        own.filter(|dir| dir.exists()).collect()
    }

    pub(crate) fn cgroup_file(
        &self,
        controller: &str,
        pod: &str,
        container: &str,
        file: &str,
    ) -> String {
        let path = Path::new("/sys/fs/cgroup")
            .join(controller)
            .join(&self.cgroup)
            .join(format!("pod-{pod}"))
            .join(container)
            .join(file);
        fs::read_to_string(&path)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
            .trim()
            .to_owned()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.helper = None;
        self.pods.iter().for_each(|dir| end(dir));
    }
}

/// Ends what a test has left of a pod.
pub(crate) fn end(dir: &Path) {
    let record = fs::read_to_string(dir.join("shim.json")).unwrap_or_default();
    let pid = record
        .split("\"pid\":")
        .nth(1)
        .and_then(|r| r.split(',').next());
    if let (true, Some(pid)) = (remains(dir).shim_alive, pid) {
        let _ = Command::new("kill").args(["-9", pid]).status();
        while remains(dir).shim_alive {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    if let Err(error) = sweep(dir) {
        eprintln!("{error}");
    }
}

/// A root file system that takes its programs from the host.
pub(crate) fn make_layer(layer: &Path) {
    for dir in ["usr", "tmp", "etc", "root", "proc", "dev", "sys"] {
        fs::create_dir_all(layer.join(dir)).unwrap();
    }
    fs::set_permissions(layer.join("tmp"), PermissionsExt::from_mode(0o1777)).unwrap();
    for link in ["bin", "sbin", "lib", "lib64"] {
        if Path::new("/").join(link).is_symlink() {
            symlink(format!("usr/{link}"), layer.join(link)).unwrap();
        }
    }
    fs::write(
        layer.join("etc/passwd"),
        "root:x:0:0::/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\n",
    )
    .unwrap();
    fs::write(layer.join("etc/group"), "root:x:0:\nuser:x:1000:\n").unwrap();
}

/// Starts a container and waits for its end.
pub(crate) async fn run(pod: &Pod, settings: &ContainerSettings) -> Exit {
    let mut events = pod.events();
    pod.start(settings).await.unwrap();
    ended(&mut events, &settings.name).await.exit.unwrap()
}

pub(crate) async fn ended(events: &mut container::Events, name: &str) -> ContainerState {
    loop {
        match events.next().await {
            Some(Event::Exited(state)) if state.name == name => return state,
            Some(_) => {}
            None => panic!("the shim is gone before {name} ended"),
        }
    }
}

/// Runs a command to its end: what it said on both streams, and how it ended.
pub(crate) async fn command(pod: &Pod, name: &str, args: &[&str]) -> (String, String, Exit) {
    let settings = ExecSettings {
        args: args.iter().map(|&a| a.to_owned()).collect(),
        ..ExecSettings::default()
    };
    let exec = pod.exec(name, &settings).await.unwrap();
    finish(exec).await
}

pub(crate) async fn finish(mut exec: Exec) -> (String, String, Exit) {
    exec.streams.stdin = None;
    let mut texts = [Vec::new(), Vec::new()];
    if let Some(mut stdout) = exec.streams.stdout.take() {
        stdout.read_to_end(&mut texts[0]).await.unwrap();
    }
    if let Some(mut stderr) = exec.streams.stderr.take() {
        stderr.read_to_end(&mut texts[1]).await.unwrap();
    }
    let [stdout, stderr] = texts.map(|t| String::from_utf8(t).unwrap());
    (stdout, stderr, exec.wait().await.unwrap())
}

/// Waits for something that happens soon.
pub(crate) async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..12_000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("it never came to be that {what}");
}

/// A log's own words: lines without time, stream and mark; pieces of lines put together.
pub(crate) fn text_of(log: &str) -> String {
    let mut text = String::new();
    for line in log.split_terminator('\n') {
        let mut parts = line.splitn(4, ' ').skip(2);
        let (mark, words) = (parts.next().unwrap(), parts.next().unwrap());
        text.push_str(words);
        if mark == "F" {
            text.push('\n');
        }
    }
    text
}

/// Ends a pod and its helper, and then does what a container would do with the file of the program that enters it, with more
/// rights than a container has. The helper must be the only one of its file.
pub(crate) async fn assert_sealed(pod: Pod, helper: Helper) {
    let exe = format!("/proc/{}/exe", pod.pid());
    let held = rustix::fs::open(exe, OFlags::PATH, Mode::empty()).unwrap();
    pod.stop(&[], Duration::ZERO).await.unwrap();
    drop(helper);
    let held = format!("/proc/self/fd/{}", held.as_raw_fd());
    let mut answer = None;
    eventually("nobody runs the program any more", || {
        let opened = fs::OpenOptions::new().write(true).open(&held);
        answer = opened.err().and_then(|e| e.raw_os_error());
        answer != Some(libc::ETXTBSY)
    })
    .await;
    assert_eq!(answer, Some(libc::EROFS));
}

/// A program that attacks all who enter its container.
pub(crate) const SEIZE: &str = include_str!("seize.py");

/// A command that is long in coming: it is looked for in many places, by a process that is in the container already.
pub(crate) fn newcomer() -> ExecSettings {
    ExecSettings {
        args: vec!["true".to_owned()],
        env: vec![format!("PATH={}/usr/bin", "/none:".repeat(2000))],
        ..ExecSettings::default()
    }
}

/// Held by who hunts: it takes a whole processor, which tests beside it need as well.
pub(crate) static HUNT: Mutex<()> = Mutex::const_new(());

/// Lets others enter a container whose program is [`SEIZE`] until it has tried enough of them. It must get hold of none.
pub(crate) async fn assert_newcomers_are_safe(pod: &Pod, hunter: ContainerSettings) {
    let _alone = HUNT.lock().await;
    let mut events = pod.events();
    pod.start(&hunter).await.unwrap();
    let newcomer = newcomer();
    let said = || text_of(&fs::read_to_string(&hunter.log).unwrap());
    for _ in 0..50 {
        let enter = || async { finish(pod.exec(&hunter.name, &newcomer).await.unwrap()).await };
        tokio::join!(enter(), enter(), enter(), enter());
        if !said().is_empty() {
            break;
        }
    }
    command(pod, &hunter.name, &["touch", "/tmp/enough"]).await;
    ended(&mut events, &hunter.name).await;
    let said = said();
    let tried = said.strip_prefix("tried ").map(|n| n.trim().parse::<u32>());
    assert!(matches!(tried, Some(Ok(1..))), "{said}");
}

/// Users that are nobody outside.
pub(crate) fn own_users() -> UserNamespace {
    let map = vec![IdMap {
        inside: 0,
        outside: FIRST,
        count: 1000,
    }];
    UserNamespace {
        uids: map.clone(),
        gids: map,
    }
}
