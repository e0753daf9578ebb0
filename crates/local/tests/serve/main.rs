//! The API over TLS, as clients meet it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod access;
mod directory;
mod protocols;
mod shutdown;
mod strangers;
mod support;
