//! The daemon as a program of its own, small enough to be in every sandbox.

use std::process::ExitCode;

fn main() -> ExitCode {
    runtime::daemon::main(&[], std::env::args_os().skip(1))
}
