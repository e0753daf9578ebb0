//! Without any rights on the host's network, the loopback of a pod is reached by a process that joins the pod. Only a
//! process of one thread may do so, and a test of the usual kind has several: this is a program that starts itself.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::Permissions;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use local::network::{Network, Settings, dial_from_inside, loopback_from_inside};
use local::node::inside::{self, Inside};
use tokio::io::AsyncReadExt as _;

/// Nobody's.
const USER: &str = "65534";
const PATIENCE: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["be-a-pod"] => be_a_pod(),
        ["bring-up", process] => loopback_from_inside(process.parse().unwrap()).unwrap(),
        ["dial", process, port] => dial(process.parse().unwrap(), port.parse().unwrap()),
        ["inside", ..] => {
            let arguments: Vec<_> = std::env::args_os().skip(2).collect();
            return inside::run(&arguments);
        }
        ["reach", process, port] => reach(process.parse().unwrap(), port.parse().unwrap()),
        ["open", directory] => open(Path::new(directory)),
        ["--list", ..] => {}
        _ => {
            an_ordinary_user_reaches_the_loopback_of_a_pod();
            an_ordinary_user_is_told_that_a_network_takes_more();
        }
    }
    ExitCode::SUCCESS
}

fn an_ordinary_user_reaches_the_loopback_of_a_pod() {
    let directory = open_directory();
    let program = copied_to(directory.path());
    let mut pod = as_ordinary_user(Path::new("unshare"))
        .args(["--user", "--map-root-user", "--net"])
        .args([program.to_str().unwrap(), "be-a-pod"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(pod.stdout.take().unwrap()).lines();
    assert_eq!(said.next().unwrap().unwrap(), "here");
    let process = pod.id().to_string();
    let up = as_ordinary_user(&program)
        .args(["bring-up", &process])
        .status();
    assert!(up.unwrap().success());
    writeln!(pod.stdin.as_ref().unwrap(), "go on").unwrap();
    let port = said.next().unwrap().unwrap();
    let dialled = as_ordinary_user(&program)
        .args(["dial", &process, &port])
        .output();
    let reach = |port: &str| {
        let arguments = ["reach", &process, port];
        as_ordinary_user(&program).args(arguments).output().unwrap()
    };
    let (reached, refused, nowhere) = (reach(&port), reach("1"), {
        let arguments = ["reach", "4194305", &port];
        as_ordinary_user(&program).args(arguments).output().unwrap()
    });
    pod.kill().unwrap();
    pod.wait().unwrap();
    for (output, expected) in [
        (dialled.unwrap(), "from inside the pod"),
        (reached, "from inside the pod"),
        (refused, "ConnectionRefused"),
        (nowhere, "NotFound"),
    ] {
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(
            String::from_utf8_lossy(&output.stdout),
            expected,
            "{errors}"
        );
    }
    println!("an ordinary user reaches the loopback of a pod: ok");
}

fn an_ordinary_user_is_told_that_a_network_takes_more() {
    let directory = open_directory();
    let program = copied_to(directory.path());
    let data = directory.path().join("data");
    std::fs::create_dir(&data).unwrap();
    std::fs::set_permissions(&data, Permissions::from_mode(0o777)).unwrap();
    let opened = as_ordinary_user(&program).arg("open").arg(&data).output();
    let said = String::from_utf8(opened.unwrap().stdout).unwrap();
    assert!(said.contains("CAP_NET_ADMIN"), "{said}");
    assert_eq!(data.read_dir().unwrap().count(), 0);
    println!("an ordinary user is told that a network takes more: ok");
}

/// That others may read.
fn open_directory() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    std::fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
    directory
}

fn copied_to(directory: &Path) -> PathBuf {
    let program = directory.join("program");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    std::fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
    program
}

fn open(directory: &Path) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let opened = runtime.block_on(Network::open(Settings::new(directory)));
    print!("{}", opened.unwrap_err());
}

fn as_ordinary_user(program: &Path) -> Command {
    if !rustix::process::geteuid().is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid", USER, "--regid", USER, "--clear-groups"])
        .arg(program);
    command
}

/// Waits until its loopback is up, and then for others to come.
fn be_a_pod() {
    println!("here");
    std::io::stdin().read_line(&mut String::new()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    println!("{}", listener.local_addr().unwrap().port());
    for stream in listener.incoming() {
        stream.unwrap().write_all(b"from inside the pod").unwrap();
    }
}

fn dial(process: u32, port: u16) {
    let mut stream = dial_from_inside(process, port, PATIENCE).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    print!("{text}");
}

/// By a further process, which hands the socket over.
fn reach(process: i32, port: u16) {
    let inside = Inside::through(&std::env::current_exe().unwrap(), ["inside"]);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let said = runtime.block_on(async {
        let mut text = String::new();
        let mut stream = inside.dial(process, port).await?;
        stream.read_to_string(&mut text).await?;
        std::io::Result::Ok(text)
    });
    print!(
        "{}",
        said.unwrap_or_else(|error| format!("{:?}", error.kind()))
    );
}
