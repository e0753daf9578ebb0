//! The controller of `SandboxTemplate`: a label and a network policy.
//!
//! [`decide`](decide::decide) says what is to be done next, [`run`] does it.

pub mod decide;
mod policy;
mod run;
pub mod view;

pub(crate) use policy::template_of;
pub use run::Options;
pub(crate) use run::{CONTROLLER, Templates};

#[cfg(test)]
mod tests;
