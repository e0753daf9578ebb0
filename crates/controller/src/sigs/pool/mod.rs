//! The controller of `SandboxWarmPool`: members in stock, and rolled when the template changes.
//!
//! The engine plans; [`member`] and [`settings`] say it what there is and what is wanted, [`body`] what to write.

mod act;
mod body;
pub mod history;
pub mod member;
mod memory;
mod refill;
mod report;
mod run;
pub mod settings;
mod status;
pub mod view;

pub(crate) use report::TOLD_AFTER;
pub use run::Options;
pub(crate) use run::{CONTROLLER, Pools};
