//! The daemon inside a sandbox. Everything an agent does there, commands and files, goes through it.
//!
//! `messages` are E2B's, agent-sandbox's and a few of ours; `daemon` answers them, and `client` is how the rest of Sandbar asks. Both
//! know the same `code`s of errors and put messages on streams in the same `envelope`s. Nothing here depends on the rest of Sandbar:
//! the daemon is a small static program of its own (`sandbar-runtime`) and runs in every sandbox.

#[cfg(feature = "client")]
pub mod client;
#[cfg(any(feature = "client", feature = "daemon"))]
pub mod code;
#[cfg(feature = "daemon")]
pub mod daemon;
#[cfg(any(feature = "client", feature = "daemon"))]
mod envelope;
pub mod messages;
#[cfg(any(feature = "client", feature = "daemon"))]
mod tail;
