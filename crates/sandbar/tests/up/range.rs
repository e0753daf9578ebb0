//! Which addresses sandboxes have, if one wants to say it.

use std::{fs, net::Ipv4Addr, path::Path, process::Command};

use k8s_openapi::api::core::v1::Pod;
use local::network::Ipv4Net;
use rustix::process::Signal;

use crate::instance::{Instance, PROGRAM, ip};

/// Starts the program with a range that it refuses, and returns why.
fn refused(data: &Path, range: &str) -> String {
    let mut command = Command::new(PROGRAM);
    command.args(["up", "--port", "0", "--pod-cidr", range, "--data-dir"]);
    let output = command.arg(data).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(matches!(output.status.code(), Some(1 | 2)), "{said}");
    assert!(said.contains(range), "{said}");
    said
}

/// A network that no route of this machine leads into. Tests that run at the same time name different numbers, ten apart.
pub(crate) fn free_range(number: u8) -> Ipv4Net {
    let listed = Command::new("ip")
        .args(["-4", "route", "show", "table", "all"])
        .output();
    let listed = String::from_utf8(listed.unwrap().stdout).unwrap();
    // before some the kind of route is said
    let words = listed
        .lines()
        .flat_map(|line| line.split_whitespace().take(2));
    let routes: Vec<Ipv4Net> = words
        .filter_map(|word| word.parse().or_else(|_| format!("{word}/32").parse()).ok())
        .collect();
    let near = number..number + 10;
    let tens = near.clone().map(|near| Ipv4Addr::new(10, near, 176, 0));
    let others = near.map(|near| Ipv4Addr::new(172, 31, near, 0));
    let mut ranges = tens.chain(others).map(|at| Ipv4Net::new(at, 24).unwrap());
    let is_free = |range: &Ipv4Net| {
        let mut routes = routes.iter();
        !routes.any(|route| route.contains(range) || range.contains(route))
    };
    ranges.find(is_free).expect("a network that is free")
}

fn address(pod: &Pod) -> Ipv4Addr {
    ip(pod).parse().unwrap()
}

#[tokio::test]
async fn sandboxes_have_addresses_of_the_network_that_was_named_and_keep_it() {
    let (range, another) = (free_range(233), free_range(243));
    let mut up = Instance::with(&["--pool", "0"]).await;
    up.run("before", "exec sleep 1000").await;
    assert!(!range.contains(&address(&up.ready("before").await)));
    up.delete("before").await;
    up.end(Signal::TERM);
    up.options_for_next_start(&["--pod-cidr", &range.to_string()]);
    up.start_again().await;
    let line = format!("addresses from {range}");
    assert!(up.introduction.contains(&line), "{}", up.introduction);
    up.run("one", "exec sleep 1000").await;
    assert!(range.contains(&address(&up.ready("one").await)));

    up.forget_options(2);
    up.end(Signal::TERM);
    up.start_again().await;
    assert!(up.introduction.contains(&line), "{}", up.introduction);
    let one = up.ready("one").await;
    assert!(range.contains(&address(&one)));

    up.end(Signal::KILL);
    let said = refused(&up.data(), &another.to_string());
    assert!(said.contains(&format!("go on with {range}")), "{said}");
    // as one leaves it that died before it had kept what it was told
    fs::write(up.data().join("pod-cidr"), another.to_string()).unwrap();
    up.start_again().await;
    assert!(up.introduction.contains(&line), "{}", up.introduction);
    assert_eq!(address(&up.ready("one").await), address(&one));
}

#[tokio::test]
async fn a_network_that_cannot_be_had_is_refused_with_the_reason_and_another() {
    let other = Instance::with(&["--pool", "0"]).await;
    let taken = other.introduction.split("addresses from ").nth(1).unwrap();
    let taken = taken.split(',').next().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    for (range, reason) in [
        ("10.99.0.0/30", "as wide as /16 to /29"),
        ("10.99.0.7/24", "as 10.99.0.0/24 is"),
        ("8.8.8.0/24", "it is not private"),
        (taken, "leads into it"),
    ] {
        let said = refused(&data, range);
        assert!(said.contains(reason), "{said}");
        assert!(said.contains(" would do"), "{said}");
    }
    let said = refused(&data, "everywhere");
    assert!(said.contains("such as 10.99.0.0/20"), "{said}");
    assert!(!data.join("pod-cidr").exists());
    let mut down = Command::new(PROGRAM);
    let down = down.args(["down", "--data-dir"]).arg(&data).output();
    assert!(down.unwrap().status.success());
}
