//! Starting and stopping an instance from the host: what `up` and `down` do.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::binaries;
use crate::command::last_lines;
use crate::hold::{Lease, Order};
use crate::lock::FileLock;
use crate::paths::Instance;
use crate::plan::{Phase, Spec, Status};
use crate::processes::{self, HOLD};
use crate::progress::Progress;
use crate::slots::Slot;

/// Whether `up` had anything to do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Started,
    WasUp,
}

/// Brings the instance up and waits until it is ready.
pub(crate) fn up(
    instance: &Instance,
    spec: &Spec,
    lease: Option<&Lease>,
    progress: &mut Progress,
) -> Result<Outcome> {
    sweep(instance)?;
    let lock = FileLock::exclusive(&instance.lock_file())?;
    let outcome = if is_alive(instance) {
        let status = Status::load(&instance.dir())?;
        if status.spec != *spec {
            bail!(
                "{} is up with other options: stop it first with `down --name {}`, or choose another --name",
                instance.name,
                instance.name
            );
        }
        Outcome::WasUp
    } else {
        let tools = binaries::ensure(spec, progress)?;
        if instance.dir().exists() {
            progress.step("removing the remains of an earlier start");
        }
        remove(instance)?;
        launch(
            instance,
            Order {
                spec: spec.clone(),
                tools,
            },
            lease,
        )?;
        Outcome::Started
    };
    let ready = await_ready(instance, progress);
    progress.finish();
    if let Err(error) = ready {
        let kept = keep_logs(instance);
        if lease.is_none() {
            remove(instance)?;
        }
        drop(lock);
        return Err(error.context(kept));
    }
    Ok(outcome)
}

/// Stops the instance, however far it had come, and removes everything of it.
pub(crate) fn down(instance: &Instance) -> Result<bool> {
    let lock = FileLock::exclusive(&instance.lock_file())?;
    let was_up = remove(instance)?;
    let lease = instance.lease_file();
    // whoever waits for one of these files notices and makes a new one
    if lease.exists()
        && let Some(_unused) = FileLock::try_exclusive(&lease)?
    {
        let _ = fs::remove_file(&lease);
    }
    let _ = fs::remove_file(instance.lock_file());
    drop(lock);
    Ok(was_up)
}

