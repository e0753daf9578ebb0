//! Real containers on this machine. Needs root, cgroups, and the host's own /usr as what containers run.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod early;
mod entering;
mod escapes;
mod exec;
mod files;
mod limits;
mod logs;
mod running;
mod support;
mod survival;
mod users;
