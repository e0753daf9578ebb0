//! Which addresses an instance takes, and which of them a pod gets.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use ipnet::Ipv4Net;

/// 4,096 addresses.
const LENGTH: u8 = 20;
/// The widest there may be, and the narrowest that has room for pods beside the gateway.
const LENGTHS: (u8, u8) = (16, 29);
/// Nobody else in the world has addresses of these: those of others a sandbox might want to reach.
const PRIVATE: [Ipv4Net; 3] = [
    Ipv4Net::new_assert(Ipv4Addr::new(10, 0, 0, 0), 8),
    Ipv4Net::new_assert(Ipv4Addr::new(172, 16, 0, 0), 12),
    Ipv4Net::new_assert(Ipv4Addr::new(192, 168, 0, 0), 16),
];
/// Parts of the private networks that few machines use: neither the first ones, which routers and other engines take,
/// nor those that are common in offices.
const CANDIDATES: [Ipv4Net; 3] = [
    Ipv4Net::new_assert(Ipv4Addr::new(10, 88, 0, 0), 13),
    Ipv4Net::new_assert(Ipv4Addr::new(172, 24, 0, 0), 14),
    Ipv4Net::new_assert(Ipv4Addr::new(192, 168, 208, 0), 20),
];

/// The first range that no route of the machine leads into; its own addresses are routes, too. The default route leads
/// everywhere and says nothing.
pub(super) fn choose(routes: &[Ipv4Net]) -> Option<Ipv4Net> {
    let ranges = CANDIDATES
        .iter()
        .flat_map(|candidate| candidate.subnets(LENGTH).into_iter().flatten());
    let mut ranges = ranges.filter(|range| is_free(*range, routes));
    ranges.next()
}

pub(super) fn is_free(range: Ipv4Net, routes: &[Ipv4Net]) -> bool {
    taken_by(range, routes).is_none()
}

fn taken_by(range: Ipv4Net, routes: &[Ipv4Net]) -> Option<Ipv4Net> {
    let leads = |route: &&Ipv4Net| route.prefix_len() > 0;
    let overlaps = |route: &&Ipv4Net| route.contains(&range) || range.contains(*route);
    routes.iter().filter(leads).find(overlaps).copied()
}

/// Why pods cannot have a range, and which they can.
pub(super) fn flaw(range: Ipv4Net, routes: &[Ipv4Net]) -> Option<String> {
    let reason = if range.trunc() != range {
        format!("it is not a whole network, as {} is", range.trunc())
    } else if !is_wide_enough(range) {
        let (least, most) = LENGTHS;
        format!("it must be as wide as /{least} to /{most}")
    } else if !PRIVATE.iter().any(|private| private.contains(&range)) {
        let [a, b, c] = PRIVATE;
        format!("it is not private, as all parts of {a}, {b} and {c} are")
    } else {
        let route = taken_by(range, routes)?;
        format!("the route of this machine to {route} leads into it")
    };
    Some(match choose(routes) {
        Some(free) => format!("{reason}; {free} would do"),
        None => reason,
    })
}

/// The address that pods send to when they do not know the way; the resolver has it, too.
pub(super) fn gateway(range: Ipv4Net) -> Ipv4Addr {
    Ipv4Addr::from_bits(range.network().to_bits() + 1)
}

fn is_wide_enough(range: Ipv4Net) -> bool {
    let (least, most) = LENGTHS;
    (least..=most).contains(&range.prefix_len())
}

/// Which pod has which address.
#[derive(Debug)]
pub(super) struct Addresses {
    range: Ipv4Net,
    of: BTreeMap<String, Ipv4Addr>,
    taken: BTreeSet<Ipv4Addr>,
    last: u32,
}

impl Addresses {
    /// With those that are given already.
    pub(super) fn new(range: Ipv4Net, of: BTreeMap<String, Ipv4Addr>) -> Addresses {
        let taken: BTreeSet<_> = of.values().copied().collect();
        let offset = |address: &Ipv4Addr| address.to_bits() - range.network().to_bits();
        let last = taken.last().map_or(1, offset);
        Addresses {
            range,
            of,
            taken,
            last,
        }
    }

    pub(super) fn get(&self, pod: &str) -> Option<Ipv4Addr> {
        self.of.get(pod).copied()
    }

    pub(super) fn all(&self) -> &BTreeMap<String, Ipv4Addr> {
        &self.of
    }

    /// The address that a pod has, or a free one. Goes round the whole range before it gives an address again: others
    /// may remember for a while whose it was.
    pub(super) fn give(&mut self, pod: &str) -> Option<Ipv4Addr> {
        if let Some(address) = self.get(pod) {
            return Some(address);
        }
        let network = self.range.network().to_bits();
        // without the network's own address, the gateway and the address for all
        let count = self.range.broadcast().to_bits() - network - 2;
        for _ in 0..count {
            self.last = 2 + (self.last - 1) % count;
            let address = Ipv4Addr::from_bits(network + self.last);
            if self.taken.insert(address) {
                self.of.insert(pod.to_owned(), address);
                return Some(address);
            }
        }
        None
    }

