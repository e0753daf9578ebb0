//! Networks that come and go, alone and side by side.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use local::network::{Forwarding, Network, NetworkError, Settings, remove};

use crate::process::{command, directory};
use crate::support::{PATIENCE, SILENCE, Space, WORLD, enforce, on_a_host, pod, traces};

#[test]
fn closing_leaves_nothing() {
    on_a_host("instances::closing_leaves_nothing", async |host| {
        let before = traces().await;
        let network = host.network().await;
        let (a, b) = (pod(&network, "a").await, pod(&network, "b").await);
        enforce(&network, &[&a, &b], &[]).await;
        assert!(host.connect(a.address, 80).is_some());
        assert_ne!(traces().await, before);
        assert_eq!(network.close().await.unwrap(), Forwarding::Restored);
        assert_eq!(traces().await, before);
        assert!(
            host.directory
                .join("data")
                .read_dir()
                .unwrap()
                .next()
                .is_none()
        );
        // nothing is left to remove
        let again = remove(&host.directory.join("data")).await.unwrap();
        assert_eq!(again, Forwarding::Untouched);
    });
}

#[test]
fn a_network_that_comes_back_has_the_same_pods_and_breaks_no_connection() {
    on_a_host(
        "instances::a_network_that_comes_back_has_the_same_pods_and_breaks_no_connection",
        async |host| {
            let network = host.network().await;
            let (a, b) = (pod(&network, "a").await, pod(&network, "b").await);
            enforce(&network, &[&a, &b], &[]).await;
            host.world.listen(WORLD, 443);
            let mut talk = a.space.connect(WORLD, 443).unwrap();
            let (addresses, range) = (network.addresses(), network.range());
            network.leave().await;
            assert!(talk.goes_on());

            let network = host.network().await;
            assert_eq!((network.addresses(), network.range()), (addresses, range));
            assert!(talk.goes_on());
            enforce(&network, &[&a, &b], &[]).await;
            assert!(talk.goes_on());
            let c = pod(&network, "c").await;
            assert!(c.address != a.address && c.address != b.address);
            // attached anew: the same address, another link
            let space = Space::new();
            let again = network.attach("b", &space.path).await.unwrap();
            assert_eq!(again, Some(b.address));
            space.listen(b.address, 82);
            assert!(host.connect(b.address, 82).is_some());
        },
    );
}

#[test]
fn two_instances_know_nothing_of_each_other() {
    on_a_host(
        "instances::two_instances_know_nothing_of_each_other",
        async |host| {
            let before = traces().await;
            let one = Network::open(host.settings("one"));
            let two = Network::open(host.settings("two"));
            let (one, two) = tokio::join!(one, two);
            let (one, two) = (one.unwrap(), two.unwrap());
            assert_ne!(one.range(), two.range());
            let (a, b) = (pod(&one, "a").await, pod(&two, "b").await);
            enforce(&one, &[&a], &[]).await;
            enforce(&two, &[&b], &[]).await;
            assert!(host.connect(a.address, 80).is_some());
            assert!(!a.space.reaches(b.address, 80));
            assert!(!b.space.reaches(a.address, 80));
            let strange = two.gateway().unwrap();
            assert!(b.space.connect_to_resolver(strange, PATIENCE));
            assert!(!a.space.connect_to_resolver(strange, SILENCE));
            host.world.listen(WORLD, 443);
            assert_eq!(one.close().await.unwrap(), Forwarding::LeftToOthers);
            assert!(b.space.connect(WORLD, 443).is_some());
            assert_eq!(two.close().await.unwrap(), Forwarding::Restored);
            assert_eq!(traces().await, before);
        },
    );
}

#[test]
fn instances_that_start_together_take_different_networks() {
    on_a_host(
        "instances::instances_that_start_together_take_different_networks",
        async |host| {
            let before = traces().await;
            let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
            let opened = names.map(|name| tokio::spawn(Network::open(host.settings(name))));
            let mut ranges = BTreeSet::new();
            let mut networks = Vec::new();
            for opened in opened {
                let network = opened.await.unwrap().unwrap();
                ranges.extend(network.range());
                networks.push(network);
            }
            assert_eq!(ranges.len(), names.len());
            for network in networks {
                network.close().await.unwrap();
            }
            assert_eq!(traces().await, before);
        },
    );
}

#[test]
fn a_range_that_is_in_use_is_refused() {
    on_a_host(
        "instances::a_range_that_is_in_use_is_refused",
        async |host| {
            let before = traces().await;
            for (range, allowed) in [
                ("192.0.2.0/24", false),
                ("10.5.0.0/31", false),
                ("10.5.0.1/24", false),
                ("11.5.0.0/24", false),
                ("10.5.0.0/29", true),
            ] {
                let range = range.parse().unwrap();
                let settings = Settings {
                    range: Some(range),
                    ..host.settings("data")
                };
                match Network::open(settings).await {
                    Ok(network) => {
                        assert!(allowed, "{range}");
                        assert_eq!(network.range(), Some(range));
                        let spaces: Vec<_> = (0..6).map(|_| Space::new()).collect();
                        for (index, space) in spaces.iter().enumerate() {
                            let attached = network.attach(&index.to_string(), &space.path).await;
                            let full = matches!(attached, Err(NetworkError::Full { .. }));
                            assert_eq!(full, index == 5);
                        }
                        network.close().await.unwrap();
                    }
                    Err(error) => {
                        assert!(matches!(error, NetworkError::Range { .. }), "{error}");
                        assert!(!allowed, "{range}");
                    }
                }
                assert_eq!(traces().await, before);
            }
        },
    );
}

