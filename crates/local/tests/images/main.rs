//! The images of the node: hostile layers, archives of all kinds, removal, registries that misbehave, the built-in one.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bombs;
mod built_in;
mod files;
mod keeping;
mod layers;
mod mounted;
#[path = "../process/mod.rs"]
mod process;
mod strangers;
mod support;
