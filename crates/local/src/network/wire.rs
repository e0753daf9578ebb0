//! Links of an instance: the anchor, which has the gateway's address, and one pair for each pod.

use std::net::Ipv4Addr;
use std::os::fd::AsFd as _;
use std::path::Path;

use ipnet::Ipv4Net;
use rustix::io::Errno;
use rustix::net::netdevice::name_to_index;

use super::error::NetworkError;
use super::namespace::Namespace;
use super::netlink::route::{self, End, LOOPBACK, Link, Mac, Route};
use super::netlink::{NetlinkError, Protocol, Socket};
use super::range;

/// All links of all instances begin so.
const PREFIX: &str = "sb";
/// The link of a pod, as the pod sees it.
const INSIDE: &str = "eth0";

/// What the names of links and rules are made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Instance {
    /// Eight hexadecimal digits: with the prefix and four digits for a pod that is as long as a link's name may be.
    pub(super) id: String,
    pub(super) range: Ipv4Net,
}

impl Instance {
    pub(super) fn gateway(&self) -> Ipv4Addr {
        range::gateway(self.range)
    }

    pub(super) fn table(&self) -> String {
        format!("sandbar_{}", self.id)
    }

    /// The group that its links are in. Zero is the group of all links that are in none.
    fn group(&self) -> u32 {
        u32::from_str_radix(&self.id, 16).unwrap_or(0).max(1)
    }

    /// A pair has two ends even if only one is of use.
    fn anchor(&self) -> (String, String) {
        let name = format!("{PREFIX}{}", self.id);
        let other = format!("{name}x");
        (name, other)
    }

    /// With what the links of its pods begin; that of the anchor does not.
    pub(super) fn pod_prefix(&self) -> String {
        format!("{PREFIX}{}-", self.id)
    }

    pub(super) fn pod_link(&self, address: Ipv4Addr) -> String {
        let offset = address.to_bits() - self.range.network().to_bits();
        format!("{}{offset:x}", self.pod_prefix())
    }

    fn owns(&self, link: &Link) -> bool {
        let (anchor, other) = self.anchor();
        link.name == anchor || link.name == other || link.name.starts_with(&self.pod_prefix())
    }

    fn is_own_anchor(&self, link: &Link) -> bool {
        link.name == self.anchor().0
    }
}

/// What links and routes there are.
#[derive(Debug)]
pub(super) struct Seen {
    links: Vec<Link>,
    routes: Vec<Route>,
}

impl Seen {
    pub(super) fn now() -> Result<Seen, NetworkError> {
        let mut socket = open()?;
        let links = route::links(&mut socket).map_err(NetworkError::kernel("list links"))?;
        let routes = route::routes(&mut socket).map_err(NetworkError::kernel("list routes"))?;
        Ok(Seen { links, routes })
    }

    /// The anchor of an instance, if it is there.
    pub(super) fn anchor(&self, instance: &Instance) -> Option<&Link> {
        self.links.iter().find(|link| instance.is_own_anchor(link))
    }

    /// Whether a pod of an instance has its link: it goes with the pod.
    pub(super) fn has_pods(&self, instance: &Instance) -> bool {
        let prefix = instance.pod_prefix();
        self.links.iter().any(|link| link.name.starts_with(&prefix))
    }

    /// The anchors of the other instances.
    pub(super) fn others(&self, instance: &Instance) -> impl Iterator<Item = &Link> {
        let anchors = self.links.iter().filter(|link| is_anchor(&link.name));
        anchors.filter(|link| !instance.is_own_anchor(link))
    }

    /// Where routes lead that are not of this instance.
    pub(super) fn foreign_routes(&self, instance: Option<&Instance>) -> Vec<Ipv4Net> {
        let own = |route: &Route, instance: &Instance| match route.link {
            Some(index) => self.link(index).is_some_and(|link| instance.owns(link)),
            None => route.to == instance.range,
        };
        let is_foreign = |route: &&Route| !instance.is_some_and(|one| own(route, one));
        let foreign = self.routes.iter().filter(is_foreign);
        foreign.map(|route| route.to).collect()
    }

