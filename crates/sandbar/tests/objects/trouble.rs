//! What people can do about it when it does not work.

use std::process::Command;

use tempfile::TempDir;

use crate::server::User;

fn sandbar(home: &TempDir, line: &str) -> (i32, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_sandbar"))
        .args(line.split_whitespace())
        .env("HOME", home.path())
        .env_remove("KUBECONFIG")
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    (
        output.status.code().unwrap(),
        String::from_utf8(text).unwrap(),
    )
}

#[test]
fn a_server_that_is_not_there_is_named() {
    let home = TempDir::new().unwrap();
    let (code, said) = sandbar(&home, "get pods");
    assert_eq!(code, 1);
    assert!(said.contains("no cluster to talk to"), "{said}");
    let (code, said) = sandbar(&home, "get pods --data-dir /nowhere");
    assert_eq!(code, 1);
    assert!(said.contains("sandbar up --data-dir /nowhere"), "{said}");
    let kubeconfig = "{apiVersion: v1, kind: Config, current-context: a, clusters: [{name: a, cluster: {server: 'http://127.0.0.1:1'}}],
        contexts: [{name: a, context: {cluster: a, user: a}}], users: [{name: a, user: {}}]}";
    let directory = home.path().join(".sandbar");
    std::fs::create_dir(&directory).unwrap();
    std::fs::write(directory.join("kubeconfig"), kubeconfig).unwrap();
    for line in [
        "get pods",
        "logs a",
        "exec a -- true",
        "delete pod a",
        "apply -f /dev/null",
    ] {
        let (code, said) = sandbar(&home, line);
        assert_eq!(code, 1);
        for part in ["http://127.0.0.1:1", "sandbar up", "--kubeconfig"] {
            assert!(said.contains(part), "{line}: {said}");
        }
    }
}

#[test]
fn a_kubeconfig_can_be_named_in_every_way() {
    let user = User::new();
    let elsewhere = TempDir::new().unwrap();
    let directory = user.path(".sandbar");
    let flags = [
        format!("--data-dir {}", directory.display()),
        format!("--kubeconfig {}/kubeconfig", directory.display()),
    ];
    for flag in flags {
        let (code, said) = sandbar(&elsewhere, &format!("get ns default -o name {flag}"));
        assert_eq!((code, said.as_str()), (0, "namespace/default\n"));
    }
}

#[test]
fn every_command_has_examples() {
    let home = TempDir::new().unwrap();
    for command in ["get", "apply", "delete", "logs", "exec"] {
        let (code, help) = sandbar(&home, &format!("{command} --help"));
        assert_eq!(code, 0);
        assert!(
            help.contains(&format!("Examples:\n  sandbar {command}")),
            "{help}"
        );
    }
    let (code, said) = sandbar(&home, "exec a");
    assert!(code == 2 && said.contains("<COMMAND>"), "{said}");
}
