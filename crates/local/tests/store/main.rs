//! The store: who wins, what is seen, and what is still there afterwards.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod child;
mod crash;
mod full_disk;
mod io_errors;
mod opening;
mod power_loss;
#[path = "../process/mod.rs"]
mod process;
mod reads;
mod support;
mod trace;
mod watches;
mod writes;
