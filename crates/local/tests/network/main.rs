//! The network of the node, with real links, rules and namespaces. Each test is a process of its own in a network
//! namespace of its own, which plays the host; pods and the world are further namespaces.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod dns;
mod instances;
mod policies;
#[allow(dead_code, reason = "shared with tests that need more of it")]
#[path = "../process/mod.rs"]
mod process;
mod support;
mod ways;
