//! Where things are kept on disk: the cache, and in it one directory per instance.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

/// Longest instance name; it ends up in messages and file names only.
const MAX_NAME: usize = 60;

/// Between the checkout's name and a random end in the names of clusters that one test has for itself.
pub(crate) const OWN: &str = "-own-";

/// The cache directory, created and without symbolic links: the mount namespace hides `/tmp` and `/var`, and a
/// path through a link there would then lead nowhere.
pub(crate) fn cache_dir() -> Result<PathBuf> {
    let dir = if let Some(dir) = set_var("SANDBAR_TESTBED_CACHE") {
        PathBuf::from(dir)
    } else if let Some(dir) = set_var("XDG_CACHE_HOME") {
        Path::new(&dir).join("sandbar-testbed")
    } else if let Some(home) = set_var("HOME") {
        Path::new(&home).join(".cache/sandbar-testbed")
    } else {
        bail!(
            "no place for the cache: HOME is not set (set SANDBAR_TESTBED_CACHE to a directory with about 3 GB free)"
        );
    };
    fs::create_dir_all(&dir)
        .with_context(|| format!("creating the cache directory {}", dir.display()))?;
    dir.canonicalize()
        .with_context(|| format!("resolving the cache directory {}", dir.display()))
}

fn set_var(name: &str) -> Option<std::ffi::OsString> {
    std::env::var_os(name).filter(|v| !v.is_empty())
}

/// What a kubectl that was only given the kubeconfig remembers of a server.
pub(crate) fn remembered_discovery(node: std::net::Ipv4Addr) -> Option<PathBuf> {
    let home = PathBuf::from(set_var("HOME")?);
    Some(home.join(format!(".kube/cache/discovery/{node}_6443")))
}

/// One cluster: its name and the paths that follow from it.
#[derive(Debug, Clone)]
pub(crate) struct Instance {
    pub(crate) name: String,
    run: PathBuf,
    cache: PathBuf,
}

impl Instance {
    pub(crate) fn new(name: &str) -> Result<Self> {
        let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if name.is_empty() || name.len() > MAX_NAME || !name.chars().all(fits) {
            bail!(
                "instance name {name:?} does not fit: use 1 to {MAX_NAME} lower-case letters, digits and dashes"
            );
        }
        let cache = cache_dir()?;
        let run = cache.join("run");
        fs::create_dir_all(&run).with_context(|| format!("creating {}", run.display()))?;
        Ok(Self {
            name: name.to_owned(),
            run,
            cache,
        })
    }

    /// All instances that have a directory.
    pub(crate) fn all() -> Result<Vec<Self>> {
        let run = cache_dir()?.join("run");
        let mut found = Vec::new();
        let Ok(entries) = fs::read_dir(&run) else {
            return Ok(found);
        };
        for entry in entries.flatten() {
            if entry.path().is_dir()
                && let Ok(instance) = Self::new(&entry.file_name().to_string_lossy())
            {
                found.push(instance);
            }
        }
        found.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(found)
    }

    /// Everything the instance writes; gone after `down`.
    pub(crate) fn dir(&self) -> PathBuf {
        self.run.join(&self.name)
    }

    /// Held exclusively while someone starts or stops the instance.
    pub(crate) fn lock_file(&self) -> PathBuf {
        self.run.join(format!("{}.lock", self.name))
    }

    /// Held shared by every process that uses the instance. Outside the directory, because a newcomer waits on it
    /// while the directory is being removed.
    pub(crate) fn lease_file(&self) -> PathBuf {
        self.run.join(format!("{}.lease", self.name))
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.dir().join("kubeconfig")
    }

    /// kubectl remembers what a server serves by its address, which the next cluster of the slot will have.
    pub(crate) fn kubectl_cache(&self) -> PathBuf {
        self.dir().join("kubectl-cache")
    }

    pub(crate) fn logs(&self) -> PathBuf {
        self.dir().join("logs")
    }

    /// Where the logs of a failed start are kept.
    pub(crate) fn last_failure(&self) -> PathBuf {
        // each of these has a new name, and only the last failure is kept
        let name = if self.name.contains(OWN) {
            "own"
        } else {
            &self.name
        };
        self.cache.join("last-failure").join(name)
    }
}

/// A name for the checkout at `root`, so that two clones do not meet in one cluster.
pub(crate) fn name_for(root: &Path) -> String {
    let root = root.canonicalize().unwrap_or_else(|_| root.to_owned());
    let last = root
        .file_name()
        .map(|n| n.to_string_lossy().to_lowercase())
        .unwrap_or_default();
    let clean: String = last
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .take(30)
        .collect();
    let hash = short_hash([root.as_os_str().as_encoded_bytes()]);
    format!("{}-{hash}", clean.trim_matches('-'))
        .trim_start_matches('-')
        .to_owned()
}

/// The checkout that the current directory is in, or the current directory itself.
pub(crate) fn checkout() -> Result<PathBuf> {
    let here = std::env::current_dir().context("finding the current directory")?;
    let root = here
        .ancestors()
        .find(|d| d.join(".git").exists() || d.join("Cargo.lock").exists());
    Ok(root.unwrap_or(&here).to_owned())
}

/// Eight hexadecimal digits that change with any part.
pub(crate) fn short_hash<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hex(&hash.finalize())[..8].to_owned()
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .fold(String::with_capacity(bytes.len() * 2), |mut out, b| {
            // writing to a String cannot fail
            let _ = write!(out, "{b:02x}");
            out
        })
}

/// Writes a file so that a reader sees the old or the new content, never half of it.
pub(crate) fn write_atomically(path: &Path, content: &[u8]) -> Result<()> {
    let new = path.with_extension("new");
    fs::write(&new, content).with_context(|| format!("writing {}", new.display()))?;
    fs::rename(&new, path).with_context(|| format!("replacing {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::{name_for, short_hash};
    use std::path::Path;

    #[test]
    fn two_clones_with_the_same_last_component_get_different_names() {
        let (a, b) = (
            name_for(Path::new("/a/sandbar")),
            name_for(Path::new("/b/sandbar")),
        );
        assert!(
            a.starts_with("sandbar-") && b.starts_with("sandbar-"),
            "{a} {b}"
        );
        assert_ne!(a, b);
        assert!(!name_for(Path::new("/x/Ünï_côde.")).starts_with('-'));
    }

    #[test]
    fn a_hash_depends_on_where_one_part_ends() {
        assert_ne!(
            short_hash([b"ab".as_slice(), b"c"]),
            short_hash([b"a".as_slice(), b"bc"])
        );
    }
}
