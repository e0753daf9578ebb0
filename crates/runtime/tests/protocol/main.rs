//! The daemon as a program, spoken to as strangers do: bytes on sockets in, bytes and the state of the machine out.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod alone;
mod client;
mod compose;
mod daemon;
mod download;
mod empty;
mod filesystem;
mod forward;
mod garbage;
mod grpc;
mod grpc_client;
mod hostile;
mod init;
mod lasting;
mod legacy;
mod library;
mod limits;
mod load;
mod odd_files;
mod once;
mod ordinary;
mod process;
mod pty;
mod sandboxd;
mod storage;
mod strict;
mod upgrade;
mod upgrade_clients;
mod upgrade_failing;
mod upgrade_load;
mod upgrade_state;
mod upload;
mod watch;
mod watch_kernel;
mod watch_load;
mod wire;