#[test]
fn another_network_is_refused_only_as_long_as_a_pod_is_attached() {
    on_a_host(
        "instances::another_network_is_refused_only_as_long_as_a_pod_is_attached",
        async |host| {
            let before = traces().await;
            let named = |range: &str| Settings {
                range: Some(range.parse().unwrap()),
                ..host.settings("data")
            };
            let network = Network::open(named("10.5.0.0/24")).await.unwrap();
            let mut space = Space::new();
            network.attach("a", &space.path).await.unwrap();
            network.leave().await;
            let refused = Network::open(named("10.6.0.0/24")).await.unwrap_err();
            assert!(
                matches!(refused, NetworkError::Elsewhere { .. }),
                "{refused}"
            );
            space.kill();
            let start = Instant::now();
            // the kernel takes its time to remove the link
            let network = loop {
                match Network::open(named("10.6.0.0/24")).await {
                    Ok(network) => break network,
                    Err(error) => assert!(start.elapsed() < PATIENCE, "{error}"),
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            };
            assert_eq!(network.range(), named("10.6.0.0/24").range);
            assert!(network.addresses().is_empty());
            let b = pod(&network, "b").await;
            enforce(&network, &[&b], &[]).await;
            host.world.listen(WORLD, 443);
            assert!(b.space.connect(WORLD, 443).is_some());
            assert_eq!(network.close().await.unwrap(), Forwarding::Restored);
            assert_eq!(traces().await, before);
        },
    );
}

#[test]
fn what_cannot_be_attached_leaves_nothing() {
    on_a_host(
        "instances::what_cannot_be_attached_leaves_nothing",
        async |host| {
            let network = host.network().await;
            let before = traces().await;
            let space = Space::new();
            let nowhere = Path::new("/proc/self/ns/nothing");
            for (id, path) in [
                ("a", nowhere),
                ("b", Path::new("/dev/null")),
                ("../c", &space.path),
            ] {
                let error = network.attach(id, path).await.unwrap_err();
                assert!(!error.to_string().is_empty());
            }
            // the pod's side is there already
            network.attach("d", &space.path).await.unwrap();
            assert!(network.attach("e", &space.path).await.is_err());
            network.detach("d").await.unwrap();
            assert_eq!(traces().await, before);
            assert!(network.addresses().is_empty());
        },
    );
}

#[test]
fn after_a_kill_strays_are_swept_and_the_rest_is_kept() {
    on_a_host(
        "instances::after_a_kill_strays_are_swept_and_the_rest_is_kept",
        async |host| {
            let before = traces().await;
            let mut spaces = [Space::new(), Space::new(), Space::new()];
            let program = "instances::attaches_and_waits";
            let mut owner = command(program, &host.directory.join("data"))
                .env(
                    SPACES,
                    spaces
                        .each_ref()
                        .map(|one| one.path.to_str().unwrap())
                        .join(" "),
                )
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let lines = BufReader::new(owner.stdout.take().unwrap()).lines();
            assert!(
                lines
                    .map_while(Result::ok)
                    .any(|line| line.contains("attached"))
            );
            owner.kill().unwrap();
            owner.wait().unwrap();
            spaces[1].kill();
            // a link of which nothing is known
            std::fs::remove_file(host.directory.join("data/network/pod2")).unwrap();

            let network = host.network().await;
            let known = BTreeSet::from(["pod0".to_owned()]);
            network.sweep(&known).await.unwrap();
            let addresses = network.addresses();
            assert_eq!(
                addresses.keys().collect::<BTreeSet<_>>(),
                known.iter().collect()
            );
            let links = Command::new("ip").args(["-o", "link"]).output().unwrap();
            let links = String::from_utf8(links.stdout).unwrap();
            let to_pods = links
                .lines()
                .filter(|line| line.contains("sb") && line.contains('-'));
            assert_eq!(
                to_pods.filter(|line| line.contains("link-netns")).count(),
                1
            );
            drop(network);
            remove(&host.directory.join("data")).await.unwrap();
            assert_eq!(traces().await, before);
        },
    );
}

#[tokio::test]
async fn without_a_network_pods_have_no_address() {
    let network = Network::none();
    let attached = network.attach("a", Path::new("/proc/self/ns/net")).await;
    assert_eq!(attached.unwrap(), None);
    assert_eq!(
        (network.gateway(), network.resolv_conf("default")),
        (None, String::new())
    );
    network.detach("a").await.unwrap();
    assert_eq!(network.close().await.unwrap(), Forwarding::Untouched);
}

const SPACES: &str = "NETWORK_TEST_SPACES";

/// A process to be killed.
#[test]
fn attaches_and_waits() {
    let (Some(directory), Ok(spaces)) = (directory(), std::env::var(SPACES)) else {
        return;
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let network = Network::open(Settings::new(directory)).await.unwrap();
        for (index, space) in spaces.split(' ').enumerate() {
            let id = format!("pod{index}");
            network.attach(&id, Path::new(space)).await.unwrap();
        }
        println!("attached");
        std::future::pending::<()>().await;
    });
}
