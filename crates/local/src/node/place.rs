//! Where the node keeps what belongs to a pod.

use std::path::{Path, PathBuf};

/// The directory of one pod, by its uid. It goes with the pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PodPlace(PathBuf);

impl PodPlace {
    pub(crate) fn new(pods: &Path, uid: &str) -> Self {
        Self(pods.join(uid))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Sockets and states of the pod's shim.
    pub(crate) fn shim(&self) -> PathBuf {
        self.0.join("shim")
    }

    /// What the node itself has to remember of what the containers live in.
    pub(crate) fn shell_record(&self) -> PathBuf {
        self.0.join("shell.json")
    }

    /// What the node itself has to remember of the last run of a container.
    pub(crate) fn run_record(&self, container: &str) -> PathBuf {
        self.0.join("runs").join(format!("{container}.json"))
    }

    /// Where the shim keeps one run of a container. It starts none whose directory is there.
    pub(crate) fn run(&self, container: &str, attempt: u32) -> PathBuf {
        self.runs(container).join(attempt.to_string())
    }

    /// All runs of a container, with what they wrote to their root file systems.
    pub(crate) fn runs(&self, container: &str) -> PathBuf {
        self.shim().join("containers").join(container)
    }

    pub(crate) fn volumes(&self) -> PathBuf {
        self.0.join("volumes")
    }

    /// Where a container that is not isolated begins, and all that it has of its own. It stays from run to run.
    pub(crate) fn workplace(&self, container: &str) -> PathBuf {
        self.0.join("work").join(container)
    }

    /// Which ids of the machine its users are, if they are its own.
    pub(crate) fn ids(&self) -> PathBuf {
        self.0.join("ids.json")
    }

    /// `hosts`, `hostname` and `resolv.conf` of all containers.
    pub(crate) fn etc(&self, file: &str) -> PathBuf {
        self.0.join("etc").join(file)
    }

    /// The newest file of the log of one run of a container; older ones are beside it.
    pub(crate) fn log(&self, container: &str, attempt: u32) -> PathBuf {
        self.logs(container).join(format!("{attempt}.log"))
    }

    /// The logs of all runs of a container.
    pub(crate) fn logs(&self, container: &str) -> PathBuf {
        self.0.join("logs").join(container)
    }

    /// What a run of a container may write there is the message of its end.
    pub(crate) fn last_words(&self, container: &str, attempt: u32) -> PathBuf {
        self.all_last_words(container).join(attempt.to_string())
    }

    /// Those of all runs of a container.
    pub(crate) fn all_last_words(&self, container: &str) -> PathBuf {
        self.0.join("last-words").join(container)
    }
}

/// How a status names one run of a container.
pub(crate) fn container_id(uid: &str, container: &str, attempt: u32) -> String {
    format!("sandbar://{uid}.{container}.{attempt}")
}

/// Which run of the container a status names.
pub(crate) fn attempt(container_id: &str) -> Option<u32> {
    let (_, attempt) = container_id.rsplit_once('.')?;
    attempt.parse().ok()
}
