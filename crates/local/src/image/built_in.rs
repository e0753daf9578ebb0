//! The images that are built in: this machine's programs over a system directory of our own.
//!
//! `/usr` is the host's, as the lower directory of an overlay. `/etc` is written anew; of the host's only goes in what
//! its programs cannot do without, and nothing that tells who or where the host is.

mod agent;
mod skeleton;

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use oci_spec::distribution::Reference;
use serde_json::json;

pub(super) use agent::{WORKSPACE, config as runtime_config, files as runtime_files};

use super::digest::Digest;
use super::document::{Config, Platform};
use super::error::Error;
use super::store::Store;
use super::{Daemon, Image, Overlay};

/// Counts up whenever a layer becomes another one from the same host.
const RECIPE: u32 = 2;

/// Ends at SIGTERM at once. A shell that is process 1 has to set a trap, or the kernel drops the signal, and to wait for a
/// child, or the trap comes when the child has ended; meanwhile it reaps what others leave.
const REST: &str = "trap 'exit 0' TERM INT; while :; do sleep 2147483647 & wait $!; done";

const PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Where `sandbar/base` has the daemon of sandboxes.
const DAEMON: &str = "/opt/sandbar/runtime";

/// The daemon answers clients of E2B and, where they expect it, those of agent-sandbox's runtimes.
const SERVE: [&str; 7] = [
    DAEMON,
    "--legacy-port",
    "8888",
    "--sandboxd-port",
    "8080",
    "--sandboxd-port",
    "9090",
];

/// What the root of a host has beside `/usr` that programs need.
const TOPS: [&str; 6] = ["bin", "sbin", "lib", "lib32", "lib64", "libx32"];

/// An image that is built in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum BuiltIn {
    /// What a sandbox runs that says nothing else.
    Base,
    /// What a sidecar runs to bring the daemon into the container beside it.
    Runtime,
}

