//! The daemon as a program of its own, small enough to be in every sandbox. Under the name by which controllers execute it in a
//! sandbox it is what mounts volumes: one file in an image, not two.

use std::path::Path;
use std::process::ExitCode;

use runtime::daemon;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_default();
    match Path::new(&name).file_name() {
        Some(name) if name == daemon::STORAGE_PROGRAM => daemon::mount_storage(arguments),
        _ => daemon::main(&[], arguments),
    }
}
