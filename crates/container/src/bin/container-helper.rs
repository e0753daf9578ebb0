//! The helper as a program of its own. `sandbar` has it as a hidden subcommand.

use std::process::ExitCode;

fn main() -> ExitCode {
    container::helper::run()
}
