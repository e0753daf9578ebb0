//! What this machine is, and what a node has on it outside of its directory.

use std::{
    collections::BTreeMap,
    fs, io,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    time::Duration,
};

use futures::future::try_join_all;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use rustix::{fs::statvfs, system::uname};
use sha2::{Digest as _, Sha256};
use tokio::task::spawn_blocking;

use super::{NAME, Removed, StartError, directories, end, recover, site::Site, volumes};
use crate::{kubelet::node::Machine, network};

/// More pods than this nobody runs on one machine.
const PODS: &str = "1000";
/// The label that says what keeps pods apart: `namespaces`, or `none`.
const ISOLATION: &str = "sandbar.dev/isolation";
const SHARED_MEMORY: &str = "/dev/shm";
/// How long pods have to end when every trace of them is to go.
const GRACE: Duration = Duration::from_secs(2);

/// The node as its object describes it.
pub(super) fn describe(site: &Site) -> Machine {
    let system = uname();
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let pretty = release
        .lines()
        .find_map(|line| line.strip_prefix("PRETTY_NAME="))
        .map(|name| name.trim_matches('"').to_owned());
    Machine {
        name: NAME.to_owned(),
        address: site.ways.host_ip().parse().unwrap_or(Ipv4Addr::LOCALHOST),
        capacity: site.allocatable.clone(),
        labels: labels(site.is_isolated),
        runtime: format!("sandbar://{}", env!("CARGO_PKG_VERSION")),
        kernel: system.release().to_string_lossy().into_owned(),
        system: pretty.unwrap_or_else(|| "Linux".to_owned()),
    }
}

/// Says to whoever looks at the node what keeps its pods apart.
fn labels(is_isolated: bool) -> BTreeMap<String, String> {
    let kind = if is_isolated { "namespaces" } else { "none" };
    [(ISOLATION.to_owned(), kind.to_owned())].into()
}

pub(super) fn capacity(directory: &Path) -> BTreeMap<String, Quantity> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let memory = memory
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix("kB"))
        .map_or_else(
            || "1Gi".to_owned(),
            |kilobytes| format!("{}Ki", kilobytes.trim()),
        );
    let disk = statvfs(directory).map_or(0, |disk| disk.f_blocks.saturating_mul(disk.f_frsize));
    [
        ("cpu", cores.to_string()),
        ("memory", memory),
        ("ephemeral-storage", format!("{}Ki", disk / 1024)),
        ("pods", PODS.to_owned()),
    ]
    .map(|(name, amount)| (name.to_owned(), Quantity(canonical(amount))))
    .into()
}

/// As the server writes it: a node that says it otherwise would find its status changed by somebody else again and again.
fn canonical(amount: String) -> String {
    quantity::Quantity::parse(&amount).map_or(amount, |amount| amount.to_string())
}

/// The same for the same directory, and no other's.
fn instance(directory: &Path) -> String {
    let hash = Sha256::digest(directory.as_os_str().as_encoded_bytes());
    let hex: String = hash
        .iter()
        .take(6)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("sandbar-{hex}")
}

/// The cgroup that all pods of the node are in.
pub(super) fn cgroup(directory: &Path) -> String {
    instance(directory)
}

/// The cgroup of one of them, within that of the node.
pub(super) fn pod_cgroup(uid: &str) -> String {
    format!("pod-{uid}")
}

/// Where volumes that are kept in memory are. Without rights to the shared place they are on disk.
pub(super) fn memory(directory: &Path, is_root: bool) -> PathBuf {
    match is_root && Path::new(SHARED_MEMORY).is_dir() {
        true => Path::new(SHARED_MEMORY).join(instance(directory)),
        false => directory.join("memory"),
    }
}

/// Ends what runs, and removes all that the node has on this machine.
pub(super) async fn remove(directory: &Path) -> Result<Removed, StartError> {
    let pods = directory.join("pods");
    let uids = directories(&pods);
    let ended = uids.iter().map(async |uid| {
        let shim = pods.join(uid).join("shim");
        if let Ok(pod) = recover::reach(&shim).await {
            // one that cannot be stopped is swept
            let _ = pod.stop(&[], GRACE).await;
        }
        end::settle(&shim).await;
        match container::has_shim(&shim) {
            true => Err(StartError::Directory {
                path: pods.join(uid),
                source: io::Error::other("what runs there does not end; try again when it has"),
            }),
            false => Ok(()),
        }
    });
    try_join_all(ended).await?;
    network::remove(directory).await?;
    let is_root = rustix::process::geteuid().is_root();
    let (owned, memory) = (directory.to_owned(), memory(directory, is_root));
    let removed = spawn_blocking(move || {
        for pod in directories(&memory) {
            // what cannot be removed is told of when all of it is to go
            let _ = volumes::memory::remove(&memory.join(pod));
        }
        for path in [&owned, &memory] {
            if path.exists() {
                container::remove_tree(path).map_err(|source| StartError::Directory {
                    path: path.clone(),
                    source,
                })?;
            }
        }
        Ok::<_, StartError>(())
    });
    removed.await.unwrap_or(Ok(()))?;
    Ok(Removed { pods: uids.len() })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::capacity;

    #[test]
    fn what_the_machine_has_is_said_as_the_server_says_it() {
        for (name, amount) in capacity(Path::new("/")) {
            let read = quantity::Quantity::parse(&amount.0).unwrap();
            assert_eq!(read.to_string(), amount.0, "{name}");
        }
        assert_eq!(capacity(Path::new("/"))["pods"].0, "1k");
    }
}