/// Waits until no cluster is left that a test of this checkout has leased.
pub(crate) fn await_idle(checkout: &str) -> Result<()> {
    let give_up = Instant::now() + Duration::from_secs(60);
    loop {
        let mut leased = Instance::all()?;
        leased.retain(|instance| {
            instance.name.starts_with(checkout) && instance.lease_file().exists()
        });
        if leased.is_empty() {
            return Ok(());
        }
        if Instant::now() > give_up {
            let names: Vec<_> = leased.into_iter().map(|instance| instance.name).collect();
            bail!(
                "clusters of tests are still up: {} (stop one with `down --name`)",
                names.join(", ")
            );
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Whether somebody holds the instance and it has not failed.
pub(crate) fn is_alive(instance: &Instance) -> bool {
    !processes::find(HOLD, &instance.dir()).is_empty()
        && Status::load(&instance.dir()).is_ok_and(|s| s.phase != Phase::Failed)
}

/// Ends all processes of the instance and removes what they leave. `false` if there was nothing.
fn remove(instance: &Instance) -> Result<bool> {
    let dir = instance.dir();
    processes::end_all(&dir)?;
    if !dir.exists() {
        return Ok(false);
    }
    if let Ok(Status { slot: Some(slot), .. }) = Status::load(&dir)
        // somebody else holds it already: then it has been cleaned
        && let Some(slot) = Slot::reclaim(slot)?
    {
        slot.clean()?;
    }
    fs::remove_dir_all(&dir).with_context(|| format!("removing {}", dir.display()))?;
    Ok(true)
}

/// Removes other instances that had a lease and lost both their users and their holder, which nobody else would.
fn sweep(instance: &Instance) -> Result<()> {
    for other in Instance::all()? {
        let lease = other.lease_file();
        if other.name != instance.name
            && lease.exists()
            && processes::find(HOLD, &other.dir()).is_empty()
            && let Some(_unused) = FileLock::try_exclusive(&lease)?
            && let Some(_lock) = FileLock::try_exclusive(&other.lock_file())?
        {
            remove(&other)?;
            for file in [lease, other.lock_file()] {
                // a stray empty file is no reason to fail
                let _ = fs::remove_file(file);
            }
        }
    }
    Ok(())
}

fn launch(instance: &Instance, order: Order, lease: Option<&Lease>) -> Result<()> {
    let dir = instance.dir();
    fs::create_dir_all(instance.logs())
        .with_context(|| format!("creating {}", instance.logs().display()))?;
    let kubectl = order.tools.path("kubectl")?.to_owned();
    Status::starting(order.spec.clone(), kubectl).save(&dir)?;
    order.save(&dir)?;
    let log = File::create(instance.logs().join("testbed.log")).context("creating a log")?;
    let this = std::env::current_exe().context("finding the testbed's own program")?;
    let mut hold = Command::new(this);
    hold.arg(HOLD).arg(&dir);
    if let Some(Lease {
        file,
        grace,
        single_use,
    }) = lease
    {
        hold.arg("--lease")
            .arg(file)
            .arg(format!("--grace-ms={}", grace.as_millis()));
        if *single_use {
            hold.arg("--single-use");
        }
    }
    // the holder outlives this process, which therefore never waits for it
    let mut holder = hold
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(log.try_clone().context("sharing the log")?)
        .stderr(log)
        .spawn()
        .context("starting the holder")?;
    // a process that has just begun shows an empty command line for a moment
    while processes::find(HOLD, &dir).is_empty() {
        if let Some(status) = holder.try_wait().context("waiting for the holder")? {
            bail!("the holder ended with {status}: {}", holder_log(instance));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

fn holder_log(instance: &Instance) -> String {
    let log = fs::read_to_string(instance.logs().join("testbed.log")).unwrap_or_default();
    last_lines(&log, 15)
}

fn await_ready(instance: &Instance, progress: &mut Progress) -> Result<()> {
    loop {
        let status = Status::load(&instance.dir())
            .with_context(|| format!("{} disappeared while it was starting", instance.name))?;
        match status.phase {
            Phase::Ready => return Ok(()),
            Phase::Failed => bail!(
                status
                    .reason
                    .unwrap_or_else(|| "no reason given".to_owned())
            ),
            Phase::Starting => progress.step(&status.step),
        }
        if processes::find(HOLD, &instance.dir()).is_empty()
            && Status::load(&instance.dir()).is_ok_and(|s| s.phase == Phase::Starting)
        {
            bail!(
                "its holder ended while starting; last lines:\n{}",
                holder_log(instance)
            );
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Copies the logs of a failed start to where they survive it; says where.
fn keep_logs(instance: &Instance) -> String {
    let target = instance.last_failure();
    let copied = copy_files(&instance.logs(), &target)
        .and_then(|()| copy_one(&instance.dir().join("status.json"), &target));
    match copied {
        Ok(()) => format!(
            "{} did not start; its logs are in {}",
            instance.name,
            target.display()
        ),
        Err(e) => format!(
            "{} did not start, and keeping its logs failed: {e}",
            instance.name
        ),
    }
}

fn copy_files(from: &Path, to: &Path) -> std::io::Result<()> {
    if to.exists() {
        fs::remove_dir_all(to)?;
    }
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        copy_one(&entry?.path(), to)?;
    }
    Ok(())
}

fn copy_one(file: &Path, to: &Path) -> std::io::Result<()> {
    if let Some(name) = file.file_name()
        && file.is_file()
    {
        fs::copy(file, to.join(name))?;
    }
    Ok(())
}
