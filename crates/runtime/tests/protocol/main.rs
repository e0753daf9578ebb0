//! The daemon as a program, spoken to as strangers do: bytes on sockets in, bytes and the state of the machine out.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod alone;
mod client;
mod compose;
mod daemon;
mod download;
mod filesystem;
mod forward;
mod grpc;
mod init;
mod legacy;
mod library;
mod once;
mod process;
mod pty;
mod sandboxd;
mod storage;
mod upgrade;
mod upgrade_load;
mod upload;
mod watch;
mod wire;
