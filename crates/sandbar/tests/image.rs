//! `sandbar image` as a user runs it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;
use testbed::Image;

fn sandbar(data: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sandbar"))
        .arg("image")
        .args(args)
        .arg("--data-dir")
        .arg(data)
        .output()
        .unwrap()
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
