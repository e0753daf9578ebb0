//! The command line: one subcommand a role.

use std::{ffi::OsString, io, process::ExitCode};

use anyhow::Result;
use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;

use crate::{
    api, controller, crds, down, image,
    objects::{apply, delete, exec, get, logs},
    rollout, up,
};

/// Warm pools of isolated sandboxes for AI agents, and their upgrades.
#[derive(Parser)]
#[command(name = "sandbar", version, propagate_version = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Api(api::Args),
    Apply(apply::Args),
    Controller(Box<controller::Args>),
    Crds(crds::Args),
    Delete(delete::Args),
    Down(down::Args),
    Exec(exec::Args),
    Get(get::Args),
    Image(image::Args),
    Logs(logs::Args),
    Rollout(rollout::Args),
    /// Run the daemon inside a sandbox, which runs commands and moves files for E2B clients
    #[command(disable_help_flag = true)]
    Runtime {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        options: Vec<OsString>,
    },
    Up(up::Args),
    /// Print the completion script of a shell
    ///
    /// For bash: `source <(sandbar completion bash)`.
    Completion {
        shell: Shell,
    },
}

impl Args {
    /// What was asked for, or how to end if that was for help or cannot be done.
    pub(crate) fn from_command_line() -> Result<Self, ExitCode> {
        let mut args: Vec<OsString> = std::env::args_os().collect();
        // manifests of the controllers that it stands in for write flags as Go does, and expect 1 for what is wrong with them
        let is_controller = args.get(1).is_some_and(|command| command == "controller");
        if is_controller {
            args = controller::with_two_dashes(args);
        }
        Self::try_parse_from(args).map_err(|error| {
            let _ = error.print();
            match u8::try_from(error.exit_code()) {
                Ok(0) => ExitCode::SUCCESS,
                Ok(code) if !is_controller => ExitCode::from(code),
                _ => ExitCode::FAILURE,
            }
        })
    }

    pub(crate) fn run(self) -> Result<ExitCode> {
        let done = match self.command {
            // these may end otherwise and have said why
            Command::Apply(args) => return args.run(),
            Command::Delete(args) => return args.run(),
            Command::Exec(args) => return args.run(),
            Command::Get(args) => return args.run(),
            Command::Logs(args) => return args.run(),
            Command::Runtime { options } => {
                return Ok(runtime::daemon::main(&["runtime"], options.into_iter()));
            }
            Command::Api(args) => args.run(),
            Command::Controller(args) => args.run(),
            Command::Crds(args) => args.run(),
            Command::Down(args) => args.run(),
            Command::Image(args) => args.run(),
            Command::Rollout(args) => args.run(),
            Command::Up(args) => args.run(),
            Command::Completion { shell } => {
                clap_complete::generate(shell, &mut Self::command(), "sandbar", &mut io::stdout());
                Ok(())
            }
        };
        done.map(|()| ExitCode::SUCCESS)
    }
}
