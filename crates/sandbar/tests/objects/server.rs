//! `sandbar api` and somebody who has nothing but `sandbar`.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    path::PathBuf,
    process::{Child, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::Value;
use tempfile::TempDir;

/// A server with nothing in it, and its only user. It is killed with the test.
pub(crate) struct User {
    server: Child,
    directory: TempDir,
}

/// How a command ended and what it said.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// What was said on standard error, but for what a busy machine alone makes it say.
pub(crate) fn patient(said: &str) -> String {
    let lines = said.split_inclusive('\n');
    let lines = lines.filter(|line| !line.starts_with("waiting for an answer from "));
    lines.collect()
}

impl User {
    pub(crate) fn new() -> Self {
        let directory = TempDir::new().unwrap();
        let mut server = Command::new(env!("CARGO_BIN_EXE_sandbar"))
            .args(["api", "--ephemeral", "--port", "0", "--data-dir"])
            .arg(directory.path().join(".sandbar"))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap() == "ready"), "it has ended");
        let user = Self { server, directory };
        // pods need the account that comes a moment after the namespace
        let start = Instant::now();
        while user.run("", "get serviceaccount default").code != 0 {
            assert!(start.elapsed() < Duration::from_secs(30), "no account");
        }
        user
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> String {
        std::fs::write(self.path(name), text).unwrap();
        self.path(name).to_str().unwrap().to_owned()
    }

    /// The server is found by the home directory alone.
    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sandbar"));
        command
            .args(line.split_whitespace())
            .env("HOME", self.directory.path())
            .env_remove("KUBECONFIG")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    pub(crate) fn run(&self, input: &str, line: &str) -> Said {
        let mut child = self.command(line).spawn().unwrap();
        // what fails early does not read its input
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        let output = child.wait_with_output().unwrap();
        Said {
            code: output.status.code().unwrap(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: patient(&String::from_utf8(output.stderr).unwrap()),
        }
    }

    pub(crate) fn does(&self, line: &str) -> String {
        self.does_with("", line)
    }

    pub(crate) fn does_with(&self, input: &str, line: &str) -> String {
        let said = self.run(input, line);
        assert_eq!((said.code, said.err.as_str()), (0, ""), "{line}: {said:?}");
        said.out
    }

    /// What a command says that fails and prints nothing.
    pub(crate) fn fails(&self, line: &str) -> String {
        let said = self.run("", line);
        assert_eq!((said.code, said.out.as_str()), (1, ""), "{line}: {said:?}");
        said.err
    }

    pub(crate) fn sees(&self, what: &str) -> Value {
        serde_json::from_str(&self.does(&format!("get {what} -o json"))).unwrap()
    }

    /// Follows a command that goes on until it is dropped.
    pub(crate) fn follows(&self, line: &str) -> Follower {
        let mut child = self.command(line).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Follower { child, stdout }
    }
}

impl Drop for User {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

pub(crate) struct Follower {
    child: Child,
    stdout: BufReader<ChildStdout>,
}

impl Follower {
    pub(crate) fn next(&mut self) -> String {
        let mut line = String::new();
        assert_ne!(self.stdout.read_line(&mut line).unwrap(), 0, "it has ended");
        line
    }

    /// The rest of what it says on standard error, once it has ended.
    pub(crate) fn end(mut self) -> (i32, String) {
        let stderr = self.child.stderr.take().unwrap();
        let text = std::io::read_to_string(stderr).unwrap();
        (self.child.wait().unwrap().code().unwrap(), patient(&text))
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
