//! Links, addresses, routes and neighbours.

use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, BorrowedFd};

use ipnet::Ipv4Net;

use super::{Message, Mode, NetlinkError, Socket, attributes, text, u32_at};

const NEW_LINK: u16 = 16;
const DELETE_LINK: u16 = 17;
const GET_LINK: u16 = 18;
const NEW_ADDRESS: u16 = 20;
const NEW_ROUTE: u16 = 24;
const DELETE_ROUTE: u16 = 25;
const GET_ROUTE: u16 = 26;
const NEW_NEIGHBOUR: u16 = 28;

const IPV4: u8 = 2;
const IPV6: u8 = 10;
const UP: u32 = 1;

const LINK_ADDRESS: u16 = 1;
const LINK_NAME: u16 = 3;
const LINK_INFO: u16 = 18;
const LINK_INFO_KIND: u16 = 1;
const LINK_INFO_DATA: u16 = 2;
const LINK_ALIAS: u16 = 20;
const LINK_FAMILIES: u16 = 26;
const IPV6_ADDRESSES: u16 = 8;
const IPV6_ADDRESSES_NONE: u8 = 1;
const LINK_GROUP: u16 = 27;
const LINK_NAMESPACE: u16 = 28;
const VETH_PEER: u16 = 1;
const LINK_FIXED: usize = 16;

const ADDRESS_LOCAL: u16 = 2;

const ROUTE_TO: u16 = 1;
const ROUTE_LINK: u16 = 4;
const ROUTE_GATEWAY: u16 = 5;
const ROUTE_SOURCE: u16 = 7;
const ROUTE_FIXED: usize = 12;
const TABLE_MAIN: u8 = 254;
const BY_AN_ADMINISTRATOR: u8 = 4;
const SCOPE_UNIVERSE: u8 = 0;
const SCOPE_LINK: u8 = 253;
const UNICAST: u8 = 1;
const UNREACHABLE: u8 = 7;

const NEIGHBOUR_TO: u16 = 1;
const NEIGHBOUR_ADDRESS: u16 = 2;
const PERMANENT: u16 = 0x80;

/// The loopback link has this index in every namespace.
pub(in crate::network) const LOOPBACK: u32 = 1;

pub(in crate::network) type Mac = [u8; 6];

/// One end of a pair.
#[derive(Debug, Clone, Copy)]
pub(in crate::network) struct End<'a> {
    pub(in crate::network) name: &'a str,
    pub(in crate::network) mac: Option<Mac>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::network) struct Link {
    pub(in crate::network) index: u32,
    pub(in crate::network) name: String,
    pub(in crate::network) alias: String,
}

/// A pair of links, both down. This end is in a group; the other is in another namespace if one is given.
pub(in crate::network) fn new_pair(
    here: End<'_>,
    there: End<'_>,
    namespace: Option<BorrowedFd<'_>>,
    group: u32,
) -> Message {
    let mut message = Message::new(NEW_LINK, Mode::Create, &[0; LINK_FIXED]);
    name_end(&mut message, here);
    message.add_u32(LINK_GROUP, group);
    message.nest(LINK_INFO, |info| {
        info.add_text(LINK_INFO_KIND, "veth");
        info.nest(LINK_INFO_DATA, |data| {
            data.nest(VETH_PEER, |peer| {
                peer.add_raw(&[0; LINK_FIXED]);
                name_end(peer, there);
                if let Some(namespace) = namespace {
                    let number = namespace.as_raw_fd().cast_unsigned();
                    peer.add_u32(LINK_NAMESPACE, number);
                }
            });
        });
    });
    message
}

fn name_end(message: &mut Message, end: End<'_>) {
    message.add_text(LINK_NAME, end.name);
    if let Some(mac) = end.mac {
        message.add(LINK_ADDRESS, &mac);
    }
}

pub(in crate::network) fn up(index: u32) -> Message {
    Message::new(NEW_LINK, Mode::Change, &link_fixed(index))
}

/// As `up`. The link gets no IPv6 address of its own and does not look for neighbours by it; `ipv6` is whether the
/// kernel knows of it at all.
pub(in crate::network) fn up_quietly(name: &str, ipv6: bool) -> Message {
    let mut message = up(0);
    message.add_text(LINK_NAME, name);
    if ipv6 {
        message.nest(LINK_FAMILIES, |families| {
            families.nest(IPV6.into(), |family| {
                family.add(IPV6_ADDRESSES, &[IPV6_ADDRESSES_NONE]);
            });
        });
    }
    message
}

pub(in crate::network) fn set_alias(index: u32, alias: &str) -> Message {
    let mut message = Message::new(NEW_LINK, Mode::Change, &link_fixed(index));
    message.add(LINK_ALIAS, alias.as_bytes());
    message
}

pub(in crate::network) fn delete_link(index: u32) -> Message {
    Message::new(DELETE_LINK, Mode::Change, &link_fixed(index))
}

/// All links of a group at once, which takes as long as one of them.
pub(in crate::network) fn delete_group(group: u32) -> Message {
    let mut message = Message::new(DELETE_LINK, Mode::Change, &[0; LINK_FIXED]);
    message.add_u32(LINK_GROUP, group);
    message
}

fn link_fixed(index: u32) -> [u8; LINK_FIXED] {
    let mut fixed = [0; LINK_FIXED];
    fixed[4..8].copy_from_slice(&index.to_ne_bytes());
    fixed[8..12].copy_from_slice(&UP.to_ne_bytes());
    fixed[12..16].copy_from_slice(&UP.to_ne_bytes());
    fixed
}