    fn link(&self, index: u32) -> Option<&Link> {
        self.links.iter().find(|link| link.index == index)
    }
}

fn is_anchor(name: &str) -> bool {
    let id = name.strip_prefix(PREFIX).unwrap_or_default();
    id.len() == 8 && id.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Makes the anchor with the gateway's address, if it is not there yet.
pub(super) fn make_anchor(instance: &Instance) -> Result<(), NetworkError> {
    let (name, other) = instance.anchor();
    let mut socket = open()?;
    let end = |name| End { name, mac: None };
    let pair = route::new_pair(end(&name), end(&other), None, instance.group());
    socket
        .request(vec![pair])
        .or_else(|error| expected(error, Errno::EXIST))
        .map_err(NetworkError::kernel(format!("make the link {name}")))?;
    let up = vec![route::up_quietly(&name, has_ipv6())];
    socket
        .request(up)
        .map_err(NetworkError::kernel(format!("bring up the link {name}")))?;
    let index = index_of(&socket, &name)?;
    let gateway = instance.gateway();
    socket
        .request(vec![route::new_address(index, gateway)])
        .or_else(|error| expected(error, Errno::EXIST))
        .map_err(NetworkError::kernel(format!("give {gateway} to {name}")))
}

/// Keeps a note with the anchor, where other instances read it.
pub(super) fn note(instance: &Instance, note: &str) -> Result<(), NetworkError> {
    let (name, _) = instance.anchor();
    let mut socket = open()?;
    let index = index_of(&socket, &name)?;
    let set = vec![route::set_alias(index, note)];
    let doing = format!("describe the link {name}");
    socket.request(set).map_err(NetworkError::kernel(doing))
}

/// Addresses of the range that no pod has are nobody's, instead of somewhere behind the default route.
pub(super) fn close_range(range: Ipv4Net) -> Result<(), NetworkError> {
    let doing = format!("make {range} unreachable where it has no pods");
    open()?
        .request(vec![route::new_unreachable(range)])
        .map_err(NetworkError::kernel(doing))
}

/// Puts a pod that has nothing but its namespace on the net. The thread is in that namespace afterwards.
pub(super) fn attach(
    instance: &Instance,
    address: Ipv4Addr,
    namespace: &Namespace,
) -> Result<(), NetworkError> {
    configure_outside(instance, address, namespace)?;
    namespace.join()?;
    let link = instance.pod_link(address);
    configure_inside(instance.gateway(), address).map_err(NetworkError::kernel(format!(
        "configure the pod's side of {link}"
    )))
}

fn configure_outside(
    instance: &Instance,
    address: Ipv4Addr,
    namespace: &Namespace,
) -> Result<(), NetworkError> {
    let name = instance.pod_link(address);
    let mut socket = open()?;
    delete(&mut socket, &name)?;
    let here = End {
        name: &name,
        mac: Some(mac_outside(address)),
    };
    let there = End {
        name: INSIDE,
        mac: Some(mac_inside(address)),
    };
    let namespace = Some(namespace.file().as_fd());
    let made = vec![
        route::new_pair(here, there, namespace, instance.group()),
        route::up_quietly(&name, has_ipv6()),
    ];
    socket
        .request(made)
        .map_err(NetworkError::kernel(format!("make the link {name}")))?;
    let index = index_of(&socket, &name)?;
    let way = vec![
        route::new_neighbour_route(index, address, Some(instance.gateway())),
        route::new_neighbour(index, address, mac_inside(address)),
    ];
    socket
        .request(way)
        .map_err(NetworkError::kernel(format!("make a route to {address}")))
}

fn configure_inside(gateway: Ipv4Addr, address: Ipv4Addr) -> Result<(), NetlinkError> {
    let mut socket = Socket::open(Protocol::Route)?;
    let index = name_to_index(&socket, INSIDE).map_err(|error| NetlinkError::Talk(error.into()))?;
    socket.request(vec![
        route::up(LOOPBACK),
        route::up_quietly(INSIDE, has_ipv6()),
        route::new_address(index, address),
        route::new_neighbour(index, gateway, mac_outside(address)),
        route::new_neighbour_route(index, gateway, None),
        route::new_default_route(index, gateway),
    ])
}

/// Takes the link of a pod away, if it is still there: it goes with the pod's namespace, too.
pub(super) fn detach(instance: &Instance, address: Ipv4Addr) -> Result<(), NetworkError> {
    delete(&mut open()?, &instance.pod_link(address))
}

/// The names of the links to pods.
pub(super) fn pod_links(instance: &Instance) -> Result<Vec<String>, NetworkError> {
    let prefix = instance.pod_prefix();
    let links = route::links(&mut open()?).map_err(NetworkError::kernel("list links"))?;
    let names = links.into_iter().map(|link| link.name);
    Ok(names.filter(|name| name.starts_with(&prefix)).collect())
}

pub(super) fn delete_links(names: &[String]) -> Result<(), NetworkError> {
    let mut socket = open()?;
    names.iter().try_for_each(|name| delete(&mut socket, name))
}

/// Takes away all links and routes of an instance.
pub(super) fn remove(instance: &Instance) -> Result<(), NetworkError> {
    let doing = format!("remove the links of the instance {}", instance.id);
    open()?
        .request(vec![route::delete_group(instance.group())])
        .or_else(|error| expected(error, Errno::NODEV))
        .map_err(NetworkError::kernel(doing))?;
    let doing = format!("remove the route to {}", instance.range);
    open()?
        .request(vec![route::delete_unreachable(instance.range)])
        .or_else(|error| expected(error, Errno::SRCH))
        .map_err(NetworkError::kernel(doing))
}

/// In the namespace of this thread.
pub(super) fn loopback_up() -> Result<(), NetworkError> {
    open()?
        .request(vec![route::up(LOOPBACK)])
        .map_err(NetworkError::kernel("bring the loopback link up"))
}

fn open() -> Result<Socket, NetworkError> {
    Socket::open(Protocol::Route).map_err(NetworkError::kernel("manage links"))
}

fn delete(socket: &mut Socket, name: &str) -> Result<(), NetworkError> {
    let Ok(index) = name_to_index(&*socket, name) else {
        return Ok(());
    };
    let doing = format!("remove the link {name}");
    socket
        .request(vec![route::delete_link(index)])
        .or_else(|error| expected(error, Errno::NODEV))
        .map_err(NetworkError::kernel(doing))
}

fn index_of(socket: &Socket, name: &str) -> Result<u32, NetworkError> {
    name_to_index(socket, name).map_err(|error| {
        let error = NetlinkError::Talk(error.into());
        NetworkError::kernel(format!("find the link {name}"))(error)
    })
}

fn expected(error: NetlinkError, expected: Errno) -> Result<(), NetlinkError> {
    match error.is(expected) {
        true => Ok(()),
        false => Err(error),
    }
}

/// Whether the kernel knows of IPv6.
fn has_ipv6() -> bool {
    Path::new("/proc/sys/net/ipv6").exists()
}

/// Of the pod's end of a pair. Both ends have addresses of their own making, so that each side knows the other's
/// without asking.
fn mac_inside(address: Ipv4Addr) -> Mac {
    locally_administered(0, address)
}

fn mac_outside(address: Ipv4Addr) -> Mac {
    locally_administered(1, address)
}

fn locally_administered(end: u8, address: Ipv4Addr) -> Mac {
    let [a, b, c, d] = address.octets();
    [0x02, end, a, b, c, d]
}
