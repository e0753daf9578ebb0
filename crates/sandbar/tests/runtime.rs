//! `sandbar runtime`: the daemon of sandboxes in the one binary.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    process::{Child, Command, Stdio},
};

const PROGRAM: &str = env!("CARGO_BIN_EXE_sandbar");

struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn the_daemon_of_sandboxes_is_part_of_the_program() {
    let mut command = Command::new(PROGRAM);
    command.args(["runtime", "--host", "127.0.0.1", "--port", "0"]);
    let mut daemon = Daemon(command.stdout(Stdio::piped()).spawn().unwrap());
    let mut line = String::new();
    let output = daemon.0.stdout.take().unwrap();
    BufReader::new(output).read_line(&mut line).unwrap();
    let address = line.split_whitespace().last().unwrap();
    let mut connection = TcpStream::connect(address).unwrap();
    let request = "GET /health HTTP/1.1\r\nHost: sandbox\r\nConnection: close\r\n\r\n";
    connection.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 204"), "{answer}");
}

#[test]
fn its_help_is_the_daemons_own() {
    let told = Command::new(PROGRAM)
        .args(["runtime", "--help"])
        .output()
        .unwrap();
    let told = String::from_utf8(told.stdout).unwrap();
    assert!(told.contains("--default-user"), "{told}");
}
