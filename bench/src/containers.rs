//! How long pods, containers and commands take to start, and what a shim costs. Needs root.
//! `cargo run --release -p bench --bin bench-containers`
//!
//! Containers run the host's own programs. The shims are forked from this very program, as `sandbar` forks its own.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use bench::times::{Times, millis};
use container::{ContainerSettings, ExecSettings, Helper, Overlay, Pod, PodSettings, Root};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

const HELPER: &str = "helper";
/// Pods that start one after the other.
const STARTS: usize = 40;
/// Pods that start together, and run while memory is measured.
const AT_ONCE: usize = 20;

fn main() -> ExitCode {
    // before any thread is there: the helper only forks
    if std::env::args().nth(1).as_deref() == Some(HELPER) {
        return container::helper::run();
    }
    let measured = Runtime::new()
        .context("starting threads")
        .and_then(|runtime| runtime.block_on(measure()));
    match measured {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-containers: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn row(what: &str, measured: &str) {
    println!("{what:<58} {measured:>24}");
}

fn times(what: &str, all: Vec<Duration>) {
    let all = Times::new(all);
    let (middle, last) = (millis(all.median()), millis(all.percentile(99)));
    row(what, &format!("{middle:.1} / {last:.1} ms"));
}

async fn measure() -> Result<()> {
    let stage = Stage::open()?;
    row("what", "p50 / p99");
    one_by_one(&stage).await?;
    let pods = at_once(&stage).await?;
    memory(&pods)?;
    for pod in pods {
        pod.stop(&[], Duration::ZERO).await?;
    }
    Ok(())
}

async fn one_by_one(stage: &Stage) -> Result<()> {
    let [mut shims, mut containers, mut commands, mut ends] = [const { Vec::new() }; 4];
    for number in 0..STARTS {
        let mut since = Instant::now();
        let mut lap = |into: &mut Vec<Duration>| {
            into.push(since.elapsed());
            since = Instant::now();
        };
        let settings = stage.pod(&format!("one{number}"))?;
        let pod = stage.helper.start_pod(&settings).await?;
        lap(&mut shims);
        pod.start(&stage.container(&format!("main{number}")))
            .await?;
        lap(&mut containers);
        let settings = ExecSettings {
            args: vec!["true".to_owned()],
            ..ExecSettings::default()
        };
        let mut exec = pod.exec(&format!("main{number}"), &settings).await?;
        exec.wait().await?;
        lap(&mut commands);
        pod.stop(&[], Duration::ZERO).await?;
        lap(&mut ends);
    }
    times("a pod's shim", shims);
    times("its container, until the program runs", containers);
    times("a command in it, until it has ended", commands);
    times("the end of both", ends);
    Ok(())
}

async fn at_once(stage: &Stage) -> Result<Vec<Pod>> {
    let mut starts = JoinSet::new();
    let begun = Instant::now();
    for number in 0..AT_ONCE {
        let settings = stage.pod(&format!("many{number}"))?;
        let main = stage.container(&format!("many{number}"));
        let helper = Arc::clone(&stage.helper);
        starts.spawn(async move {
            let pod = helper.start_pod(&settings).await?;
            pod.start(&main).await?;
            anyhow::Ok((pod, begun.elapsed()))
        });
    }
    let all: Result<Vec<(Pod, Duration)>> = starts.join_all().await.into_iter().collect();
    let (pods, all) = all?.into_iter().unzip();
    times(&format!("{AT_ONCE} pods at once, from the first"), all);
    Ok(pods)
}

/// The last shim, when there are many to share what is the same.
fn memory(pods: &[Pod]) -> Result<()> {
    let pod = pods.last().context("no pod runs")?;
    let rollup = fs::read_to_string(format!("/proc/{}/smaps_rollup", pod.pid()))?;
    for (line, what) in [
        ("Pss:", "its share of memory"),
        ("Private_Dirty:", "its own"),
    ] {
        let found = rollup.lines().find_map(|text| text.strip_prefix(line));
        let size = found.context("the kernel does not tell the memory of a process")?;
        row(&format!("a shim of {AT_ONCE}: {what}"), size.trim());
    }
    Ok(())
}

/// A helper, and a place for pods.
struct Stage {
    helper: Arc<Helper>,
    dir: TempDir,
    cgroup: String,
}

impl Stage {
    fn open() -> Result<Self> {
        let mut program = Command::new(std::env::current_exe()?);
        program.arg(HELPER);
        let dir = tempfile::tempdir()?;
        make_layer(&dir.path().join("layer")).context("making a root file system")?;
        Ok(Self {
            helper: Arc::new(Helper::spawn(program)?),
            cgroup: format!("sandbar-bench{}", std::process::id()),
            dir,
        })
    }

    fn pod(&self, name: &str) -> Result<PodSettings> {
        let dir = self.dir.path().join(name);
        fs::create_dir(&dir)?;
        Ok(PodSettings {
            dir,
            hostname: name.to_owned(),
            cgroup_parent: self.cgroup.clone(),
            cgroup: name.to_owned(),
            user_namespace: None,
            first: None,
            isolated: true,
            sysctls: BTreeMap::new(),
        })
    }

    fn container(&self, name: &str) -> ContainerSettings {
        let root = Root {
            layers: vec![self.dir.path().join("layer")],
            read_only: false,
        };
        let args = ["sleep", "1000"].map(str::to_owned).to_vec();
        let log = self.dir.path().join(format!("{name}.log"));
        let mut settings = ContainerSettings::new(name, root, args, log);
        settings.overlays = vec![Overlay {
            destination: "/usr".into(),
            layers: vec!["/usr".into()],
            read_only: true,
        }];
        settings
    }
}

/// Programs come from the host.
fn make_layer(layer: &Path) -> Result<()> {
    for dir in ["usr", "tmp", "etc", "proc", "dev", "sys"] {
        fs::create_dir_all(layer.join(dir))?;
    }
    for link in ["bin", "sbin", "lib", "lib64"] {
        if Path::new("/").join(link).is_symlink() {
            symlink(format!("usr/{link}"), layer.join(link))?;
        }
    }
    Ok(())
}
