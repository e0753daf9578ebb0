//! Rules as `nft list table` would show them.

use std::fmt::{self, Display, Formatter};

use super::{Action, Chain, Hook, Match, Ports, Protocol, Rule, Rules, Side, Version};

impl Rules {
    /// The text of the table with this name.
    pub fn describe(&self, table: &str) -> String {
        let mut text = format!("table inet {table} {{\n");
        let sources = self.sources.iter();
        let sources = sources.map(|source| format!("\"{}\" . {}", source.link, source.address));
        text += &elements("set sources", "ifname . ipv4_addr", sources);
        for (name, set) in &self.sets {
            let addresses = set.iter().map(ToString::to_string);
            text += &elements(&format!("set {name}"), "ipv4_addr", addresses);
        }
        for (name, map) in &self.maps {
            let entries = map
                .iter()
                .map(|(address, chain)| format!("{address} : goto {chain}"));
            text += &elements(&format!("map {name}"), "ipv4_addr : verdict", entries);
        }
        for (name, chain) in &self.chains {
            text += &format!("\tchain {name} {{\n{chain}\t}}\n\n");
        }
        text + "}\n"
    }
}

fn elements(head: &str, kind: &str, elements: impl Iterator<Item = String>) -> String {
    let elements: Vec<_> = elements.collect();
    let elements = match elements.is_empty() {
        true => String::new(),
        false => format!("\t\telements = {{ {} }}\n", elements.join(", ")),
    };
    format!("\t{head} {{\n\t\ttype {kind}\n{elements}\t}}\n\n")
}

impl Display for Chain {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let Some(hook) = self.hook {
            writeln!(f, "\t\t{hook}")?;
        }
        self.rules
            .iter()
            .try_for_each(|rule| writeln!(f, "\t\t{rule}"))
    }
}

impl Display for Hook {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (kind, hook, priority) = match self {
            Hook::Prerouting => ("filter", "prerouting", "raw"),
            Hook::Input => ("filter", "input", "filter"),
            Hook::Forward => ("filter", "forward", "filter"),
            Hook::Postrouting => ("nat", "postrouting", "srcnat"),
        };
        write!(
            f,
            "type {kind} hook {hook} priority {priority}; policy accept;"
        )
    }
}

impl Display for Rule {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for one in &self.matches {
            write!(f, "{one} ")?;
        }
        write!(f, "{}", self.action)
    }
}

impl Display for Match {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let unless = |is: &bool| if *is { "" } else { "!= " };
        match self {
            Match::Link { side, prefix, is } => {
                let link = match side {
                    Side::From => "iifname",
                    Side::To => "oifname",
                };
                write!(f, "{link} {}\"{prefix}*\"", unless(is))
            }
            Match::Version(Version::Ipv4) => f.write_str("meta nfproto ipv4"),
            Match::Version(Version::Ipv6) => f.write_str("meta nfproto ipv6"),
            Match::Source { is } => write!(f, "iifname . ip saddr {}@sources", unless(is)),
            Match::Address { side, within, is } => match within.prefix_len() {
                32 => write!(f, "{side} {}{}", unless(is), within.addr()),
                _ => write!(f, "{side} {}{within}", unless(is)),
            },
            Match::Member { side, set } => write!(f, "{side} @{set}"),
            Match::Ports(ports) => write!(f, "{ports}"),
            Match::EchoRequest => f.write_str("icmp type echo-request"),
            Match::Reply => f.write_str("ct state established,related ct direction reply"),
            Match::Invalid => f.write_str("ct state invalid"),
            Match::Redirected => f.write_str("ct status dnat"),
        }
    }
}

impl Display for Side {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Side::From => "ip saddr",
            Side::To => "ip daddr",
        })
    }
}

impl Display for Ports {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let protocol = match self.protocol {
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
            Protocol::Sctp => "sctp",
        };
        match (self.first, self.last) {
            (0, u16::MAX) => write!(f, "meta l4proto {protocol}"),
            (first, last) if first == last => write!(f, "{protocol} dport {first}"),
            (first, last) => write!(f, "{protocol} dport {first}-{last}"),
        }
    }
}

impl Display for Action {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Action::Accept => f.write_str("accept"),
            Action::Drop => f.write_str("drop"),
            Action::Goto(chain) => write!(f, "goto {chain}"),
            Action::Lookup { side, map } => write!(f, "{side} vmap @{map}"),
            Action::Masquerade => f.write_str("masquerade"),
        }
    }
}
