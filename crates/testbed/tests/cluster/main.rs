//! Starts real clusters; needs root.

#![allow(
    clippy::unwrap_used,
    reason = "the helpers of a test fail the way a test does"
)]

mod fake;
mod lifetime;
mod node;
mod own;
mod support;
