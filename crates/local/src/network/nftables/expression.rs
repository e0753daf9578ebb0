//! A rule as the kernel's expressions: load something into a register, compare it, give a verdict.

use ipnet::Ipv4Net;

use super::super::netlink::Message;
use super::super::rules::{Action, Match, Ports, Protocol, Rule, Side, Version};
use super::SOURCES;

const ITEM: u16 = 1;
const NAME: u16 = 1;
const DATA: u16 = 2;

const DATA_VALUE: u16 = 1;
const DATA_VERDICT: u16 = 2;
const VERDICT_CODE: u16 = 1;
const VERDICT_CHAIN: u16 = 2;
const DROP: i32 = 0;
const ACCEPT: i32 = 1;
const GOTO: i32 = -4;

const REGISTER_VERDICT: u32 = 0;
/// Sixteen bytes.
const REGISTER: u32 = 1;
/// The four bytes behind those of `REGISTER`.
const REGISTER_BEHIND: u32 = 12;

const META_OR_CT_REGISTER: u16 = 1;
const META_OR_CT_KEY: u16 = 2;
const META_LINK_FROM: u32 = 6;
const META_LINK_TO: u32 = 7;
const META_VERSION: u32 = 15;
const META_PROTOCOL: u32 = 16;
const CT_STATE: u32 = 0;
const CT_DIRECTION: u32 = 1;
const CT_STATUS: u32 = 2;
const STATE_INVALID: u32 = 1;
const STATE_ESTABLISHED: u32 = 1 << 1;
const STATE_RELATED: u32 = 1 << 2;
const STATUS_REDIRECTED: u32 = 1 << 5;
const DIRECTION_REPLY: u8 = 1;

const PAYLOAD_REGISTER: u16 = 1;
const PAYLOAD_BASE: u16 = 2;
const PAYLOAD_OFFSET: u16 = 3;
const PAYLOAD_LENGTH: u16 = 4;
const NETWORK_HEADER: u32 = 1;
const TRANSPORT_HEADER: u32 = 2;

const COMPARE_REGISTER: u16 = 1;
const COMPARE_OPERATOR: u16 = 2;
const COMPARE_DATA: u16 = 3;

const BITS_FROM: u16 = 1;
const BITS_TO: u16 = 2;
const BITS_LENGTH: u16 = 3;
const BITS_MASK: u16 = 4;
const BITS_XOR: u16 = 5;

const LOOKUP_SET: u16 = 1;
const LOOKUP_FROM: u16 = 2;
const LOOKUP_TO: u16 = 3;
const LOOKUP_FLAGS: u16 = 5;
const LOOKUP_INVERTED: u32 = 1;

const IMMEDIATE_REGISTER: u16 = 1;
const IMMEDIATE_DATA: u16 = 2;

const ICMP: u8 = 1;
const ICMP_ECHO_REQUEST: u8 = 8;

#[derive(Clone, Copy)]
enum Operator {
    Equal = 0,
    NotEqual = 1,
    AtMost = 3,
    AtLeast = 5,
}

pub(super) fn write(rule: &Rule, list: &mut Message) {
    for one in &rule.matches {
        condition(one, list);
    }
    action(&rule.action, list);
}

fn condition(one: &Match, list: &mut Message) {
    match one {
        Match::Link { side, prefix, is } => {
            meta(list, link(*side));
            compare(list, equal(*is), prefix.as_bytes());
        }
        Match::Version(version) => {
            meta(list, META_VERSION);
            let number = match version {
                Version::Ipv4 => 2,
                Version::Ipv6 => 10,
            };
            compare(list, Operator::Equal, &[number]);
        }
        Match::Source { is } => {
            meta(list, META_LINK_FROM);
            load_address(list, REGISTER_BEHIND, Side::From);
            lookup(list, SOURCES, *is);
        }
        Match::Address { side, within, is } => {
            load_address(list, REGISTER, *side);
            compare_network(list, equal(*is), *within);
        }
        Match::Member { side, set } => {
            load_address(list, REGISTER, *side);
            lookup(list, set, true);
        }
        Match::Ports(ports) => compare_ports(list, *ports),
        Match::EchoRequest => {
            meta(list, META_PROTOCOL);
            compare(list, Operator::Equal, &[ICMP]);
            payload(list, REGISTER, TRANSPORT_HEADER, 0, 1);
            compare(list, Operator::Equal, &[ICMP_ECHO_REQUEST]);
        }
        Match::Reply => {
            any_bit(list, CT_STATE, STATE_ESTABLISHED | STATE_RELATED);
            load(list, "ct", CT_DIRECTION);
            compare(list, Operator::Equal, &[DIRECTION_REPLY]);
        }
        Match::Invalid => any_bit(list, CT_STATE, STATE_INVALID),
        Match::Redirected => any_bit(list, CT_STATUS, STATUS_REDIRECTED),
    }
}

