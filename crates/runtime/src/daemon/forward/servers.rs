//! Which ports of loopback addresses are listened on.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{diagnosis, table};

pub(super) fn on_loopback() -> io::Result<BTreeSet<u16>> {
    let mut ports = BTreeSet::new();
    let mut note = |address: IpAddr, port| {
        if is_loopback(address) {
            ports.insert(port);
        }
    };
    diagnosis::each_listener(&mut note).or_else(|_| table::each_listener(&mut note))?;
    Ok(ports)
}

/// Not all of 127.0.0.0/8: on its other addresses are services of the system itself.
fn is_loopback(address: IpAddr) -> bool {
    let address = address.to_canonical();
    address == Ipv4Addr::LOCALHOST || address == Ipv6Addr::LOCALHOST
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::io;
    use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};

    use super::super::{diagnosis, table};
    use super::{is_loopback, on_loopback};

    fn listen(address: &str) -> (TcpListener, SocketAddr) {
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap();
        (listener, address)
    }

    #[test]
    fn the_two_loopback_addresses_are_known_in_every_form() {
        let address = |text: &&str| is_loopback(text.parse().unwrap());
        assert!(["127.0.0.1", "::1", "::ffff:127.0.0.1"].iter().all(address));
        let others = ["127.0.0.53", "0.0.0.0", "::", "10.0.0.1", "::ffff:10.0.0.1"];
        assert!(!others.iter().any(address));
    }

    #[test]
    fn servers_on_loopback_are_found() {
        let ours = ["127.0.0.1:0", "[::1]:0", "[::ffff:127.0.0.1]:0"].map(listen);
        let ports = on_loopback().unwrap();
        for (_, address) in &ours {
            assert!(ports.contains(&address.port()), "{address}");
        }
    }

    #[test]
    fn the_kernel_names_listeners_and_no_others_in_both_ways() {
        let ours = ["127.0.0.1:0", "[::1]:0", "0.0.0.0:0", "[::]:0"].map(listen);
        let client = TcpStream::connect(ours[0].1).unwrap();
        let mut expected = ours
            .each_ref()
            .map(|(_, address)| (*address, true))
            .to_vec();
        expected.push((client.local_addr().unwrap(), false));
        let found = |each_listener: fn(&mut dyn FnMut(IpAddr, u16)) -> io::Result<()>| {
            let mut found = BTreeSet::new();
            let mut note = |ip, port| _ = found.insert(SocketAddr::new(ip, port));
            each_listener(&mut note).unwrap();
            let seen = |(address, _): &(SocketAddr, bool)| (*address, found.contains(address));
            expected.iter().map(seen).collect::<Vec<_>>()
        };
        assert_eq!(found(diagnosis::each_listener), expected);
        assert_eq!(found(table::each_listener), expected);
    }
}