    /// Takes the address from a pod, but nobody gets it before it is free.
    pub(super) fn retire(&mut self, pod: &str) -> Option<Ipv4Addr> {
        self.of.remove(pod)
    }

    pub(super) fn free(&mut self, address: Ipv4Addr) {
        self.taken.remove(&address);
    }

    /// Gives a pod the address back that it had.
    pub(super) fn restore(&mut self, pod: &str, address: Ipv4Addr) {
        self.of.insert(pod.to_owned(), address);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use ipnet::Ipv4Net;

    use super::{Addresses, choose, flaw, gateway, is_free};

    fn nets(texts: &[&str]) -> Vec<Ipv4Net> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn a_range_overlaps_nothing_that_the_machine_has_a_route_to() {
        for (routes, expected) in [
            (&["0.0.0.0/0", "192.0.2.0/24"][..], "10.88.0.0/20"),
            (&["10.88.3.7/32"], "10.88.16.0/20"),
            (&["10.88.0.0/16", "10.89.0.0/20"], "10.89.16.0/20"),
            (&["10.0.0.0/8"], "172.24.0.0/20"),
            (&["10.0.0.0/8", "172.16.0.0/12"], "192.168.208.0/20"),
        ] {
            assert_eq!(choose(&nets(routes)), Some(nets(&[expected])[0]));
        }
        let everything = ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"];
        assert_eq!(choose(&nets(&everything)), None);
        assert!(!is_free(nets(&["10.0.0.0/8"])[0], &nets(&["10.1.2.3/32"])));
    }

    #[test]
    fn a_range_that_was_named_is_refused_with_the_reason_and_one_that_would_do() {
        let routes = nets(&["0.0.0.0/0", "10.88.0.0/20", "10.5.1.0/24"]);
        for (range, expected) in [
            ("10.99.0.0/20", None),
            ("192.168.7.0/29", None),
            ("172.16.0.0/16", None),
            (
                "10.99.0.1/20",
                Some("not a whole network, as 10.99.0.0/20 is"),
            ),
            ("10.99.0.0/30", Some("as wide as /16 to /29")),
            ("10.0.0.0/8", Some("as wide as /16 to /29")),
            ("8.8.8.0/24", Some("is not private")),
            ("172.32.0.0/16", Some("is not private")),
            ("10.5.0.0/16", Some("to 10.5.1.0/24 leads into it")),
            ("10.88.3.0/24", Some("to 10.88.0.0/20 leads into it")),
        ] {
            let found = flaw(range.parse().unwrap(), &routes);
            match (expected, found) {
                (None, None) => {}
                (Some(reason), Some(found)) => {
                    assert!(found.contains(reason), "{range}: {found}");
                    assert!(found.ends_with("; 10.88.16.0/20 would do"), "{found}");
                }
                (_, found) => panic!("{range}: {found:?}"),
            }
        }
    }

    #[test]
    fn a_pod_never_gets_the_address_of_another_or_of_the_gateway() {
        let range = nets(&["10.88.0.0/29"])[0];
        let mut addresses = Addresses::new(range, BTreeMap::new());
        let given: Vec<_> = ["a", "b", "c", "d", "e", "f", "a"]
            .map(|pod| addresses.give(pod).map(|address| address.octets()[3]))
            .into();
        let expected = [Some(2), Some(3), Some(4), Some(5), Some(6), None, Some(2)];
        assert_eq!(given, expected);
        assert_eq!(gateway(range).octets()[3], 1);
    }

    #[test]
    fn an_address_given_back_is_not_the_next_one_given() {
        let range = nets(&["10.88.0.0/29"])[0];
        let known = BTreeMap::from([("old".to_owned(), "10.88.0.3".parse().unwrap())]);
        let mut addresses = Addresses::new(range, known);
        let mut last = |pod| addresses.give(pod).map(|address| address.octets()[3]);
        assert_eq!((last("a"), last("b")), (Some(4), Some(5)));
        let retired = addresses.retire("a").unwrap();
        assert_eq!(addresses.give("x"), Some([10, 88, 0, 6].into()));
        addresses.retire("x");
        addresses.free([10, 88, 0, 6].into());
        addresses.free(retired);
        let mut last = |pod| addresses.give(pod).map(|address| address.octets()[3]);
        assert_eq!(
            (last("c"), last("d"), last("e")),
            (Some(2), Some(4), Some(6))
        );
    }
}
