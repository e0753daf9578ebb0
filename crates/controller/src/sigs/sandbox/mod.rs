//! The controller of `Sandbox`: a pod, its service and its volumes, as the sandbox asks.
//!
//! [`decide`](decide::decide) says what is to be done next, [`run`] does it.

pub mod compact;
pub mod decide;
mod frame;
pub mod gate;
mod parts;
mod run;
mod service;
mod status;
pub mod update;
pub mod view;

use self::{
    compact::Status,
    view::{Pod, Sandbox},
};
use super::{names, pool::member};
use crate::{
    meta::Key,
    store::{Change, Store},
};

pub use run::Options;
pub(crate) use run::{CONTROLLER, Sandboxes};
pub(crate) use status::{CANNOT_UPDATE, EXPIRED};

/// Whether a change of a pod need not be told to its sandbox. One that is gone or going does nothing about it. Of a member
/// of a pool that is on its way nothing is told yet, and the pass that said nothing comes back.
pub(crate) fn can_wait(sandboxes: &Store<Sandbox>, change: &Change<'_, Pod>) -> bool {
    let owner = |pod: &Pod| Some(pod.meta.key.beside(&pod.meta.owner.as_ref()?.name));
    let mut owners = change.views().filter_map(|pod| owner(pod));
    let can_wait = |key: Key| match sandboxes.get(&key) {
        Some(sandbox) => sandbox.meta.is_deleting || is_untold(&sandbox) && is_only_coming(change),
        None => true,
    };
    owners.all(can_wait)
}

fn is_untold(sandbox: &Sandbox) -> bool {
    let meta = &sandbox.meta;
    meta.is_controlled_by_a(names::EXTENSIONS, member::KIND) && sandbox.status == Status::default()
}

fn is_only_coming(change: &Change<'_, Pod>) -> bool {
    let both = change.before.zip(change.after);
    both.is_some_and(|(before, after)| after.is_only_coming(before))
}

#[cfg(test)]
mod tests;
