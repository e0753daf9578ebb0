//! The rules of an instance as data: what policy decides, what the kernel is told, what people are shown.
//!
//! One nftables table has all of them. Chains that hang on a hook and those they lead to are written in `base`; the
//! chains of pods come from policies, one per distinct list of what is allowed, found by the pod's address in a map.

mod base;
mod change;
mod describe;

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use ipnet::Ipv4Net;

pub(super) use base::Base;
pub(in crate::network) use base::no_metadata;
pub(super) use base::{CONSENTED, ENTERING, LEAVING, NAMING};
pub use base::{METADATA, is_metadata};
pub(super) use change::{Operation, change, creation};

/// Everything in the table of an instance.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules {
    /// Which pods may send: the link they are on and the address they have there.
    pub sources: BTreeSet<Source>,
    pub sets: BTreeMap<String, BTreeSet<Ipv4Addr>>,
    /// To which chain a packet goes on, by one of its addresses.
    pub maps: BTreeMap<String, BTreeMap<Ipv4Addr, String>>,
    pub chains: BTreeMap<String, Chain>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Source {
    pub link: String,
    pub address: Ipv4Addr,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Chain {
    /// Where packets come in; none if only other chains lead here.
    pub hook: Option<Hook>,
    pub rules: Vec<Rule>,
}

/// At every hook a packet that no rule decides passes: it is not of this instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hook {
    /// Before connections are tracked, so that what is dropped costs no entry.
    Prerouting,
    Input,
    Forward,
    /// Where source addresses are translated.
    Postrouting,
}

/// The action is taken if all matches hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    pub matches: Vec<Match>,
    pub action: Action,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Match {
    /// The link's name begins so.
    Link {
        side: Side,
        prefix: String,
        is: bool,
    },
    Version(Version),
    /// The packet has the address that belongs to its link, or not.
    Source {
        is: bool,
    },
    Address {
        side: Side,
        within: Ipv4Net,
        is: bool,
    },
    Member {
        side: Side,
        set: String,
    },
    Ports(Ports),
    EchoRequest,
    /// Belongs to a connection of which the other side sent the first packet.
    Reply,
    /// Belongs to no connection and can begin none.
    Invalid,
    /// Somebody's rules gave it another destination than it was sent to.
    Redirected,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    Ipv4,
    Ipv6,
}

/// Where a packet comes from, or where it goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    From,
    To,
}

/// Destination ports of a protocol, from the first to the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ports {
    pub protocol: Protocol,
    pub first: u16,
    pub last: u16,
}

impl Ports {
    pub fn all(protocol: Protocol) -> Ports {
        Ports {
            protocol,
            first: 0,
            last: u16::MAX,
        }
    }

    pub fn one(protocol: Protocol, port: u16) -> Ports {
        Ports {
            protocol,
            first: port,
            last: port,
        }
    }

    pub fn contains(&self, protocol: Protocol, port: u16) -> bool {
        self.protocol == protocol && (self.first..=self.last).contains(&port)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    Tcp,
    Udp,
    Sctp,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    Accept,
    Drop,
    Goto(String),
    /// Goes on in the chain that a map has for the address; the next rule, if it has none.
    Lookup {
        side: Side,
        map: String,
    },
    Masquerade,
}
