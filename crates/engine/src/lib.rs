//! The decisions of Sandbar, as pure functions.
//!
//! Nothing here reads a clock, calls a server or waits; time comes in as an argument. Inputs are plain values: pod
//! templates and statuses are JSON, so that both API families share every rule.

pub mod budget;
pub mod claim;
pub mod demand;
pub mod expiry;
pub mod in_place;
pub mod member;
pub mod queue;
pub mod revision;
pub mod rollout;

mod image;
mod json;
mod time;
