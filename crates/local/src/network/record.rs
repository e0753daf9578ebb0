//! What an instance keeps in its data directory: who it is, and which pod has which address.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder};
use std::io::{self, ErrorKind};
use std::net::Ipv4Addr;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};

use super::error::NetworkError;
use super::wire::Instance;

#[derive(Debug, Clone)]
pub(super) struct Record {
    instance: PathBuf,
    pods: PathBuf,
}

#[derive(Debug, Serialize, Deserialize)]
struct Written {
    id: String,
    network: String,
}

impl Record {
    pub(super) fn at(directory: &Path) -> Record {
        Record {
            instance: directory.join("network.json"),
            pods: directory.join("network"),
        }
    }

    pub(super) fn make(&self) -> Result<(), NetworkError> {
        let made = DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.pods);
        made.map_err(|source| written(&self.pods, source))
    }

    pub(super) fn instance(&self) -> Result<Option<Instance>, NetworkError> {
        let Some(text) = read(&self.instance)? else {
            return Ok(None);
        };
        let damaged = || NetworkError::Damaged {
            path: self.instance.clone(),
        };
        let found: Written = serde_json::from_str(&text).map_err(|_| damaged())?;
        let range = found.network.parse::<Ipv4Net>().map_err(|_| damaged())?;
        let digits = found.id.bytes().all(|byte| byte.is_ascii_hexdigit());
        if found.id.len() != 8 || !digits {
            return Err(damaged());
        }
        Ok(Some(Instance {
            id: found.id,
            range,
        }))
    }

    pub(super) fn write_instance(&self, instance: &Instance) -> Result<(), NetworkError> {
        let text = serde_json::json!({"id": instance.id, "network": instance.range.to_string()});
        replace(&self.instance, &format!("{text}\n"))
    }

    pub(super) fn pods(&self) -> Result<BTreeMap<String, Ipv4Addr>, NetworkError> {
        let cannot = |source| NetworkError::Read {
            path: self.pods.clone(),
            source,
        };
        let mut pods = BTreeMap::new();
        for entry in fs::read_dir(&self.pods).map_err(cannot)? {
            let path = entry.map_err(cannot)?.path();
            let name = path.file_name().and_then(|name| name.to_str());
            // what is not a name of a pod was being written when the process died
            let Some(name) = name.filter(|name| is_name(name)) else {
                continue;
            };
            let text = read(&path)?.unwrap_or_default();
            let Ok(address) = text.trim().parse() else {
                return Err(NetworkError::Damaged { path });
            };
            pods.insert(name.to_owned(), address);
        }
        Ok(pods)
    }

    pub(super) fn write_pod(&self, pod: &str, address: Ipv4Addr) -> Result<(), NetworkError> {
        replace(&self.pods.join(pod), &format!("{address}\n"))
    }

    pub(super) fn remove_pod(&self, pod: &str) -> Result<(), NetworkError> {
        remove(&self.pods.join(pod), |path| fs::remove_file(path))
    }

    /// Forgets everything.
    pub(super) fn remove(&self) -> Result<(), NetworkError> {
        remove(&self.pods, |path| fs::remove_dir_all(path))?;
        remove(&self.instance, |path| fs::remove_file(path))
    }
}

/// Whether a pod can be called so: its record is a file of that name.
pub(super) fn is_name(pod: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    (1..=200).contains(&pod.len()) && pod.bytes().all(plain)
}

fn read(path: &Path) -> Result<Option<String>, NetworkError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(source) => Err(NetworkError::Read {
            path: path.to_owned(),
            source,
        }),
    }
}

/// The process may die at any time; a loss of power takes the links away, too, so nothing is synced.
fn replace(path: &Path, text: &str) -> Result<(), NetworkError> {
    let temporary = path.with_added_extension("new");
    let result = fs::write(&temporary, text).and_then(|()| fs::rename(&temporary, path));
    result.map_err(|source| written(path, source))
}

fn remove(path: &Path, remove: impl Fn(&Path) -> io::Result<()>) -> Result<(), NetworkError> {
    match remove(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(written(path, error)),
        _ => Ok(()),
    }
}

fn written(path: &Path, source: io::Error) -> NetworkError {
    NetworkError::Write {
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::{NetworkError, Record, is_name};

    #[test]
    fn only_names_that_stay_in_their_directory_are_names() {
        assert!(is_name("3f0c9d1e-8d1e-4f5e-9a55-6f5b3f0c9d1e"));
        for name in ["", ".", "..", "a/b", "a.new", "a\0b", &"a".repeat(201)] {
            assert!(!is_name(name), "{name}");
        }
    }

    #[test]
    fn what_was_written_is_read_back_and_what_was_not_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let record = Record::at(directory.path());
        record.make().unwrap();
        assert!(record.instance().unwrap().is_none());
        record.write_pod("a", [10, 88, 0, 2].into()).unwrap();
        std::fs::write(directory.path().join("network/b.new"), "10.").unwrap();
        assert_eq!(record.pods().unwrap()["a"].to_string(), "10.88.0.2");
        std::fs::write(directory.path().join("network/c"), "10.").unwrap();
        let error = record.pods().unwrap_err();
        assert!(matches!(error, NetworkError::Damaged { .. }), "{error}");
        record.remove().unwrap();
        assert_eq!(directory.path().read_dir().unwrap().count(), 0);
    }
}