/// What only one of them has, by its absolute path.
type Addition = (&'static str, Content);

pub(super) enum Content {
    /// Everybody may execute it.
    Program(&'static [u8]),
    Link(&'static str),
    /// Of the image's user.
    Directory,
}

impl BuiltIn {
    const ALL: [Self; 2] = [Self::Base, Self::Runtime];

    /// Those that there are: without a daemon there is nothing to bring.
    pub(super) fn all(daemon: Option<Daemon>) -> impl Iterator<Item = Self> {
        let has = move |image: &Self| *image == Self::Base || daemon.is_some();
        Self::ALL.into_iter().filter(has)
    }

    /// The one that a reference means.
    pub(super) fn of(reference: &Reference, daemon: Option<Daemon>) -> Option<Self> {
        let name = reference.whole();
        let is = |image: &Self| reference.digest().is_none() && name == image.name();
        Self::all(daemon).find(is)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Base => "docker.io/sandbar/base:latest",
            Self::Runtime => "docker.io/sandbar/runtime:latest",
        }
    }

    fn config(self, daemon: Option<Daemon>) -> Config {
        let text = |list: &[&str]| list.iter().map(|&text| text.to_owned()).collect();
        match self {
            Self::Base => Config {
                env: text(&[PATH, "HOME=/home/user", "LANG=C.UTF-8"]),
                cmd: match daemon {
                    Some(_) => text(&SERVE),
                    None => text(&["/bin/sh", "-c", REST]),
                },
                user: "user".to_owned(),
                working_dir: "/home/user".to_owned(),
                ..Config::default()
            },
            Self::Runtime => Config {
                env: text(&[PATH]),
                ..agent::config()
            },
        }
    }

    fn additions(self, daemon: Option<Daemon>) -> Vec<Addition> {
        let Some(Daemon(program)) = daemon else {
            return Vec::new();
        };
        match self {
            Self::Base => vec![
                (DAEMON, Content::Program(program)),
                ("/app", Content::Directory),
                ("/workspace", Content::Directory),
            ],
            Self::Runtime => agent::files(program).into(),
        }
    }

    /// The text whose digest is the id of the image: what it depends on.
    fn id(self, host: &Path, layout: &Layout, daemon: Option<Daemon>) -> Digest {
        let text = json!({
            "architecture": Platform::here().architecture,
            "os": "linux",
            "config": self.config(daemon),
            "rootfs": {"type": "layers", "diff_ids": []},
            "sandbar.dev/made-of": made_of(host, layout, daemon),
        });
        Digest::of(text.to_string().as_bytes())
    }

    /// The image, whose layer is made if it is not there. `host` is the root of the machine.
    pub(super) fn image(
        self,
        store: &Store,
        host: &Path,
        daemon: Option<Daemon>,
    ) -> Result<Image, Error> {
        let layout = Layout::of(host);
        let id = self.id(host, &layout, daemon);
        let layer = store.base(id.hex());
        if !layer.is_dir() {
            self.make(store, host, &layout, daemon, &layer)?;
            let current = Self::all(daemon).map(|one| one.id(host, &layout, daemon));
            store.keep_bases(&current.collect::<Vec<_>>())?;
        }
        Ok(Image {
            name: self.name().to_owned(),
            id: id.to_string(),
            digest: None,
            config: self.config(daemon),
            layers: vec![layer],
            overlays: layout
                .overlays
                .iter()
                .map(|top| Overlay {
                    at: Path::new("/").join(top),
                    lower: host.join(top),
                })
                .collect(),
            bytes: 0,
            taken: 0,
            is_built_in: true,
        })
    }

    fn make(
        self,
        store: &Store,
        host: &Path,
        layout: &Layout,
        daemon: Option<Daemon>,
        layer: &Path,
    ) -> Result<(), Error> {
        let scratch = store.scratch_directory()?;
        let made = skeleton::make(host, layout, &scratch)
            .and_then(|()| skeleton::add(&self.additions(daemon), &scratch))
            .map_err(|source| Error::io("make a built-in layer in", &scratch, source));
        let moved = made.and_then(|()| match fs::rename(&scratch, layer) {
            // another process was faster
            Err(_) if layer.is_dir() => Ok(()),
            moved => moved.map_err(|source| Error::io("put in place", layer, source)),
        });
        store.discard(&[scratch])?;
        moved
    }
}

/// How a host lays out its programs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Layout {
    /// Links in the root, such as `bin` to `usr/bin`.
    links: Vec<(&'static str, PathBuf)>,
    /// Directories in the root that are overlays of the host's.
    overlays: Vec<&'static str>,
}

impl Layout {
    fn of(host: &Path) -> Self {
        let mut layout = Self::default();
        if host.join("usr").is_dir() {
            layout.overlays.push("usr");
        }
        for top in TOPS {
            let path = host.join(top);
            match fs::read_link(&path) {
                Ok(target) if is_program_directory(&target) => layout.links.push((top, target)),
                _ if path.is_dir() => layout.overlays.push(top),
                _ => {}
            }
        }
        layout
    }
}

fn is_program_directory(target: &Path) -> bool {
    let inside = target.strip_prefix("/").unwrap_or(target);
    let first = inside.iter().next().and_then(|part| part.to_str());
    let is_plain = inside.iter().all(|part| part != "..");
    is_plain && first.is_some_and(|first| first == "usr" || TOPS.contains(&first))
}

/// What the layer depends on: another recipe or other libraries make another image.
fn made_of(host: &Path, layout: &Layout, daemon: Option<Daemon>) -> String {
    let libraries = fs::metadata(host.join("etc/ld.so.cache"))
        .map(|file| format!("{} {}.{}", file.len(), file.mtime(), file.mtime_nsec()))
        .unwrap_or_default();
    let is_root = rustix::process::geteuid().is_root();
    let daemon = daemon.map(|Daemon(program)| Digest::of(program));
    format!("{RECIPE} {is_root} {libraries} {layout:?} {daemon:?}")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use super::super::Daemon;
    use super::{BuiltIn, Layout};

    #[test]
    fn a_built_in_image_has_one_name() {
        let (base, runtime) = (Some(BuiltIn::Base), Some(BuiltIn::Runtime));
        for (name, with_daemon, without) in [
            ("sandbar/base", base, base),
            ("sandbar/base:latest", base, base),
            ("docker.io/sandbar/base:latest", base, base),
            ("sandbar/base:1", None, None),
            ("base", None, None),
            ("registry.example/sandbar/base", None, None),
            ("sandbar/runtime", runtime, None),
        ] {
            let name = name.parse().unwrap();
            let daemon = Some(Daemon(b"program"));
            assert_eq!(BuiltIn::of(&name, daemon), with_daemon, "{name}");
            assert_eq!(BuiltIn::of(&name, None), without, "{name}");
        }
    }

    #[test]
    fn a_host_is_taken_as_it_is_laid_out() {
        let host = tempfile::tempdir().unwrap();
        for directory in ["usr/bin", "usr/lib", "lib64"] {
            std::fs::create_dir_all(host.path().join(directory)).unwrap();
        }
        symlink("usr/bin", host.path().join("bin")).unwrap();
        symlink("/usr/sbin", host.path().join("sbin")).unwrap();
        symlink("../secret", host.path().join("lib")).unwrap();
        let layout = Layout::of(host.path());
        let links = [
            ("bin", Path::new("usr/bin")),
            ("sbin", Path::new("/usr/sbin")),
        ];
        let links = links.map(|(from, to)| (from, to.to_owned()));
        assert_eq!(layout.links, links);
        assert_eq!(layout.overlays, ["usr", "lib64"]);
    }
}
