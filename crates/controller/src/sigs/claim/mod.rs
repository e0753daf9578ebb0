//! The controller of `SandboxClaim`: a sandbox for whoever asks, from stock where there is one.
//!
//! [`decide`](decide::decide) says what is to be done next, [`run`] does it.

mod current;
pub mod decide;
pub mod find;
pub mod ledger;
mod metadata;
mod provision;
mod run;
mod status;
pub mod view;

pub use run::Options;
pub(crate) use run::{CONTROLLER, Claims};
pub(crate) use status::concerns;

pub(crate) const KIND: &str = "SandboxClaim";

#[cfg(test)]
mod tests;
