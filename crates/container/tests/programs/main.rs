//! Tests that need a process of their own: one to be killed, and one of somebody else. This is a program that starts itself.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod killed_client;
mod ordinary_user;
#[path = "../containers/support.rs"]
#[allow(dead_code, reason = "the other tests use more of it")]
mod support;

use std::path::Path;

use tokio::runtime::Runtime;

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    let runtime = Runtime::new().unwrap();
    match arguments[..] {
        ["client", dir, cgroup] => runtime.block_on(killed_client::client(dir, cgroup)),
        ["ordinary-user", dir] => runtime.block_on(ordinary_user::inside(Path::new(dir))),
        ["--list", ..] => {}
        _ => {
            runtime.block_on(killed_client::a_container_outlives_a_killed_client_and_its_helper());
            println!("a container outlives a killed client and its helper: ok");
            ordinary_user::an_ordinary_user_runs_containers_without_limits();
            println!("an ordinary user runs containers without limits: ok");
        }
    }
}
