//! What of a changed template a running pod can take, and when it has taken it.
//!
//! [`diff`] judges two templates; [`Changes::steps`] says what to write, [`Intent`] what to remember before writing, and
//! [`progress`] when it is done.

mod changes;
mod compare;
mod complete;
mod resources;
#[cfg(test)]
mod tests;

use std::fmt;

use serde_json::Value;

pub use changes::{Changes, ImageChange, List, ResizeChange, Step};
pub use complete::{Before, Failure, Intent, Progress, Sizes, Trouble, Waiting, progress};
pub use resources::{Qos, Resources};

/// What a cluster can do to running pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Platform {
    /// Where resources are written, if they can be changed.
    pub resize: Option<ResizeVia>,
    pub resizes_sidecars: bool,
    pub resizes_whole_pods: bool,
    /// A memory limit can be lowered or added only by restarting the container.
    pub memory_limits_restart: bool,
    /// Containers may have a restart policy of their own.
    pub restart_policy_per_container: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResizeVia {
    /// An ordinary update of the pod.
    Pod,
    /// The subresource `resize`.
    Subresource,
}

impl Platform {
    /// Kubernetes 1.`minor`. Whether it resizes at all is found out by discovery: the subresource is listed, or before 1.32
    /// the gate is known to be on.
    pub fn of(minor: u32, can_resize: bool) -> Self {
        let via = match minor {
            ..27 => None,
            27..32 => Some(ResizeVia::Pod),
            32.. => Some(ResizeVia::Subresource),
        };
        Self {
            resize: via.filter(|_| can_resize),
            resizes_sidecars: minor >= 33,
            resizes_whole_pods: minor >= 36,
            memory_limits_restart: minor == 33,
            restart_policy_per_container: minor >= 35,
        }
    }
}

/// What becomes of a running pod whose template changed. The heaviest part of a change names it: an [`Verdict::Image`] may
/// also resize and set metadata, a [`Verdict::Resize`] may also set metadata.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// Both templates mean the same pod.
    None,
    Metadata(Changes),
    Resize(Changes),
    Image(Changes),
    Recreate {
        /// At least one.
        why: Vec<Why>,
    },
}

impl Verdict {
    /// What is to be changed in place; nothing if there is nothing to change or the pod must be replaced.
    pub fn changes(&self) -> Option<&Changes> {
        match self {
            Self::Metadata(changes) | Self::Resize(changes) | Self::Image(changes) => Some(changes),
            Self::None | Self::Recreate { .. } => None,
        }
    }
}

/// Why a running pod cannot take a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// The field of the template differs, and no pod can change it.
    Immutable(String),
    /// Containers were added, removed, renamed or reordered.
    Containers(List),
    /// It has run already.
    InitContainer {
        container: String,
    },
    NoImage {
        container: String,
    },
    /// A restart that fails halfway would not be tried again.
    RestartPolicy {
        container: String,
        policy: String,
    },
    /// A variable shows metadata of the pod, and only a restart refreshes it.
    VariableFromMetadata {
        container: String,
        key: String,
    },
    CannotResize,
    CannotResizeSidecar {
        container: String,
    },
    CannotResizePod,
    CannotResizeOnWindows,
    /// Only processors and memory can be resized.
    OtherResource {
        of: String,
        resource: String,
    },
    ResourceRemoved {
        of: String,
        resource: String,
    },
    MemoryLimit {
        container: String,
    },
    QosClass {
        from: Qos,
        to: Qos,
    },
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Immutable(path) => write!(f, "{path} cannot change in a running pod"),
            Self::Containers(list) => {
                let list = list.name();
                write!(f, "spec.{list} were added, removed, renamed or reordered")
            }
            Self::InitContainer { container } => {
                write!(f, "init container {container} has run already")
            }
            Self::NoImage { container } => write!(f, "container {container} would have no image"),
            Self::RestartPolicy { container, policy } => {
                write!(
                    f,
                    "container {container} has restart policy {policy}, only Always is safe"
                )
            }
            Self::VariableFromMetadata { container, key } => {
                write!(
                    f,
                    "a variable of container {container} shows {key}, and it is not restarted"
                )
            }
            Self::CannotResize => f.write_str("the cluster cannot resize running pods"),
            Self::CannotResizeSidecar { container } => {
                write!(f, "the cluster cannot resize sidecar {container}")
            }
            Self::CannotResizePod => {
                f.write_str("the cluster cannot resize resources of whole pods")
            }
            Self::CannotResizeOnWindows => f.write_str("pods on Windows cannot be resized"),
            Self::OtherResource { of, resource } => {
                write!(f, "{resource} of {of} cannot be resized")
            }
            Self::ResourceRemoved { of, resource } => {
                write!(
                    f,
                    "a request or limit of {resource} of {of} cannot be removed"
                )
            }
            Self::MemoryLimit { container } => {
                write!(
                    f,
                    "a lower or new memory limit of container {container} needs its resize policy to restart it"
                )
            }
            Self::QosClass { from, to } => {
                write!(f, "the QoS class would change from {from:?} to {to:?}")
            }
        }
    }
}

/// Compares two templates of a pod (`metadata` and `spec`). Of metadata only labels and annotations count.
pub fn diff(old: &Value, new: &Value, platform: &Platform) -> Verdict {
    let (changes, why) = compare::compare(old, new, platform);
    if !why.is_empty() {
        return Verdict::Recreate { why };
    }
    if !changes.images.is_empty() {
        Verdict::Image(changes)
    } else if !changes.resizes.is_empty() {
        Verdict::Resize(changes)
    } else if changes.metadata.is_some() {
        Verdict::Metadata(changes)
    } else {
        Verdict::None
    }
}
