//! The outer half of an instance, on the host: `__hold` owns the slot, starts the namespaces, connects them, and
//! ends them when nobody uses the instance any more. `__init` is pid 1 inside.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::lock::FileLock;
use crate::plan::{Plan, Spec, Status, read_json, write_json};
use crate::processes::{self, INIT, SUPERVISE};
use crate::slots::Slot;
use crate::{binaries, cgroups};

/// How often the holder looks at its child and at the lease.
const TICK: Duration = Duration::from_millis(200);

/// When an instance ends by itself.
#[derive(Debug, Clone)]
pub(crate) struct Lease {
    pub(crate) file: PathBuf,
    /// How long the instance outlives its last user; the next test binary of one run may follow.
    pub(crate) grace: Duration,
    /// Nobody else will ever want this lease again.
    pub(crate) single_use: bool,
}

/// What `up` leaves in the directory for the holder.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Order {
    pub(crate) spec: Spec,
    pub(crate) tools: binaries::Tools,
}

impl Order {
    pub(crate) fn save(&self, dir: &Path) -> Result<()> {
        write_json(&dir.join("order.json"), self)
    }

    pub(crate) fn load(dir: &Path) -> Result<Self> {
        read_json(&dir.join("order.json"))
    }
}

/// Runs until the instance has ended; without a lease that is until it fails or the holder is killed.
pub(crate) fn hold(dir: &Path, lease: Option<&Lease>) -> Result<()> {
    // the terminal of `up` must not take the cluster with it
    rustix::process::setsid().context("leaving the terminal's session")?;
    let mut running = match start(dir) {
        Ok(running) => Some(running),
        Err(error) => {
            Status::record_failure(dir, &format!("{error:#}"))?;
            None
        }
    };
    let mut unused_since: Option<Instant> = None;
    loop {
        std::thread::sleep(TICK);
        if let Some((slot, child)) = &mut running
            && let Some(status) = child.try_wait().context("waiting for the namespaces")?
        {
            Status::record_failure(dir, &format!("the namespaces ended with {status}"))?;
            slot.clean()?;
            running = None;
        }
        let Some(lease) = lease else {
            match running {
                Some(_) => continue,
                None => return Ok(()),
            }
        };
        let Some(lock) = FileLock::try_exclusive(&lease.file)? else {
            unused_since = None;
            continue;
        };
        if unused_since.get_or_insert_with(Instant::now).elapsed() < lease.grace {
            continue;
        }
        return end(dir, running, lease, lock);
    }
}

/// Ends the instance while newcomers wait for the lease.
fn end(dir: &Path, running: Option<(Slot, Child)>, lease: &Lease, lock: FileLock) -> Result<()> {
    let mut cleaned = Ok(());
    if let Some((slot, mut child)) = running {
        if let Some(init) = processes::init_of(dir) {
            processes::kill(init);
        }
        // it ends by itself when its child has; killing it first would leave the child to die unobserved
        wait_a_while(&mut child);
        processes::kill(child.id());
        child.wait().context("waiting for the namespaces")?;
        cleaned = slot.clean();
    }
    fs::remove_dir_all(dir).with_context(|| format!("removing {}", dir.display()))?;
    if lease.single_use {
        for file in [&lease.file, &lease.file.with_extension("lock")] {
            // a stray empty file is no reason to fail
            let _ = fs::remove_file(file);
        }
    }
    drop(lock);
    cleaned
}

fn wait_a_while(child: &mut Child) {
    let give_up = Instant::now() + Duration::from_secs(20);
    while Instant::now() < give_up && matches!(child.try_wait(), Ok(None)) {
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn start(dir: &Path) -> Result<(Slot, Child)> {
    let slot = Slot::allocate()?;
    let Order { spec, tools } = Order::load(dir)?;
    // recorded before anything is created, so that `down` finds it whenever the holder dies
    let mut status = Status::load(dir)?;
    status.slot = Some(slot.index);
    status.save(dir)?;
    if spec.kubelet {
        cgroups::create(Path::new(cgroups::ROOT), &slot.cgroup())?;
    }
    let plan = Plan {
        spec,
        slot: slot.index,
        tools,
        cgroup: slot.cgroup(),
    };
    plan.save(dir)?;

    let this = std::env::current_exe().context("finding the testbed's own program")?;
    // the death signal makes `kill -9` of the holder take the namespaces along; the kernel ties it to the thread
    // that spawns, so this must be the main thread
    let mut child = Command::new("setpriv")
        .args(["--pdeathsig", "KILL", "unshare"])
        .args([
            "--net",
            "--mount",
            "--pid",
            "--fork",
            "--kill-child=SIGKILL",
        ])
        .args(["--propagation", "private", "--mount-proc", "--"])
        .arg(this)
        .arg(INIT)
        .arg(dir)
        .stdin(Stdio::null())
        .spawn()
        .context("starting the namespaces with unshare")?;
    if let Err(error) = await_namespace(&mut child).and_then(|()| slot.connect(child.id())) {
        processes::kill(child.id());
        child.wait().context("waiting for the namespaces")?;
        slot.clean()?;
        return Err(error);
    }
    Ok((slot, child))
}

/// Waits until the child has left the host's network namespace.
fn await_namespace(child: &mut Child) -> Result<()> {
    let ours = fs::read_link("/proc/self/ns/net").context("reading the network namespace")?;
    let theirs = format!("/proc/{}/ns/net", child.id());
    let give_up = Instant::now() + Duration::from_secs(10);
    loop {
        if let Some(status) = child.try_wait().context("waiting for unshare")? {
            bail!(
                "unshare ended with {status}: creating namespaces is not allowed here (a container needs --privileged)"
            );
        }
        if fs::read_link(&theirs).is_ok_and(|theirs| theirs != ours) {
            return Ok(());
        }
        if Instant::now() > give_up {
            bail!("unshare did not create the namespaces within 10 s");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Pid 1 of the namespaces: starts the supervisor and reaps every orphan until the supervisor ends.
pub(crate) fn init(dir: &Path) -> Result<u8> {
    use rustix::process::{WaitOptions, wait};
    let this = std::env::current_exe().context("finding the testbed's own program")?;
    let supervisor = Command::new(this)
        .arg(SUPERVISE)
        .arg(dir)
        .stdin(Stdio::null())
        .spawn()
        .context("starting the supervisor")?;
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status)))
                if pid.as_raw_nonzero().get().unsigned_abs() == supervisor.id() =>
            {
                let code = status.exit_status().and_then(|c| u8::try_from(c).ok());
                return Ok(code.unwrap_or(1));
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).context("waiting for children"),
        }
    }
}
