//! Who reaches whom without any policy.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use local::network::dial;

use crate::support::{
    HOST, METADATA, OFFICE, Pod, Space, WORLD, enforce, heard_at_last, on_a_host, pod, run,
};

#[test]
fn the_host_reaches_a_pod_once_its_policies_are_enforced() {
    on_a_host(
        "ways::the_host_reaches_a_pod_once_its_policies_are_enforced",
        async |host| {
            let network = host.network().await;
            let a = pod(&network, "a").await;
            assert!(!host.reaches(a.address, 80));
            enforce(&network, &[&a], &[]).await;
            let talk = host.connect(a.address, 80).unwrap();
            assert_eq!(Some(talk.seen_as), network.gateway().map(Into::into));
            network.detach("a").await.unwrap();
            assert!(!host.reaches(a.address, 80));
        },
    );
}

#[test]
fn a_pod_with_users_of_its_own_is_attached_as_others_are() {
    on_a_host(
        "ways::a_pod_with_users_of_its_own_is_attached_as_others_are",
        async |host| {
            let network = host.network().await;
            let space = Space::with_users();
            let address = network.attach("a", &space.path).await.unwrap().unwrap();
            space.listen(Ipv4Addr::UNSPECIFIED, 80);
            let a = Pod {
                id: "a",
                space,
                address,
            };
            enforce(&network, &[&a], &[]).await;
            assert!(host.connect(a.address, 80).is_some());
            host.world.listen(WORLD, 443);
            assert!(a.space.connect(WORLD, 443).is_some());
        },
    );
}

#[test]
fn a_pod_reaches_the_world_as_the_host_and_no_metadata() {
    on_a_host(
        "ways::a_pod_reaches_the_world_as_the_host_and_no_metadata",
        async |host| {
            let network = host.network().await;
            let a = pod(&network, "a").await;
            host.world.listen(Ipv4Addr::UNSPECIFIED, 443);
            enforce(&network, &[&a], &[]).await;
            for address in [WORLD, OFFICE] {
                let talk = a.space.connect(address, 443).unwrap();
                assert_eq!(talk.seen_as, HOST);
            }
            // the host itself has a way there, so only rules can keep pods from it
            for address in METADATA {
                run(&format!("ip route add {address}/32 via 192.0.2.1"));
                assert!(host.connect(address, 443).is_some(), "{address}");
                assert!(!a.space.reaches(address, 443), "{address}");
            }
        },
    );
}

#[test]
fn a_pod_reaches_neither_the_host_nor_its_services_nor_another_pod() {
    on_a_host(
        "ways::a_pod_reaches_neither_the_host_nor_its_services_nor_another_pod",
        async |host| {
            let network = host.network().await;
            let (a, b) = (pod(&network, "a").await, pod(&network, "b").await);
            enforce(&network, &[&a, &b], &[]).await;
            let gateway = network.gateway().unwrap();
            // 7443 is where the API is
            for port in [7443, 9000] {
                host.listen(port);
                assert!(host.world.connect(HOST, port).is_some());
                assert!(host.connect(gateway, port).is_some());
                assert!(!a.space.reaches(HOST, port));
                assert!(!a.space.reaches(gateway, port));
            }
            assert!(host.connect(b.address, 80).is_some());
            assert!(!a.space.reaches(b.address, 80));
            assert!(!b.space.reaches(a.address, 80));
        },
    );
}

#[test]
fn the_world_does_not_reach_a_pod() {
    on_a_host("ways::the_world_does_not_reach_a_pod", async |host| {
        let network = host.network().await;
        let a = pod(&network, "a").await;
        enforce(&network, &[&a], &[]).await;
        let range = network.range().unwrap();
        host.world.run(&format!("ip route add {range} via {HOST}"));
        assert!(host.connect(a.address, 80).is_some());
        assert!(!host.world.reaches(a.address, 80));
    });
}

#[test]
fn a_pod_sends_only_as_itself() {
    on_a_host("ways::a_pod_sends_only_as_itself", async |host| {
        let network = host.network().await;
        let (a, b) = (pod(&network, "a").await, pod(&network, "b").await);
        enforce(&network, &[&a, &b], &[]).await;
        let receiver = host.world.inside(|| UdpSocket::bind((WORLD, 9)).unwrap());
        let patience = Some(Duration::from_secs(10));
        receiver.set_read_timeout(patience).unwrap();
        let send = |from: Ipv4Addr| {
            a.space.inside(|| {
                let socket = UdpSocket::bind((from, 0)).unwrap();
                let to = SocketAddr::from((WORLD, 9));
                socket.send_to(from.to_string().as_bytes(), to).unwrap();
            });
        };
        for lie in [b.address, Ipv4Addr::new(203, 0, 113, 77), HOST] {
            a.space.run(&format!("ip address add {lie}/32 dev eth0"));
            send(lie);
        }
        // had one of those come through, it would have come before this one, which may be lost itself
        let mut buffer = [0; 100];
        let (length, from) = heard_at_last(&receiver, &mut buffer, || send(a.address));
        assert_eq!(buffer[..length], *a.address.to_string().as_bytes());
        assert_eq!(from.ip(), HOST);
    });
}

#[test]
fn what_a_pod_says_in_ipv6_is_not_heard() {
    on_a_host("ways::what_a_pod_says_in_ipv6_is_not_heard", async |host| {
        let network = host.network().await;
        let a = pod(&network, "a").await;
        enforce(&network, &[&a], &[]).await;
        let gateway = network.gateway().unwrap();
        // neighbours are given, as asking for them is dropped like all else
        let link = "$(ip -o link | grep -o 'sb[0-9a-f]*-[0-9a-f]*')";
        run(&format!(
            "ip address add fd00::1/64 dev {link} nodad
             ip neigh add fd00::2 dev {link} {}",
            hardware_address(a.address)
        ));
        a.space.run(&format!(
            "ip address add fd00::2/64 dev eth0 nodad
             ip neigh add fd00::1 dev eth0 {}",
            hardware_address(gateway)
        ));
        let bind = || {
            let socket = UdpSocket::bind("[::]:9").unwrap();
            let patience = Some(Duration::from_secs(2));
            socket.set_read_timeout(patience).unwrap();
            socket
        };
        let (outside, inside) = (bind(), a.space.inside(bind));
        // the way is there: the pod hears the host
        outside.send_to(b"x", "[fd00::2]:9").unwrap();
        assert!(inside.recv(&mut [0; 9]).is_ok());
        inside.send_to(b"x", "[fd00::1]:9").unwrap();
        assert!(outside.recv(&mut [0; 9]).is_err());
    });
}

/// As a shell finds it.
fn hardware_address(of: Ipv4Addr) -> String {
    format!("$(ip -4 neigh show {of} | grep -o 'lladdr [0-9a-f:]*')")
}

#[test]
fn the_loopback_of_a_pod_is_dialled_from_the_host() {
    on_a_host(
        "ways::the_loopback_of_a_pod_is_dialled_from_the_host",
        async |host| {
            let network = host.network().await;
            let a = pod(&network, "a").await;
            a.space.listen(Ipv4Addr::LOCALHOST, 7000);
            let patience = Duration::from_secs(10);
            let stream = dial(&a.space.path, 7000, patience).await.unwrap();
            assert_eq!(stream.peer_addr().unwrap().to_string(), "127.0.0.1:7000");
            assert!(dial(&a.space.path, 7001, patience).await.is_err());
        },
    );
}
