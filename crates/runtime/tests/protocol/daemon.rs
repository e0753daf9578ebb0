//! A daemon of a test's own, with users of its own.

use std::fs::{self, File, Permissions};
use std::io::{BufRead, BufReader, Lines};
use std::net::SocketAddr;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, getegid, geteuid, kill_process};
use tempfile::TempDir;

use crate::client::PATIENCE;

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_sandbar-runtime");

/// Nobody has this number.
pub(crate) const ORDINARY: u32 = 61_234;

pub(crate) struct Daemon {
    child: Child,
    pid: u32,
    /// Where E2B's protocol is spoken.
    pub(crate) envd: SocketAddr,
    /// Where requests of a test go.
    pub(crate) address: SocketAddr,
    dir: TempDir,
}

impl Daemon {
    pub(crate) fn launch() -> Self {
        Self::launch_by(Command::new(PROGRAM), "127.0.0.1")
    }

    /// Spoken to as agent-sandbox's older runtime.
    pub(crate) fn launch_legacy() -> Self {
        Self::launch_as("legacy", &["--legacy-port", "0"])
    }

    /// Spoken to as agent-sandbox's `sandboxd`, on the second of its ports.
    pub(crate) fn launch_sandboxd() -> Self {
        let ports = ["--sandboxd-port", "0", "--sandboxd-port", "0"];
        Self::launch_as("sandboxd", &ports)
    }

    /// Its root does not exist before.
    fn launch_as(api: &str, ports: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut command = Command::new(PROGRAM);
        command.args(ports).arg(format!("--{api}-root"));
        command.arg(dir.path().join("root"));
        command.env("SANDBOX_TEMPLATE", "small");
        command.env("SANDBOX_API_KEY", "hidden");
        let (mut daemon, lines) = Self::launch_in(dir, command, "127.0.0.1");
        let prefix = format!("{api} on ");
        for line in lines.take(ports.len() / 2) {
            let line = line.unwrap();
            daemon.address = line.strip_prefix(&prefix).unwrap().parse().unwrap();
        }
        daemon
    }

    /// As the first process of a sandbox. Only root can.
    pub(crate) fn launch_first() -> Self {
        let mut unshare = Command::new("unshare");
        unshare.args(["--pid", "--mount-proc", "--fork", "--kill-child", PROGRAM]);
        let mut daemon = Self::launch_by(unshare, "127.0.0.1");
        daemon.pid = child_of(daemon.child.id());
        daemon
    }

