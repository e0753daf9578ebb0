//! `sandbar up` as a user runs it: the program itself, with real containers on this machine. Needs root.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod agent;
mod belongings;
mod changes;
mod crashes;
mod descriptors;
mod disk;
mod e2b;
mod endings;
mod events;
#[path = "../../../../tests/tests/fleet/fleet.rs"]
mod fleet;
mod forward;
mod ground;
mod hostile;
mod images;
mod instance;
mod instances;
mod kernel;
mod kubectl;
mod links;
mod names;
mod ordinary;
mod places;
mod plain;
mod pods;
mod probes;
mod range;
#[path = "../../../../tests/tests/registry/server.rs"]
#[allow(dead_code, reason = "what spoils a registry is for its own tests")]
mod registry;
mod sandboxes;
mod scenarios;
mod starts;
mod stock;
mod storage;
mod taken;
mod talk;
mod unisolated;
mod users;
