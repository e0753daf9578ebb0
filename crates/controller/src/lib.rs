//! The controllers: they look at objects, let pure functions decide, and write what was decided.
//!
//! [`store`] keeps what is watched, [`queue`] says which object is looked at next, [`write`](mod@write) is the only way
//! to the API server, and [`clock`] is the time of all of them; [`trace`] makes their passes visible elsewhere. A family's
//! module holds one module per kind.

mod attempt;
pub mod brief;
pub mod clock;
pub mod conditions;
pub mod events;

pub mod lease;
pub mod merge;
pub mod meta;
pub mod metrics;
pub mod queue;
pub mod rush;
pub mod sigs;
pub mod store;
#[cfg(test)]
mod testing;
pub mod trace;
mod watch;
pub mod write;
