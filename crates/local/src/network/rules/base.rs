//! The chains that every instance has, whatever its policies are.
//!
//! Connections: a packet that answers passes, whatever policies say now; a packet in the direction in which the
//! connection was opened is judged each time. So a path that a policy closes is closed for connections that exist,
//! too, and one that opens again carries them on.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use ipnet::Ipv4Net;

use super::{Action, Chain, Hook, Match, Ports, Protocol, Rule, Rules, Side, Version};

/// Where clouds serve the credentials of the machine: nearly all of them at a link-local address, Azure and Alibaba Cloud at others
/// besides.
pub const METADATA: [Ipv4Net; 3] = [
    Ipv4Net::new_assert(Ipv4Addr::new(169, 254, 0, 0), 16),
    Ipv4Net::new_assert(Ipv4Addr::new(168, 63, 129, 16), 32),
    Ipv4Net::new_assert(Ipv4Addr::new(100, 100, 100, 200), 32),
];

/// Whether all of these addresses are such.
pub fn is_metadata(block: impl Into<Ipv4Net>) -> bool {
    let block = block.into();
    METADATA.iter().any(|known| known.contains(&block))
}

/// Drops what goes there.
pub(in crate::network) fn no_metadata() -> impl Iterator<Item = Rule> {
    let at = |within| Match::Address {
        side: Side::To,
        within,
        is: true,
    };
    METADATA
        .into_iter()
        .map(move |known| rule([at(known)], Action::Drop))
}

/// Pods with ingress policies, to the chain of what may come in.
pub(in crate::network) const ENTERING: &str = "entering";
/// Pods with egress policies, to the chain of what may go out.
pub(in crate::network) const LEAVING: &str = "leaving";
/// Pods whose egress policies select pods, to the chain of these.
pub(in crate::network) const NAMING: &str = "naming";
/// Where a packet goes on that its receiver lets in.
pub(in crate::network) const CONSENTED: &str = "consented";

const TO_PODS: &str = "to_pods";
const FROM_PODS: &str = "from_pods";
const DNS: u16 = 53;

/// What the base chains of an instance depend on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::network) struct Base {
    /// With what the names of its pods' links begin.
    pub(in crate::network) prefix: String,
    pub(in crate::network) range: Ipv4Net,
    pub(in crate::network) gateway: Ipv4Addr,
}

impl Base {
    /// Rules for no pods at all.
    pub(in crate::network) fn rules(&self) -> Rules {
        let chains = [
            ("prerouting", self.prerouting()),
            ("input", self.input()),
            ("forward", self.forward()),
            ("postrouting", self.postrouting()),
            (TO_PODS, self.to_pods()),
            (FROM_PODS, from_pods()),
            (CONSENTED, consented()),
        ];
        let maps = [ENTERING, LEAVING, NAMING];
        Rules {
            chains: chains.map(|(name, chain)| (name.to_owned(), chain)).into(),
            maps: maps.map(|name| (name.to_owned(), BTreeMap::new())).into(),
            ..Rules::default()
        }
    }

    /// A pod sends with its own address or not at all; one that no policy was worked out for cannot send yet.
    fn prerouting(&self) -> Chain {
        Chain {
            hook: Some(Hook::Prerouting),
            rules: vec![
                rule([self.link(Side::From, false)], Action::Accept),
                rule([Match::Version(Version::Ipv6)], Action::Drop),
                rule([Match::Source { is: false }], Action::Drop),
            ],
        }
    }

    /// Of the host a pod reaches the resolver and nothing else; no policy changes that.
    fn input(&self) -> Chain {
        let resolver = |protocol| {
            let ports = Match::Ports(Ports::one(protocol, DNS));
            rule([self.at_gateway(), ports], Action::Accept)
        };
        Chain {
            hook: Some(Hook::Input),
            rules: vec![
                rule([self.link(Side::From, false)], Action::Accept),
                rule([Match::Reply], Action::Accept),
                resolver(Protocol::Udp),
                resolver(Protocol::Tcp),
                rule([self.at_gateway(), Match::EchoRequest], Action::Accept),
                rule([], Action::Drop),
            ],
        }
    }

    fn forward(&self) -> Chain {
        let to_pods = Action::Goto(TO_PODS.to_owned());
        let from_pods = Action::Goto(FROM_PODS.to_owned());
        Chain {
            hook: Some(Hook::Forward),
            rules: vec![
                rule([self.link(Side::To, true)], to_pods),
                rule([self.link(Side::From, true)], from_pods),
            ],
        }
    }

    /// What comes from the host itself is not forwarded and does not come by here. For all else, be it from another
    /// pod, another instance or another machine, somebody must have allowed it: the receiver, or a sender that names
    /// it.
    fn to_pods(&self) -> Chain {
        let from_pod = self.link(Side::From, true);
        Chain {
            hook: None,
            rules: vec![
                rule([Match::Version(Version::Ipv6)], Action::Drop),
                rule([Match::Reply], Action::Accept),
                rule([Match::Invalid], Action::Drop),
                rule([], lookup(Side::To, ENTERING)),
                rule([from_pod], lookup(Side::From, NAMING)),
                rule([], Action::Drop),
            ],
        }
    }

    /// The gateway's address is the host's own: what the host says to itself by it must stay as it is.
    fn postrouting(&self) -> Chain {
        let from = |within, is| Match::Address {
            side: Side::From,
            within,
            is,
        };
        let matches = [
            self.link(Side::To, false),
            Match::Version(Version::Ipv4),
            from(self.range, true),
            from(self.gateway.into(), false),
        ];
        Chain {
            hook: Some(Hook::Postrouting),
            rules: vec![rule(matches, Action::Masquerade)],
        }
    }

    fn link(&self, side: Side, is: bool) -> Match {
        Match::Link {
            side,
            prefix: self.prefix.clone(),
            is,
        }
    }

    fn at_gateway(&self) -> Match {
        Match::Address {
            side: Side::To,
            within: self.gateway.into(),
            is: true,
        }
    }
}

/// A service of the host that is published by translating addresses is a service of the host.
fn from_pods() -> Chain {
    let mut rules = vec![
        rule([Match::Reply], Action::Accept),
        rule([Match::Invalid], Action::Drop),
        rule([Match::Redirected], Action::Drop),
        rule([], lookup(Side::From, LEAVING)),
    ];
    rules.extend(no_metadata());
    rules.push(rule([], Action::Accept));
    Chain { hook: None, rules }
}

/// The sender's own policies decide; it may be no pod of this instance.
fn consented() -> Chain {
    Chain {
        hook: None,
        rules: vec![
            rule([], lookup(Side::From, LEAVING)),
            rule([], Action::Accept),
        ],
    }
}

fn rule<const N: usize>(matches: [Match; N], action: Action) -> Rule {
    Rule {
        matches: matches.into(),
        action,
    }
}

fn lookup(side: Side, map: &str) -> Action {
    Action::Lookup {
        side,
        map: map.to_owned(),
    }
}
