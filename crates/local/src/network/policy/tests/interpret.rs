//! What the kernel would do with the first packet of a connection.

use std::net::Ipv4Addr;

use crate::network::rules::{Action, Match, Protocol, Rule, Rules, Side, Version};

#[derive(Debug, Clone)]
pub(super) struct Packet {
    pub(super) from_link: String,
    pub(super) to_link: String,
    pub(super) from: Ipv4Addr,
    pub(super) to: Ipv4Addr,
    pub(super) protocol: Protocol,
    pub(super) port: u16,
}

/// Whether a packet is forwarded.
pub(super) fn passes(rules: &Rules, packet: &Packet) -> bool {
    decide(rules, "forward", packet).unwrap_or(true)
}

/// None at the end of a chain: whatever led there by `goto` does not go on.
fn decide(rules: &Rules, chain: &str, packet: &Packet) -> Option<bool> {
    for rule in &rules.chains[chain].rules {
        if !holds(rules, rule, packet) {
            continue;
        }
        match &rule.action {
            Action::Accept => return Some(true),
            Action::Drop => return Some(false),
            Action::Goto(chain) => return decide(rules, chain, packet),
            Action::Lookup { side, map } => {
                if let Some(chain) = rules.maps[map].get(&packet.address(*side)) {
                    return decide(rules, chain, packet);
                }
            }
            Action::Masquerade => panic!("{rule} does not belong where packets are filtered"),
        }
    }
    None
}

fn holds(rules: &Rules, rule: &Rule, packet: &Packet) -> bool {
    rule.matches.iter().all(|one| match one {
        Match::Link { side, prefix, is } => {
            let link = match side {
                Side::From => &packet.from_link,
                Side::To => &packet.to_link,
            };
            link.starts_with(prefix) == *is
        }
        Match::Version(version) => *version == Version::Ipv4,
        Match::Address { side, within, is } => within.contains(&packet.address(*side)) == *is,
        Match::Member { side, set } => rules.sets[set].contains(&packet.address(*side)),
        Match::Ports(ports) => ports.contains(packet.protocol, packet.port),
        Match::Reply | Match::Invalid | Match::Redirected | Match::EchoRequest => false,
        Match::Source { .. } => panic!("{rule} does not belong where packets are forwarded"),
    })
}

impl Packet {
    fn address(&self, side: Side) -> Ipv4Addr {
        match side {
            Side::From => self.from,
            Side::To => self.to,
        }
    }
}
