//! The daemon as a program, spoken to as strangers do: bytes on sockets in, bytes and the state of the machine out.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod client;
mod compose;
mod daemon;
mod download;
mod filesystem;
mod grpc;
mod init;
mod legacy;
mod process;
mod pty;
mod sandboxd;
mod upload;
mod watch;
mod wire;
