//! What mounts volumes, as a program of its own, under the name and with the arguments that controllers know.

use std::process::ExitCode;

fn main() -> ExitCode {
    runtime::daemon::mount_storage(std::env::args_os().skip(1))
}
