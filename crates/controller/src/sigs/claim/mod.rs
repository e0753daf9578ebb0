//! The controller of `SandboxClaim`: a sandbox for whoever asks, from stock where there is one.

mod run;
pub mod view;

pub use run::Options;
pub(crate) use run::{CONTROLLER, Claims, concerns};