/// An address that stands alone: no route to others comes with it.
pub(in crate::network) fn new_address(link: u32, address: Ipv4Addr) -> Message {
    let [a, b, c, d] = link.to_ne_bytes();
    let fixed = [IPV4, 32, 0, SCOPE_UNIVERSE, a, b, c, d];
    let mut message = Message::new(NEW_ADDRESS, Mode::Ensure, &fixed);
    message.add(ADDRESS_LOCAL, &address.octets());
    message
}

/// The way to one neighbour on a link, with the address that this side then has.
pub(in crate::network) fn new_neighbour_route(
    link: u32,
    to: Ipv4Addr,
    source: Option<Ipv4Addr>,
) -> Message {
    let fixed = route_fixed(32, SCOPE_LINK, UNICAST);
    let mut message = Message::new(NEW_ROUTE, Mode::Replace, &fixed);
    message.add(ROUTE_TO, &to.octets());
    message.add_u32(ROUTE_LINK, link);
    if let Some(source) = source {
        message.add(ROUTE_SOURCE, &source.octets());
    }
    message
}

/// The way to everywhere else.
pub(in crate::network) fn new_default_route(link: u32, gateway: Ipv4Addr) -> Message {
    let fixed = route_fixed(0, SCOPE_UNIVERSE, UNICAST);
    let mut message = Message::new(NEW_ROUTE, Mode::Replace, &fixed);
    message.add(ROUTE_GATEWAY, &gateway.octets());
    message.add_u32(ROUTE_LINK, link);
    message
}

/// Says of the addresses of a range that have no route of their own that nobody has them.
pub(in crate::network) fn new_unreachable(range: Ipv4Net) -> Message {
    unreachable(NEW_ROUTE, Mode::Replace, range)
}

pub(in crate::network) fn delete_unreachable(range: Ipv4Net) -> Message {
    unreachable(DELETE_ROUTE, Mode::Change, range)
}

fn unreachable(kind: u16, mode: Mode, range: Ipv4Net) -> Message {
    let fixed = route_fixed(range.prefix_len(), SCOPE_UNIVERSE, UNREACHABLE);
    let mut message = Message::new(kind, mode, &fixed);
    message.add(ROUTE_TO, &range.network().octets());
    message
}

fn route_fixed(length: u8, scope: u8, kind: u8) -> [u8; ROUTE_FIXED] {
    let mut fixed = [0; ROUTE_FIXED];
    fixed[..8].copy_from_slice(&[
        IPV4,
        length,
        0,
        0,
        TABLE_MAIN,
        BY_AN_ADMINISTRATOR,
        scope,
        kind,
    ]);
    fixed
}

/// Which hardware address a neighbour has, so that nobody has to ask for it.
pub(in crate::network) fn new_neighbour(link: u32, to: Ipv4Addr, mac: Mac) -> Message {
    let mut fixed = [0; 12];
    fixed[0] = IPV4;
    fixed[4..8].copy_from_slice(&link.to_ne_bytes());
    fixed[8..10].copy_from_slice(&PERMANENT.to_ne_bytes());
    let mut message = Message::new(NEW_NEIGHBOUR, Mode::Replace, &fixed);
    message.add(NEIGHBOUR_TO, &to.octets());
    message.add(NEIGHBOUR_ADDRESS, &mac);
    message
}

/// All links of the namespace.
pub(in crate::network) fn links(socket: &mut Socket) -> Result<Vec<Link>, NetlinkError> {
    let request = Message::new(GET_LINK, Mode::Dump, &[0; LINK_FIXED]);
    socket.dump(&request, read_link)
}

fn read_link(body: &[u8]) -> Option<Link> {
    let mut link = Link {
        index: u32_at(body, 4)?,
        name: String::new(),
        alias: String::new(),
    };
    for (kind, value) in attributes(body.get(LINK_FIXED..)?) {
        match kind {
            LINK_NAME => link.name = text(value),
            LINK_ALIAS => link.alias = text(value),
            _ => {}
        }
    }
    Some(link)
}

/// Where a route leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::network) struct Route {
    pub(in crate::network) to: Ipv4Net,
    pub(in crate::network) link: Option<u32>,
}

/// All routes of the namespace, those to its own addresses included.
pub(in crate::network) fn routes(socket: &mut Socket) -> Result<Vec<Route>, NetlinkError> {
    let mut fixed = [0; ROUTE_FIXED];
    fixed[0] = IPV4;
    let request = Message::new(GET_ROUTE, Mode::Dump, &fixed);
    socket.dump(&request, read_route)
}

fn read_route(body: &[u8]) -> Option<Route> {
    let (family, length) = (*body.first()?, *body.get(1)?);
    if family != IPV4 {
        return None;
    }
    let mut to = Ipv4Addr::UNSPECIFIED;
    let mut link = None;
    for (kind, value) in attributes(body.get(ROUTE_FIXED..)?) {
        match kind {
            ROUTE_TO => to = Ipv4Addr::from(<[u8; 4]>::try_from(value).ok()?),
            ROUTE_LINK => link = u32_at(value, 0),
            _ => {}
        }
    }
    let to = Ipv4Net::new(to, length).ok()?;
    Some(Route { to, link })
}
