//! The daemon inside a sandbox. Everything an agent does there, commands and files, goes through it.
//!
//! `messages` are E2B's and agent-sandbox's; `daemon` answers them. Nothing here depends on the rest of Sandbar: the daemon is a small static
//! program of its own (`sandbar-runtime`) and runs in every sandbox.

#[cfg(feature = "daemon")]
pub mod daemon;
pub mod messages;
