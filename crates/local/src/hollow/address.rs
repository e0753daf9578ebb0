//! Addresses that pretended pods and nodes have.

use std::{
    collections::{HashMap, HashSet},
    net::Ipv4Addr,
};

/// Pods have addresses from 10.0.0.1 up; those of nodes begin here.
const NODES: u32 = u32::from_be_bytes([10, 255, 0, 0]);
const PODS: u32 = u32::from_be_bytes([10, 0, 0, 0]);

/// The address of the node with this index.
pub(super) fn of_node(index: usize) -> Ipv4Addr {
    let index = u32::try_from(index).unwrap_or_default();
    Ipv4Addr::from_bits(NODES + 1 + index % (u32::from(u16::MAX) - 1))
}

/// Which pod has which address.
#[derive(Debug, Default)]
pub(super) struct Addresses {
    of: HashMap<String, Ipv4Addr>,
    taken: HashSet<Ipv4Addr>,
    last: u32,
}

impl Addresses {
    /// Learns the address that a pod has already.
    pub(super) fn note(&mut self, uid: &str, address: Ipv4Addr) {
        if self.of.get(uid) != Some(&address) {
            self.release(uid);
            self.of.insert(uid.to_owned(), address);
            self.taken.insert(address);
        }
    }

    /// The address of a pod: what it has, or a free one.
    pub(super) fn of(&mut self, uid: &str) -> Ipv4Addr {
        if let Some(address) = self.of.get(uid) {
            return *address;
        }
        let address = self.free();
        self.note(uid, address);
        address
    }

    pub(super) fn release(&mut self, uid: &str) {
        if let Some(address) = self.of.remove(uid) {
            self.taken.remove(&address);
        }
    }

    /// Goes round the whole range before it gives an address again.
    fn free(&mut self) -> Ipv4Addr {
        loop {
            self.last = (self.last + 1) % (NODES - PODS);
            let address = Ipv4Addr::from_bits(PODS + self.last);
            let usable = !matches!(address.octets()[3], 0 | 255);
            if usable && !self.taken.contains(&address) {
                return address;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Addresses, Ipv4Addr, of_node};

    #[test]
    fn no_two_pods_share_an_address() {
        let mut addresses = Addresses::default();
        addresses.note("old", Ipv4Addr::new(10, 0, 0, 2));
        let given: Vec<_> = ["a", "b", "a", "old"]
            .map(|uid| addresses.of(uid).to_string())
            .into();
        assert_eq!(given, ["10.0.0.1", "10.0.0.3", "10.0.0.1", "10.0.0.2"]);
    }

    #[test]
    fn an_address_given_back_is_not_the_next_one_given() {
        let mut addresses = Addresses::default();
        addresses.of("a");
        addresses.release("a");
        assert_eq!(addresses.of("b"), Ipv4Addr::new(10, 0, 0, 2));
    }

    #[test]
    fn addresses_end_neither_in_0_nor_in_255() {
        let mut addresses = Addresses::default();
        let last = (0..300).map(|n| addresses.of(&n.to_string())).last();
        assert_eq!(last, Some(Ipv4Addr::new(10, 0, 1, 46)));
        assert_eq!(of_node(0), Ipv4Addr::new(10, 255, 0, 1));
    }
}
