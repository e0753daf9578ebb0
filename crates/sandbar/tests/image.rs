//! `sandbar image` as a user runs it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../../tests/tests/registry/server.rs"]
#[allow(dead_code, reason = "what spoils a registry is for its own tests")]
mod registry;

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::json;
use tempfile::TempDir;
use testbed::Image;

use registry::{PASSWORD, Registry, USER, layer};

/// For somebody who has not logged in anywhere.
fn command(data: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sandbar"));
    command.arg("image").args(args).arg("--data-dir").arg(data);
    command.env_remove("DOCKER_CONFIG").env("HOME", data);
    command
}

fn sandbar(data: &Path, args: &[&str]) -> Output {
    command(data, args).output().unwrap()
}

fn printed(data: &Path, args: &[&str]) -> String {
    let output = sandbar(data, args);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn refused(data: &Path, args: &[&str]) -> String {
    let output = sandbar(data, args);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// An archive with one image.
fn archive(directory: &TempDir) -> String {
    let file = directory.path().join("app.tar");
    let image = Image::empty("docker.io/team/app:1").file("/file", 0o644, "text");
    image.write(&file).unwrap();
    file.to_str().unwrap().to_owned()
}

/// The columns of the line that begins with a name.
fn line(table: &str, name: &str) -> Vec<String> {
    let line = table.lines().find(|line| line.starts_with(name)).unwrap();
    line.split("   ")
        .map(|cell| cell.trim().to_owned())
        .filter(|cell| !cell.is_empty())
        .collect()
}

#[test]
fn images_are_imported_listed_and_removed() {
    let directory = tempfile::tempdir().unwrap();
    let (data, file) = (directory.path().join("data"), archive(&directory));
    assert_eq!(
        printed(&data, &["import", &file]),
        "imported docker.io/team/app:1\n"
    );
    let named = printed(&data, &["import", &file, "--name", "other"]);
    assert_eq!(named, "imported docker.io/library/other:latest\n");
    let table = printed(&data, &["list"]);
    let head = table.lines().next().unwrap();
    assert_eq!(
        head.split_whitespace().collect::<Vec<_>>(),
        ["NAME", "ID", "SIZE", "AGE"]
    );
    assert_eq!(table.lines().count(), 5);
    let app = line(&table, "docker.io/team/app:1");
    assert_eq!((app[1].len(), app[2].as_str()), (12, "2.0 kB"));
    for built_in in ["base", "runtime"] {
        let line = line(&table, &format!("docker.io/sandbar/{built_in}:latest"));
        assert_eq!(line[2..], ["-", "-"]);
    }
    let gone = printed(&data, &["rm", "team/app:1", "other"]);
    assert_eq!(
        gone,
        "removed docker.io/team/app:1 (0 B freed)\nremoved docker.io/library/other:latest (2.0 kB freed)\n"
    );
    assert_eq!(printed(&data, &["ls"]).lines().count(), 3);
}

#[test]
fn what_is_wrong_is_said_with_what_helps() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let error = refused(&data, &["rm", "team/app:1"]);
    let expected =
        "sandbar: image docker.io/team/app:1 is not here: `sandbar image list` shows what is\n";
    assert_eq!(error, expected);
    let error = refused(&data, &["rm", "sandbar/base"]);
    assert!(
        error.contains("is built in and cannot be replaced or removed"),
        "{error}"
    );
    let error = refused(&data, &["import", "/nonexistent"]);
    let once = "sandbar: cannot read /nonexistent: No such file or directory (os error 2)\n";
    assert_eq!(error, once);
    let error = refused(&data, &["import", "/dev/null"]);
    assert!(
        error.contains("neither an OCI layout nor the output of `docker save`"),
        "{error}"
    );
    let error = refused(&data, &["pull", "No Name"]);
    assert!(
        error.contains("\"No Name\" is no name of an image"),
        "{error}"
    );
    let error = refused(&data, &["pull", "127.0.0.1:1/a/b"]);
    assert!(
        error.contains("cannot reach the registry 127.0.0.1:1 for 127.0.0.1:1/a/b:latest"),
        "{error}"
    );
}

/// A registry that lets only its user read, an image there, and a place for it here.
struct Private {
    _registry: Registry,
    directory: TempDir,
    registry_name: String,
    image: String,
    digest: String,
}

impl Private {
    async fn new() -> Self {
        let registry = Registry::start(true);
        let reference = registry.reference("team/private:1");
        let digest = registry.push(&reference, &[layer("file", b"text")]).await;
        Self {
            registry_name: reference.registry().to_owned(),
            image: reference.whole(),
            digest,
            directory: tempfile::tempdir().unwrap(),
            _registry: registry,
        }
    }

    fn data(&self) -> std::path::PathBuf {
        self.directory.path().join("data")
    }

    fn is_here(&self) -> bool {
        printed(&self.data(), &["list"]).contains(&self.image)
    }

    fn pull(&self) -> Command {
        command(&self.data(), &["pull", &self.image])
    }

    /// By name, with the password on standard input.
    fn pull_as(&self, user: &str, password: &str) -> Output {
        let args = ["pull", &self.image, "--username", user, "--password-stdin"];
        let mut command = command(&self.data(), &args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        writeln!(stdin, "{password}").unwrap();
        drop(stdin);
        child.wait_with_output().unwrap()
    }

    /// What `docker login` leaves behind in a directory.
    fn log_in(&self, name: &str, account: serde_json::Value) -> std::path::PathBuf {
        let directory = self.directory.path().join(name);
        fs::create_dir_all(&directory).unwrap();
        let config = json!({"auths": {&self.registry_name: account}}).to_string();
        fs::write(directory.join("config.json"), config).unwrap();
        directory
    }

    fn assert_refused(&self, output: &Output, words: &str) {
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(words) && said.contains(&self.image), "{said}");
        assert!(!self.is_here());
    }

    fn assert_pulled(&self, output: &Output) {
        assert!(output.status.success(), "{output:?}");
        let said = String::from_utf8_lossy(&output.stdout);
        let expected = format!("pulled {}\ndigest {}\n", self.image, self.digest);
        assert_eq!(said, expected);
        assert!(self.is_here());
        printed(&self.data(), &["rm", &self.image]);
    }
}

#[tokio::test]
async fn an_image_is_pulled_with_a_name_and_a_password_and_not_without() {
    let private = Private::new().await;
    let output = private.pull().output().unwrap();
    private.assert_refused(&output, "does not let strangers read");
    let output = private.pull_as(USER, "wrong");
    private.assert_refused(&output, "check user name and password");
    private.assert_pulled(&private.pull_as(USER, PASSWORD));
}

#[tokio::test]
async fn an_image_is_pulled_with_what_docker_login_has_left_behind() {
    let private = Private::new().await;
    // as base64
    let account = json!({"auth": "dGVzdGVyOlUqVQ=="});
    let elsewhere = private.log_in("docker", account.clone());
    let mut pull = private.pull();
    let output = pull.env("DOCKER_CONFIG", &elsewhere).output().unwrap();
    private.assert_pulled(&output);

    let home = private.log_in("home/.docker", account);
    let mut pull = private.pull();
    let output = pull.env("HOME", home.parent().unwrap()).output().unwrap();
    private.assert_pulled(&output);

    let another = private.log_in("another", json!({"username": USER, "password": "wrong"}));
    let mut pull = private.pull();
    let output = pull.env("DOCKER_CONFIG", &another).output().unwrap();
    private.assert_refused(&output, "check user name and password");
}

#[test]
fn each_command_says_what_it_is_for() {
    for command in ["import", "pull", "list", "rm"] {
        let output = Command::new(env!("CARGO_BIN_EXE_sandbar"))
            .args(["image", command, "--help"])
            .output()
            .unwrap();
        let help = String::from_utf8(output.stdout).unwrap();
        assert!(
            output.status.success() && help.contains("--data-dir <DIR>"),
            "{help}"
        );
    }
}
