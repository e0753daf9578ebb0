//! What a real node needs beside Kubernetes: taken from the machine if complete, else from Debian packages that
//! are unpacked into the cache. Installing them would remove a user's docker.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use super::{make_once, on_path};
use crate::command::run;
use crate::paths::short_hash;
use crate::progress::Progress;

const PACKAGES: &[&str] = &[
    "containerd",
    "runc",
    "containernetworking-plugins",
    "busybox-static",
    "iptables",
    "libseccomp2",
    "libxtables12",
    "libip4tc2",
    "libip6tc2",
    "libmnl0",
    "libnftnl11",
    "libnfnetlink0",
    "libnetfilter-conntrack3",
];

const PROGRAMS: &[&str] = &[
    "containerd",
    "containerd-shim-runc-v2",
    "ctr",
    "runc",
    "iptables",
    "iptables-save",
    "iptables-restore",
];

const CNI_PLUGINS: &[&str] = &["ptp", "host-local", "loopback", "portmap"];

/// Where the node's programs are and how to run them.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct NodeTools {
    /// Directories to put in front of `PATH`.
    pub(crate) path: Vec<PathBuf>,
    /// Directories for `LD_LIBRARY_PATH`; empty for programs of the machine itself.
    pub(crate) libraries: Vec<PathBuf>,
    /// Where iptables finds its extensions, if not where it was built to look.
    pub(crate) xtables: Option<PathBuf>,
    pub(crate) cni: PathBuf,
    pub(crate) busybox: PathBuf,
    /// The images that the node knows from the start.
    pub(crate) images: PathBuf,
    /// Directories with `iptables` in the kernel interfaces worth trying, best first; empty if `path` has it.
    pub(crate) iptables: Vec<PathBuf>,
}

impl NodeTools {
    pub(crate) fn map_paths(&mut self, mut f: impl FnMut(&Path) -> PathBuf) {
        let Self {
            path,
            libraries,
            xtables,
            cni,
            busybox,
            images,
            iptables,
        } = self;
        for one in path
            .iter_mut()
            .chain(libraries)
            .chain(xtables)
            .chain(iptables)
        {
            *one = f(one);
        }
        *cni = f(cni);
        *busybox = f(busybox);
        *images = f(images);
    }
}

pub(super) fn ensure(cache: &Path, progress: &mut Progress) -> Result<NodeTools> {
    let name = format!(
        "debian-{}",
        short_hash(PACKAGES.iter().map(|p| p.as_bytes()))
    );
    if !cache.join(&name).is_dir()
        && let Some(tools) = of_machine()
    {
        return Ok(tools);
    }
    let root = make_once(cache, &name, |dir| unpack(dir, progress))?;
    unpacked(&root)
}

/// The machine's own programs, if all are there.
fn of_machine() -> Option<NodeTools> {
    let mut path: Vec<PathBuf> = Vec::new();
    for program in PROGRAMS {
        let dir = on_path(program)?.parent()?.to_owned();
        if !path.contains(&dir) {
            path.push(dir);
        }
    }
    let cni = ["/opt/cni/bin", "/usr/lib/cni", "/usr/libexec/cni"]
        .map(PathBuf::from)
        .into_iter()
        .find(|dir| CNI_PLUGINS.iter().all(|p| dir.join(p).is_file()))?;
    let busybox = on_path("busybox").filter(|p| is_static(p))?;
    Some(NodeTools {
        path,
        libraries: Vec::new(),
        xtables: None,
        cni,
        busybox,
        images: PathBuf::new(),
        iptables: Vec::new(),
    })
}

/// Whether a program runs in an image that has nothing else: one that names an interpreter does not.
fn is_static(program: &Path) -> bool {
    fs::read(program).is_ok_and(|bytes| {
        !bytes
            .windows(8)
            .any(|w| w == b"ld-linux" || w == b"ld-musl-")
    })
}

fn unpack(dir: &Path, progress: &mut Progress) -> Result<()> {
    for program in ["apt-get", "dpkg-deb"] {
        if on_path(program).is_none() {
            bail!(
                "containerd, runc, iptables, busybox (static) and the CNI plugins are neither installed nor can they be fetched without {program}: install them, or use a Debian or Ubuntu machine"
            );
        }
    }
    progress.step("fetching containerd, runc, CNI plugins and iptables from Debian packages");
    let packages = dir.join("packages");
    fs::create_dir(&packages).with_context(|| format!("creating {}", packages.display()))?;
    let download = || {
        let mut apt = Command::new("apt-get");
        // as root apt would drop to a user who may not enter the cache, and warn about it
        apt.current_dir(&packages)
            .args(["-q", "-o", "APT::Sandbox::User=root", "download"]);
        run(apt.args(PACKAGES), "downloading Debian packages")
    };
    if download().is_err() {
        // a machine made from a slim image has no package lists
        run(
            Command::new("apt-get").args(["-q", "update"]),
            "updating Debian's package lists",
        )?;
        download()?;
    }
    for entry in fs::read_dir(&packages).context("listing the downloaded packages")? {
        let package = entry?.path();
        run(
            Command::new("dpkg-deb").arg("-x").arg(&package).arg(dir),
            "unpacking a package",
        )?;
    }
    fs::remove_dir_all(&packages).context("removing the downloaded packages")?;
    link_iptables(dir)
}

/// The package leaves the choice between the kernel's two interfaces to Debian's alternatives; here it is made by
/// the supervisor, which sees which of them the kernel has.
fn link_iptables(dir: &Path) -> Result<()> {
    for kind in ["nft", "legacy"] {
        let links = dir.join(format!("iptables-{kind}"));
        fs::create_dir(&links).with_context(|| format!("creating {}", links.display()))?;
        for family in ["iptables", "ip6tables"] {
            for suffix in ["", "-save", "-restore"] {
                let target = format!("../usr/sbin/{family}-{kind}{suffix}");
                std::os::unix::fs::symlink(target, links.join(format!("{family}{suffix}")))
                    .with_context(|| format!("linking {family}{suffix}"))?;
            }
        }
    }
    Ok(())
}

fn unpacked(root: &Path) -> Result<NodeTools> {
    let first = |candidates: &[PathBuf], what: &str| {
        let found = candidates.iter().map(|c| root.join(c)).find(|c| c.exists());
        found.with_context(|| {
            format!(
                "{what} is missing in {}: remove that directory and try again",
                root.display()
            )
        })
    };
    let triplets = fs::read_dir(root.join("usr/lib")).context("listing the unpacked packages")?;
    let libraries: Vec<PathBuf> = triplets
        .flatten()
        .map(|e| e.path())
        .filter(|p| {
            p.file_name()
                .is_some_and(|n| n.to_string_lossy().contains("-linux-"))
        })
        .collect();
    let library = libraries
        .first()
        .context("the unpacked packages contain no library directory")?;
    Ok(NodeTools {
        path: ["usr/sbin", "usr/bin", "sbin", "bin"]
            .map(|d| root.join(d))
            .to_vec(),
        xtables: Some(library.join("xtables")),
        cni: first(&["usr/lib/cni".into()], "the directory of CNI plugins")?,
        busybox: first(&["bin/busybox".into(), "usr/bin/busybox".into()], "busybox")?,
        images: PathBuf::new(),
        iptables: ["iptables-nft", "iptables-legacy"]
            .map(|d| root.join(d))
            .to_vec(),
        libraries,
    })
}
