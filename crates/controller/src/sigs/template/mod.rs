//! The controller of `SandboxTemplate`: a label and a network policy.

mod run;
pub mod view;

pub use run::Options;
pub(crate) use run::{CONTROLLER, Templates};
