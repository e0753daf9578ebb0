//! `sandbar api` as a user runs it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpListener,
    os::fd::AsFd,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Output, Stdio},
    time::Duration,
};

use http::Request;
use kube::config::{KubeConfigOptions, Kubeconfig};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use tempfile::TempDir;

fn api(directory: &Path, port: &str, more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sandbar"));
    command
        .args(["api", "--port", port, "--data-dir"])
        .arg(directory)
        .args(more)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// A server that has said it is ready; killed with the test.
struct Api {
    child: Child,
    stdout: BufReader<Box<dyn Read>>,
    /// What it said until then.
    lines: Vec<String>,
}

impl Api {
    fn start(directory: &Path, more: &[&str]) -> Api {
        let mut child = api(directory, "0", more).spawn().unwrap();
        let stdout = child.stdout.take().unwrap();
        Api::ready(child, stdout)
    }

    fn ready(mut child: Child, stdout: impl Read + 'static) -> Api {
        let mut stdout = BufReader::new(Box::new(stdout) as Box<dyn Read>);
        let mut lines = Vec::new();
        while lines.last().is_none_or(|line| line != "ready") {
            let mut line = String::new();
            if stdout.read_line(&mut line).unwrap() == 0 {
                let mut error = String::new();
                let mut stderr = child.stderr.take().unwrap();
                stderr.read_to_string(&mut error).unwrap();
                panic!("not ready: {error}");
            }
            lines.push(line.trim_end().to_owned());
        }
        Api {
            child,
            stdout,
            lines,
        }
    }

    /// The rest of the line that begins so.
    fn said(&self, label: &str) -> &str {
        let mut rests = self.lines.iter().map(|line| line.strip_prefix(label));
        rests.find_map(|rest| rest).unwrap().trim()
    }

    fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &id]).status();
        assert!(sent.unwrap().success());
    }

    /// What it says from now on.
    fn wait(&mut self) -> (ExitStatus, String) {
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest).unwrap();
        (self.child.wait().unwrap(), rest)
    }
}

impl Drop for Api {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn refused(mut command: Command) -> String {
    let Output { status, stderr, .. } = command.output().unwrap();
    assert_eq!(status.code(), Some(1));
    String::from_utf8(stderr).unwrap()
}

#[tokio::main(flavor = "current_thread")]
async fn health(kubeconfig: &Path) -> String {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).unwrap();
    let options = KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options);
    let client = kube::Client::try_from(config.await.unwrap()).unwrap();
    let request = Request::get("/healthz").body(Vec::new()).unwrap();
    client.request_text(request).await.unwrap()
}

#[test]
fn it_says_where_it_is_and_stops_when_told_to() {
    for signal in ["TERM", "INT"] {
        let directory = TempDir::new().unwrap();
        let mut api = Api::start(directory.path(), &[]);
        let kubeconfig = PathBuf::from(api.said("kubeconfig:"));
        assert_eq!(kubeconfig, directory.path().join("kubeconfig"));
        let try_this = format!(
            "kubectl --kubeconfig {} get namespaces",
            kubeconfig.display()
        );
        assert_eq!(api.said("try:"), try_this);
        assert_eq!(health(&kubeconfig), "ok");
        assert_eq!(health(Path::new(api.said("read only:"))), "ok");
        api.signal(signal);
        let (status, rest) = api.wait();
        assert!(status.success(), "{status}");
        assert!(rest.starts_with("stopping"), "{rest}");
    }
}

#[test]
fn a_kill_leaves_a_directory_that_the_next_can_use() {
    let directory = TempDir::new().unwrap();
    let mut tokens = Vec::new();
    for _ in 0..3 {
        let mut api = Api::start(directory.path(), &[]);
        tokens.push(std::fs::read_to_string(directory.path().join("tokens/admin")).unwrap());
        assert_eq!(health(Path::new(api.said("kubeconfig:"))), "ok");
        api.child.kill().unwrap();
        api.child.wait().unwrap();
    }
    assert!(tokens.iter().all(|token| *token == tokens[0]));
}

#[test]
fn an_ephemeral_one_stores_no_objects() {
    let directory = TempDir::new().unwrap();
    let api = Api::start(directory.path(), &["--ephemeral"]);
    assert!(api.said("objects:").contains("in memory"));
    let stored = std::fs::read_dir(directory.path().join("store")).unwrap();
    assert_eq!(stored.count(), 0);
}

/// Writes until a pipe takes no more.
fn fill(pipe: &impl AsFd) {
    let wait = fcntl_getfl(pipe).unwrap();
    fcntl_setfl(pipe, wait | OFlags::NONBLOCK).unwrap();
    while rustix::io::write(pipe, &[b'\n'; 4096]).is_ok() {}
    fcntl_setfl(pipe, wait).unwrap();
}

/// It is kept from stopping by an output that nobody reads.
#[test]
fn a_second_signal_stops_it_at_once() {
    let directory = TempDir::new().unwrap();
    let (output, mut input) = std::io::pipe().unwrap();
    let mut command = api(directory.path(), "0", &[]);
    let child = command.stdout(input.try_clone().unwrap()).spawn().unwrap();
    let mut api = Api::ready(child, output);
    fill(&input);
    std::thread::spawn(move || while input.write_all(&[b'\n'; 4096]).is_ok() {});
    api.signal("INT");
    std::thread::sleep(Duration::from_millis(200));
    assert!(api.child.try_wait().unwrap().is_none());
    // two that come before the first was heard are one
    let status = loop {
        api.signal("INT");
        std::thread::sleep(Duration::from_millis(200));
        if let Some(status) = api.child.try_wait().unwrap() {
            break status;
        }
    };
    assert_eq!(status.code(), Some(130));
}

#[test]
fn a_port_in_use_is_named_with_the_remedy() {
    let directory = TempDir::new().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let error = refused(api(directory.path(), &port, &[]));
    assert_eq!(
        error,
        format!(
            "sandbar: port {port} of 127.0.0.1 is in use: choose another with --port, or any \
             free one with --port 0\n"
        )
    );
}

#[test]
fn a_directory_in_use_is_named_with_its_process() {
    let directory = TempDir::new().unwrap();
    for more in [[].as_slice(), &["--ephemeral"]] {
        let first = Api::start(directory.path(), more);
        let error = refused(api(directory.path(), "0", more));
        let said = format!(
            "sandbar: the data directory {} is in use by process {}: stop it, or choose another \
             directory with --data-dir\n",
            directory.path().display(),
            first.child.id(),
        );
        assert_eq!(error, said);
    }
}

#[test]
fn a_directory_that_cannot_be_made_is_named() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let error = refused(api(file.path(), "0", &[]));
    let path = file.path().display();
    let start = format!("sandbar: cannot use {path} as the data directory: ");
    assert!(error.starts_with(&start), "{error}");
    assert!(
        error.ends_with("choose another with --data-dir\n"),
        "{error}"
    );
}

#[test]
fn an_address_of_another_machine_is_refused() {
    let directory = TempDir::new().unwrap();
    let error = refused(api(directory.path(), "0", &["--listen", "192.0.2.1"]));
    assert!(
        error.contains("192.0.2.1 is no address of this machine"),
        "{error}"
    );
}

#[test]
fn its_help_names_the_defaults() {
    let mut help = Command::new(env!("CARGO_BIN_EXE_sandbar"));
    let help = help.args(["api", "--help"]).output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    for default in ["~/.sandbar", "7443", "127.0.0.1"] {
        assert!(help.contains(&format!("[default: {default}]")), "{help}");
    }
}
