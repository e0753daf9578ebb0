//! The controller of `SandboxWarmPool`: members in stock, and rolled when the template changes.

pub mod member;
mod run;
pub mod settings;
pub mod view;

pub use run::Options;
pub(crate) use run::{CONTROLLER, Pools};
