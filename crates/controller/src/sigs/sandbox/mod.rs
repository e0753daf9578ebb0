//! The controller of `Sandbox`: a pod, its service and its volumes, as the sandbox asks.
//!
//! [`decide`](decide::decide) says what is to be done next, [`run`] does it.

pub mod decide;
mod parts;
mod run;
mod status;
pub mod view;

pub use run::Options;
pub(crate) use run::{CONTROLLER, Sandboxes};

#[cfg(test)]
mod tests;
