//! Programs that tests run in a process of their own, where it can be killed, traced or starved.
//!
//! They are tests of the same binary that do nothing unless asked by an environment variable.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

const DIRECTORY: &str = "SANDBAR_TEST_DIRECTORY";

/// A directory in memory where there is one: syncing it costs nothing.
pub(crate) fn scratch() -> TempDir {
    let memory = Path::new("/dev/shm");
    match memory.is_dir() {
        true => TempDir::new_in(memory),
        false => TempDir::new(),
    }
    .unwrap()
}

/// This test binary, asked to run one of its programs and nothing else.
pub(crate) fn command(program: &str, directory: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let arguments = [program, "--exact", "--nocapture"];
    command.args(arguments).env(DIRECTORY, directory);
    command
}

/// `wrapper` with the program, its arguments and environment behind it.
pub(crate) fn under<'a>(wrapper: &'a mut Command, program: &Command) -> &'a mut Command {
    let environment = program
        .get_envs()
        .filter_map(|(name, value)| Some((name, value?)));
    wrapper
        .arg(program.get_program())
        .args(program.get_args())
        .envs(environment)
}

/// Where this process was told to work, if it is such a program.
pub(crate) fn directory() -> Option<PathBuf> {
    std::env::var_os(DIRECTORY).map(PathBuf::from)
}

/// Runs `work` in the directory this process was given, if it is such a program, and prints `done`.
pub(crate) fn run(work: impl AsyncFnOnce(&Path), done: &str) {
    let Some(directory) = directory() else { return };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(work(&directory));
    println!("{done}");
}

/// Runs a program whose directory is a disk of 4 MiB; it must say `done`.
pub(crate) fn on_a_small_disk(program: &str, done: &str) {
    let directory = scratch();
    let program = command(program, directory.path());
    let mount = r#"mount -t tmpfs -o size=4m tmpfs "$0" && exec "$@""#;
    let mut unshare = Command::new("unshare");
    unshare
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", mount])
        .arg(directory.path());
    let output = under(&mut unshare, &program)
        .output()
        .expect("cannot run unshare: install the package `util-linux`");
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains(done), "{said}");
}
