//! The command line: one subcommand a role.

use std::io;

use anyhow::Result;
use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;

use crate::{api, crds, rollout};

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
    Crds(crds::Args),
    Rollout(rollout::Args),
    /// Print the completion script of a shell
    ///
    /// For bash: `source <(sandbar completion bash)`.
    Completion {
        shell: Shell,
    },
}

impl Args {
    pub(crate) fn run(self) -> Result<()> {
        match self.command {
            Command::Api(args) => args.run(),
            Command::Crds(args) => args.run(),
            Command::Rollout(args) => args.run(),
            Command::Completion { shell } => {
                clap_complete::generate(shell, &mut Self::command(), "sandbar", &mut io::stdout());
                Ok(())
            }
        }
    }
}