    /// As the first process of a sandbox in which there is nothing else: its root is empty but for the program. Only root can.
    pub(crate) fn launch_in_nothing() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        fs::create_dir(&root).unwrap();
        fs::copy(PROGRAM, root.join("program")).unwrap();
        for library in libraries() {
            let copy = root.join(library.strip_prefix("/").unwrap());
            fs::create_dir_all(copy.parent().unwrap()).unwrap();
            fs::copy(&library, copy).unwrap();
        }
        let mut unshare = Command::new("unshare");
        unshare
            .args(["--pid", "--mount", "--fork", "--kill-child", "--root"])
            .args([&*root, Path::new("/program")])
            .stderr(File::create(dir.path().join("complaints")).unwrap());
        let (mut daemon, _) = Self::launch_in(dir, unshare, "127.0.0.1");
        daemon.pid = child_of(daemon.child.id());
        daemon
    }

    /// As a user that no file names, who owns nothing but a home and may not become another. Only root can.
    pub(crate) fn launch_ordinary() -> Self {
        let dir = tempfile::tempdir().unwrap();
        // others may not get to where the program is
        let program = dir.path().join("program");
        fs::copy(PROGRAM, &program).unwrap();
        let complaints = File::create(dir.path().join("complaints")).unwrap();
        let id = ORDINARY.to_string();
        let mut setpriv = Command::new("setpriv");
        setpriv
            .args(["--reuid", &id, "--regid", &id, "--clear-groups"])
            .arg(program)
            .env("HOME", dir.path().join("home"))
            .stderr(complaints);
        let (daemon, _) = Self::launch_in(dir, setpriv, "127.0.0.1");
        for file in ["passwd", "group"] {
            fs::remove_file(daemon.dir.path().join(file)).unwrap();
        }
        chown(daemon.home(), Some(ORDINARY), Some(ORDINARY)).unwrap();
        daemon
    }

    /// What an ordinary one, or one in nothing, has written to its standard error.
    pub(crate) fn complaints(&self) -> String {
        fs::read_to_string(self.dir.path().join("complaints")).unwrap()
    }

    /// Names users from now on.
    pub(crate) fn name_users(&self, passwd: &str) {
        fs::write(self.dir.path().join("passwd"), passwd).unwrap();
    }

    /// By a command that ends with the program, listening on an address.
    pub(crate) fn launch_by(command: Command, host: &str) -> Self {
        Self::launch_in(tempfile::tempdir().unwrap(), command, host).0
    }

    /// With what it says after its first line.
    fn launch_in(
        dir: TempDir,
        mut command: Command,
        host: &str,
    ) -> (Self, Lines<BufReader<ChildStdout>>) {
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        make_users(dir.path());
        let mut child = command
            .args(["--host", host, "--port", "0", "--etc"])
            .arg(dir.path())
            .env("SECRET_OF_THE_DAEMON", "1")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = lines.next().unwrap().unwrap();
        let address = line.strip_prefix("listening on ").unwrap();
        let envd = address.parse().unwrap();
        let daemon = Self {
            pid: child.id(),
            child,
            envd,
            address: envd,
            dir,
        };
        (daemon, lines)
    }

    /// The home of `user`.
    pub(crate) fn home(&self) -> PathBuf {
        self.dir.path().join("home")
    }

    /// A path in the home of `user`, as text.
    pub(crate) fn path(&self, name: &str) -> String {
        self.home().join(name).to_str().unwrap().to_owned()
    }

    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.home().join(name)).unwrap()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// The directory of the APIs that have one.
    pub(crate) fn root(&self) -> PathBuf {
        self.dir.path().join("root")
    }

    /// The most memory that it ever had, in bytes.
    pub(crate) fn peak_memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap();
        let mut lines = status.lines();
        let line = lines.find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        let kilobytes: u64 = line.trim().trim_end_matches(" kB").parse().unwrap();
        kilobytes << 10
    }

    /// How many descriptors it has open.
    pub(crate) fn descriptors(&self) -> usize {
        let open = fs::read_dir(format!("/proc/{}/fd", self.pid));
        open.unwrap().count()
    }

    /// How many directories the kernel watches for it.
    pub(crate) fn watched_directories(&self) -> usize {
        let descriptors = fs::read_dir(format!("/proc/{}/fdinfo", self.pid)).unwrap();
        let watched = descriptors.map(|descriptor| {
            // one that was closed meanwhile watches nothing
            let about = fs::read_to_string(descriptor.unwrap().path()).unwrap_or_default();
            about.matches("inotify wd:").count()
        });
        watched.max().unwrap()
    }

    pub(crate) fn terminate(&mut self) -> std::process::ExitStatus {
        self.tell_to_stop();
        self.child.wait().unwrap()
    }

    pub(crate) fn tell_to_stop(&self) {
        self.signal(Signal::TERM);
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.pid).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Does something while the daemon can do nothing.
    pub(crate) fn while_still(&self, work: impl FnOnce()) {
        self.signal(Signal::STOP);
        wait_until("it stands still", || {
            let threads = fs::read_dir(format!("/proc/{}/task", self.pid)).unwrap();
            let statuses =
                threads.map(|thread| fs::read_to_string(thread.unwrap().path().join("status")));
            { statuses }.all(|status| status.is_ok_and(|status| status.contains("State:\tT")))
        });
        work();
        self.signal(Signal::CONT);
    }

    /// A daemon that died during a test is a failed test.
    pub(crate) fn assert_alive(&mut self) {
        assert_eq!(self.child.try_wait().unwrap(), None, "the daemon has ended");
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // stopped first, so that it starts nothing more; what it has started would outlive it
        let daemon = Pid::from_raw(i32::try_from(self.pid).unwrap()).unwrap();
        let _ = kill_process(daemon, Signal::STOP);
        let children = format!("/proc/{0}/task/{0}/children", self.pid);
        let children = fs::read_to_string(children).unwrap_or_default();
        for child in children.split_whitespace() {
            let child = Pid::from_raw(child.parse().unwrap()).unwrap();
            let _ = kill_process(child, Signal::KILL);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Who `user` is: another one if the tests may become another, else who runs them.
pub(crate) fn user_ids() -> (u32, u32) {
    if geteuid().is_root() {
        (1000, 1000)
    } else {
        (geteuid().as_raw(), getegid().as_raw())
    }
}

fn child_of(pid: u32) -> u32 {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    children.unwrap().trim().parse().unwrap()
}

/// What the program needs to start at all, as tests are not built static.
fn libraries() -> Vec<PathBuf> {
    let listed = Command::new("ldd").arg(PROGRAM).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let paths = listed
        .split_whitespace()
        .filter(|word| word.starts_with('/'));
    paths.map(PathBuf::from).collect()
}

fn make_users(etc: &Path) {
    let (uid, gid) = user_ids();
    let home = etc.join("home");
    fs::create_dir(&home).unwrap();
    chown(&home, Some(uid), Some(gid)).unwrap();
    let passwd = format!(
        "root:x:0:0::/root:/bin/sh\nuser:x:{uid}:{gid}::{}:/bin/sh\n",
        home.display()
    );
    fs::write(etc.join("passwd"), passwd).unwrap();
    let group = format!("root:x:0:\nuser:x:{gid}:\nextra:x:4242:other,user\n");
    fs::write(etc.join("group"), group).unwrap();
}

pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < PATIENCE, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
