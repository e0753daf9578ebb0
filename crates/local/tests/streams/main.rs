//! Logs and streams of pods: real clients on one side, real processes on the other.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod attach;
mod copy;
mod exec;
mod forward;
mod host;
mod logs;
mod raw;
mod refusals;
mod rust;
mod stage;
mod stop;
mod strangers;
