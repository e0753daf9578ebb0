//! What the host does to a running node.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::command::run;
use crate::mounts::INSIDE;
use crate::paths::Instance;
use crate::plan::Status;
use crate::processes;
use crate::programs::CTR_OPTIONS;

/// A command that runs inside the instance's namespaces.
fn enter(instance: &Instance) -> Result<Command> {
    let init = processes::init_of(&instance.dir())
        .with_context(|| format!("{} is not up", instance.name))?;
    let mut command = Command::new("nsenter");
    command
        .arg(format!("--target={init}"))
        .args(["--mount", "--net", "--pid", "--"]);
    Ok(command)
}

/// Makes the images in a tar file known to the node's containerd.
pub(crate) fn import_image(instance: &Instance, file: &Path) -> Result<()> {
    if !Status::load(&instance.dir())?.spec.kubelet {
        bail!("{} has no real node to import an image into", instance.name);
    }
    // through standard input: the node does not see the host's /tmp
    let input = File::open(file).with_context(|| format!("opening {}", file.display()))?;
    let mut command = enter(instance)?;
    command
        .arg(format!("{INSIDE}/bin/ctr"))
        .args(CTR_OPTIONS)
        .args(["images", "import", "-"]);
    run(
        command.stdin(Stdio::from(input)),
        &format!("importing {}", file.display()),
    )?;
    Ok(())
}
