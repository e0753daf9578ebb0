//! What brings the daemon of sandboxes into containers that do not have it: existing templates call these files by their paths.

use super::{Addition, Content};
use crate::image::document::Config;

/// Where the files are, and where a container of the image begins.
pub(crate) const WORKSPACE: &str = "/workspace";

pub(crate) fn config() -> Config {
    Config {
        entrypoint: ["sh", "/workspace/entrypoint.sh"].map(str::to_owned).into(),
        working_dir: WORKSPACE.to_owned(),
        ..Config::default()
    }
}

pub(crate) fn files(daemon: &'static [u8]) -> [Addition; 4] {
    [
        ("/workspace/envd", Content::Program(daemon)),
        // the same program, which goes by its name
        ("/workspace/sandbox-runtime-storage", Content::Link("envd")),
        (
            "/workspace/entrypoint.sh",
            Content::Program(include_bytes!("entrypoint.sh")),
        ),
        (
            "/workspace/envd-run.sh",
            Content::Program(include_bytes!("envd-run.sh")),
        ),
    ]
}
