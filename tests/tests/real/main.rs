//! The CRDs on a real kube-apiserver, seen through the real kubectl.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bad_input;
mod cluster;
mod core_schema;
mod defaults;
mod examples;
mod kubectl;
