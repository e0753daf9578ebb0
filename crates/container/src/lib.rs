//! Linux containers: a description becomes running processes that outlive whoever asked for them.
//!
//! Three processes share the work. [`Helper`] is a single-threaded copy of the program that only forks. It forks one *shim*
//! per pod, which holds the pod's namespaces, starts its containers, writes their logs and records how they end. What runs in
//! the containers is hostile; what speaks to the shim through its socket is trusted.
//!
//! Nothing of a container is mounted where the rest of the machine sees it: a short-lived child of the shim mounts everything
//! in a mount namespace of its own, which ends with the container. Only cgroups, files and processes can be left over by a
//! shim that was killed, and [`sweep`] removes them.
//!
//! [`isolation`] finds out whether any of this can be done here, and [`users`] whether pods of root can have their own. Where it cannot, a pod may be [`PodSettings::isolated`] in
//! nothing: its containers are then plain processes of this user.

mod birth;
mod build;
mod cgroup;
mod client;
pub mod descriptors;
pub mod helper;
pub mod isolation;
mod process;
mod refusals;
mod remains;
mod seccomp;
mod settings;
mod shim;
mod state;
mod strays;
mod sys;
mod tree;
mod user_namespace;
pub mod users;
mod wire;

pub use client::{Attached, Error, Events, Exec, Helper, Pipe, Pod, Streams};
pub use refusals::{Crowds, Refusals};
pub use remains::{Remains, SweepError, has_shim, kill_shim, remains, sweep};
pub use settings::{
    Capabilities, ContainerSettings, ExecSettings, IdMap, Limits, Mount, MountSource, Overlay,
    PodSettings, Root, Seccomp, TerminalSize, User, UserNamespace,
};
pub use state::{ContainerState, Exit};
pub use tree::remove_tree;
pub use wire::{Event, Started};
