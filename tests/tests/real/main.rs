//! The CRDs on a real kube-apiserver, seen through the real kubectl.

mod bad_input;
mod cluster;
mod core_schema;
mod defaults;
mod examples;
mod kubectl;
