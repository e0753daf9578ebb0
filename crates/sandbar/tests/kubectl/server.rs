//! `sandbar api` and a user of kubectl.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    sync::{
        Arc, LazyLock, Mutex, PoisonError, Weak,
        atomic::{AtomicU32, Ordering},
    },
};

use serde_json::Value;
use tempfile::TempDir;

static KUBECTL: LazyLock<PathBuf> = LazyLock::new(|| testbed::kubectl().unwrap());

/// Where kubectl finds this program as a plugin.
const PLUGINS: &str = "plugins";
pub(crate) const REPOSITORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// A running server. It is killed with the last that uses it.
pub(crate) struct Server {
    child: Child,
    directory: Arc<TempDir>,
}

impl Server {
    /// One that nobody else uses, with nothing in it.
    pub(crate) fn own() -> Arc<Self> {
        let directory = TempDir::new().unwrap();
        let plugins = directory.path().join(PLUGINS);
        std::fs::create_dir(&plugins).unwrap();
        let program = env!("CARGO_BIN_EXE_sandbar");
        std::os::unix::fs::symlink(program, plugins.join("kubectl-sandbar")).unwrap();
        Arc::new(Self::start(Arc::new(directory)))
    }

    /// One with all our kinds, for tests that keep to a namespace of their own.
    fn shared() -> Arc<Self> {
        static SHARED: Mutex<Weak<Server>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(server) = shared.upgrade() {
            return server;
        }
        let server = Self::own();
        let admin = User::new(&server, "kubeconfig", "default");
        admin.does(&format!("apply -f {REPOSITORY}/deploy/crds"));
        admin.does("wait --for=condition=Established crd --all --timeout=30s");
        *shared = Arc::downgrade(&server);
        server
    }

    fn start(directory: Arc<TempDir>) -> Self {
        std::fs::create_dir_all(directory.path().join("home")).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_sandbar"))
            .args(["api", "--port", "0", "--data-dir"])
            .arg(directory.path().join("data"))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap() == "ready"), "it has ended");
        Self { child, directory }
    }

    /// Stops as Ctrl-C does, and starts again with the same data.
    pub(crate) fn restarted(mut self: Arc<Self>) -> Arc<Self> {
        let server = Arc::get_mut(&mut self).unwrap();
        let id = server.child.id().to_string();
        let sent = Command::new("kill").args(["-s", "INT", &id]).status();
        assert!(sent.unwrap().success());
        assert!(server.child.wait().unwrap().success());
        Arc::new(Self::start(Arc::clone(&server.directory)))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Someone who types kubectl commands, in a namespace.
pub(crate) struct User {
    server: Arc<Server>,
    kubeconfig: PathBuf,
    pub(crate) namespace: String,
    editor: String,
}

impl User {
    pub(crate) fn new(server: &Arc<Server>, kubeconfig: &str, namespace: &str) -> Self {
        Self {
            server: Arc::clone(server),
            kubeconfig: server.path("data").join(kubeconfig),
            namespace: namespace.to_owned(),
            editor: String::new(),
        }
    }

    /// Someone who may do everything, in a fresh namespace of the shared server.
    pub(crate) fn admin() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("test-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let admin = Self::new(&Server::shared(), "kubeconfig", &name);
        admin.in_new_namespace()
    }

    pub(crate) fn in_new_namespace(self) -> Self {
        let namespace = &self.namespace;
        let manifest =
            format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {namespace}}}}}");
        self.does_with(&manifest, "create -f -");
        self.does("wait --for=create serviceaccount/default --timeout=20s");
        self
    }

    /// Someone who may only read, in the same namespace.
    pub(crate) fn viewer(&self) -> Self {
        Self::new(&self.server, "kubeconfig-viewer", &self.namespace)
    }

    /// The same user, whose editor makes this change with sed.
    pub(crate) fn editing(&self, change: &str) -> Self {
        let user = Self::new(&self.server, "kubeconfig", &self.namespace);
        Self {
            editor: format!("sed -i {change}"),
            ..user
        }
    }

    fn command(&self, line: &str) -> Command {
        let home = self.server.path("home");
        let plugins = self.server.path(PLUGINS);
        let path = format!("{}:{}", plugins.display(), std::env::var("PATH").unwrap());
        let mut command = Command::new(&*KUBECTL);
        command
            .args(words(line))
            .arg(format!("--namespace={}", self.namespace))
            .env("KUBECONFIG", &self.kubeconfig)
            .env("KUBECACHEDIR", home.join("cache"))
            .env("HOME", &home)
            .env("PATH", path)
            .env("KUBE_EDITOR", &self.editor)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// What a command prints. Single quotes keep words together, as in a shell.
    pub(crate) fn does(&self, line: &str) -> String {
        self.does_with("", line)
    }

    /// The same with a manifest on standard input.
    pub(crate) fn does_with(&self, input: &str, line: &str) -> String {
        let (ok, stdout, stderr) = self.run(input, line);
        assert!(ok, "{line}: {stdout}{stderr}");
        stdout
    }

    /// What a command complains of that does not succeed.
    pub(crate) fn fails(&self, line: &str) -> String {
        self.fails_with("", line)
    }

    pub(crate) fn fails_with(&self, input: &str, line: &str) -> String {
        let (ok, stdout, stderr) = self.run(input, line);
        assert!(!ok, "{line}: {stdout}");
        stderr
    }

    /// Success, output and complaints of a command.
    pub(crate) fn run(&self, input: &str, line: &str) -> (bool, String, String) {
        let mut child = self.command(line).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        // what fails early does not read its input
        let _ = stdin.write_all(input.as_bytes());
        drop(stdin);
        let output = child.wait_with_output().unwrap();
        (
            output.status.success(),
            String::from_utf8(output.stdout).unwrap(),
            String::from_utf8(output.stderr).unwrap(),
        )
    }

    /// An object, or what else a command prints as JSON.
    pub(crate) fn sees(&self, what: &str) -> Value {
        serde_json::from_str(&self.does(&format!("get {what} -o json"))).unwrap()
    }

    /// The rows of a table, with one space between cells.
    pub(crate) fn rows(&self, line: &str) -> Vec<String> {
        let table = self.does(line);
        let rows = table.lines().map(|row| {
            let cells: Vec<&str> = row.split_whitespace().collect();
            cells.join(" ")
        });
        rows.collect()
    }

    /// Follows a command that goes on until it is dropped.
    pub(crate) fn follows(&self, line: &str) -> Follower {
        let mut child = self.command(line).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Follower { child, stdout }
    }
}

pub(crate) struct Follower {
    child: Child,
    stdout: BufReader<ChildStdout>,
}

impl Follower {
    /// The next line, with one space between cells.
    pub(crate) fn next(&mut self) -> String {
        let mut line = String::new();
        assert_ne!(self.stdout.read_line(&mut line).unwrap(), 0, "it has ended");
        let cells: Vec<&str> = line.split_whitespace().collect();
        cells.join(" ")
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn words(line: &str) -> Vec<&str> {
    let mut words = Vec::new();
    for (at, part) in line.split('\'').enumerate() {
        match at % 2 {
            0 => words.extend(part.split_whitespace()),
            _ => words.push(part),
        }
    }
    words
}

/// How many manifests a directory of the repository has.
pub(crate) fn manifests(directory: &str) -> usize {
    let files = std::fs::read_dir(Path::new(REPOSITORY).join(directory)).unwrap();
    files.count()
}