fn action(action: &Action, list: &mut Message) {
    let immediate = |list: &mut Message, fill: &dyn Fn(&mut Message)| {
        expression(list, "immediate", |data| {
            data.add_be32(IMMEDIATE_REGISTER, REGISTER_VERDICT);
            data.nest(IMMEDIATE_DATA, |data| fill(data));
        });
    };
    match action {
        Action::Accept => immediate(list, &|data| verdict(data, ACCEPT, None)),
        Action::Drop => immediate(list, &|data| verdict(data, DROP, None)),
        Action::Goto(chain) => immediate(list, &|data| goto(data, chain)),
        Action::Lookup { side, map } => {
            load_address(list, REGISTER, *side);
            expression(list, "lookup", |data| {
                data.add_text(LOOKUP_SET, map);
                data.add_be32(LOOKUP_FROM, REGISTER);
                data.add_be32(LOOKUP_TO, REGISTER_VERDICT);
            });
        }
        Action::Masquerade => expression(list, "masq", |_| {}),
    }
}

/// The content of an attribute that holds data.
pub(super) fn value(data: &mut Message, bytes: &[u8]) {
    data.add(DATA_VALUE, bytes);
}

/// The content of an attribute that holds a verdict.
pub(super) fn goto(data: &mut Message, chain: &str) {
    verdict(data, GOTO, Some(chain));
}

fn verdict(data: &mut Message, code: i32, chain: Option<&str>) {
    data.nest(DATA_VERDICT, |verdict| {
        verdict.add_be32(VERDICT_CODE, code.cast_unsigned());
        if let Some(chain) = chain {
            verdict.add_text(VERDICT_CHAIN, chain);
        }
    });
}

fn expression(list: &mut Message, name: &str, fill: impl FnOnce(&mut Message)) {
    list.nest(ITEM, |item| {
        item.add_text(NAME, name);
        item.nest(DATA, fill);
    });
}

fn link(side: Side) -> u32 {
    match side {
        Side::From => META_LINK_FROM,
        Side::To => META_LINK_TO,
    }
}

fn meta(list: &mut Message, key: u32) {
    load(list, "meta", key);
}

fn load(list: &mut Message, what: &str, key: u32) {
    expression(list, what, |data| {
        data.add_be32(META_OR_CT_REGISTER, REGISTER);
        data.add_be32(META_OR_CT_KEY, key);
    });
}

fn load_address(list: &mut Message, register: u32, side: Side) {
    let offset = match side {
        Side::From => 12,
        Side::To => 16,
    };
    payload(list, register, NETWORK_HEADER, offset, 4);
}

fn payload(list: &mut Message, register: u32, base: u32, offset: u32, length: u32) {
    expression(list, "payload", |data| {
        data.add_be32(PAYLOAD_REGISTER, register);
        data.add_be32(PAYLOAD_BASE, base);
        data.add_be32(PAYLOAD_OFFSET, offset);
        data.add_be32(PAYLOAD_LENGTH, length);
    });
}

fn equal(is: bool) -> Operator {
    match is {
        true => Operator::Equal,
        false => Operator::NotEqual,
    }
}

fn compare(list: &mut Message, operator: Operator, with: &[u8]) {
    expression(list, "cmp", |data| {
        data.add_be32(COMPARE_REGISTER, REGISTER);
        data.add_be32(COMPARE_OPERATOR, operator as u32);
        data.nest(COMPARE_DATA, |data| value(data, with));
    });
}

fn compare_network(list: &mut Message, operator: Operator, network: Ipv4Net) {
    if network.prefix_len() < 32 {
        mask(list, network.netmask().octets());
    }
    compare(list, operator, &network.network().octets());
}

fn compare_ports(list: &mut Message, ports: Ports) {
    meta(list, META_PROTOCOL);
    let protocol = match ports.protocol {
        Protocol::Tcp => 6,
        Protocol::Udp => 17,
        Protocol::Sctp => 132,
    };
    compare(list, Operator::Equal, &[protocol]);
    if ports == Ports::all(ports.protocol) {
        return;
    }
    payload(list, REGISTER, TRANSPORT_HEADER, 2, 2);
    if ports.first == ports.last {
        return compare(list, Operator::Equal, &ports.first.to_be_bytes());
    }
    compare(list, Operator::AtLeast, &ports.first.to_be_bytes());
    compare(list, Operator::AtMost, &ports.last.to_be_bytes());
}

/// Whether one of some bits of the connection's state or status is set.
fn any_bit(list: &mut Message, key: u32, bits: u32) {
    load(list, "ct", key);
    mask(list, bits.to_ne_bytes());
    compare(list, Operator::NotEqual, &[0; 4]);
}

/// Leaves of the first four bytes only the bits of the mask.
fn mask(list: &mut Message, mask: [u8; 4]) {
    expression(list, "bitwise", |data| {
        data.add_be32(BITS_FROM, REGISTER);
        data.add_be32(BITS_TO, REGISTER);
        data.add_be32(BITS_LENGTH, 4);
        data.nest(BITS_MASK, |data| value(data, &mask));
        data.nest(BITS_XOR, |data| value(data, &[0; 4]));
    });
}

fn lookup(list: &mut Message, set: &str, is: bool) {
    expression(list, "lookup", |data| {
        data.add_text(LOOKUP_SET, set);
        data.add_be32(LOOKUP_FROM, REGISTER);
        if !is {
            data.add_be32(LOOKUP_FLAGS, LOOKUP_INVERTED);
        }
    });
}
