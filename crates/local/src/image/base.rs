//! The built-in image `sandbar/base`: this machine's programs over a system directory of our own.
//!
//! `/usr` is the host's, as the lower directory of an overlay. `/etc` is written anew; of the host's only goes in what
//! its programs cannot do without, and nothing that tells who or where the host is.

mod skeleton;

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use oci_spec::distribution::Reference;
use serde_json::json;

use super::digest::Digest;
use super::document::{Config, Platform};
use super::error::Error;
use super::store::Store;
use super::{Image, Overlay};

/// Counts up whenever the skeleton becomes another one from the same host.
const RECIPE: u32 = 1;

pub(super) const NAME: &str = "docker.io/sandbar/base:latest";

/// Ends at SIGTERM at once. A shell that is process 1 has to set a trap, or the kernel drops the signal, and to wait for a
/// child, or the trap comes when the child has ended; meanwhile it reaps what others leave.
const REST: &str = "trap 'exit 0' TERM INT; while :; do sleep 2147483647 & wait $!; done";

const PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What the root of a host has beside `/usr` that programs need.
const TOPS: [&str; 6] = ["bin", "sbin", "lib", "lib32", "lib64", "libx32"];

/// Whether a reference means the built-in image.
pub(super) fn is(reference: &Reference) -> bool {
    reference.digest().is_none() && reference.whole() == NAME
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

/// The image, whose layer is made if it is not there. `host` is the root of the machine.
pub(super) fn image(store: &Store, host: &Path) -> Result<Image, Error> {
    let layout = Layout::of(host);
    let config = config();
    let text = json!({
        "architecture": Platform::here().architecture,
        "os": "linux",
        "config": &config,
        "rootfs": {"type": "layers", "diff_ids": []},
        "sandbar.dev/made-of": made_of(host, &layout),
    });
    let id = Digest::of(text.to_string().as_bytes());
    let layer = store.base(id.hex());
    if !layer.is_dir() {
        let scratch = store.scratch_directory()?;
        let made = skeleton::make(host, &layout, &scratch)
            .map_err(|source| Error::io("make the layer of sandbar/base in", &scratch, source));
        let moved = made.and_then(|()| match fs::rename(&scratch, &layer) {
            // another process was faster
            Err(_) if layer.is_dir() => Ok(()),
            moved => moved.map_err(|source| Error::io("put in place", &layer, source)),
        });
        store.discard(&[scratch])?;
        moved?;
        store.keep_base(id.hex())?;
    }
    Ok(Image {
        name: NAME.to_owned(),
        id: id.to_string(),
        digest: None,
        config,
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

fn config() -> Config {
    let text = |list: &[&str]| list.iter().map(|&text| text.to_owned()).collect();
    Config {
        env: text(&[PATH, "HOME=/home/user", "LANG=C.UTF-8"]),
        cmd: text(&["/bin/sh", "-c", REST]),
        user: "user".to_owned(),
        working_dir: "/home/user".to_owned(),
        ..Config::default()
    }
}

/// What the layer depends on: another recipe or other libraries make another image.
fn made_of(host: &Path, layout: &Layout) -> String {
    let libraries = fs::metadata(host.join("etc/ld.so.cache"))
        .map(|file| format!("{} {}.{}", file.len(), file.mtime(), file.mtime_nsec()))
        .unwrap_or_default();
    let is_root = rustix::process::geteuid().is_root();
    format!("{RECIPE} {is_root} {libraries} {layout:?}")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use super::{Layout, NAME, is};

    #[test]
    fn the_built_in_image_has_one_name() {
        for (name, expected) in [
            ("sandbar/base", true),
            ("sandbar/base:latest", true),
            (NAME, true),
            ("sandbar/base:1", false),
            ("base", false),
            ("registry.example/sandbar/base", false),
        ] {
            assert_eq!(is(&name.parse().unwrap()), expected, "{name}");
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
