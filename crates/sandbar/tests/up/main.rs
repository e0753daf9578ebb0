//! `sandbar up` as a user runs it: the program itself, with real containers on this machine. Needs root.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod belongings;
mod changes;
mod crashes;
#[path = "../../../../tests/tests/fleet/fleet.rs"]
mod fleet;
mod ground;
mod hostile;
mod instance;
mod instances;
mod pods;
mod probes;
mod sandboxes;
mod scenarios;
