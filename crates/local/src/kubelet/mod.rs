//! What every node has in common, whether its pods run or only pretend to.
//!
//! `run` watches, schedules and sends; `plan`, `status`, `container` and `node` are pure: what is written about pods and
//! nodes, in the words of a kubelet. [`run::Keeper`] is what a node does with its pods.

pub(crate) mod act;
pub(crate) mod container;
pub(crate) mod node;
pub(crate) mod plan;
pub(crate) mod resize;
pub(crate) mod roster;
pub(crate) mod run;
pub(crate) mod status;

#[cfg(test)]
mod tests;
