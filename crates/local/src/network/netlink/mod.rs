//! Netlink as far as the network of a node needs it: messages made of attributes, and a socket to send them by.
//!
//! nftables has to be spoken byte by byte in any case, as no program for it can be relied on; links, addresses and
//! routes are eight more messages of the same form. A crate for these would bring an actor per socket, where a pod
//! needs a handful of messages sent at once by a thread that is in the pod's namespace.

mod message;
pub(super) mod route;
mod socket;

pub(super) use message::{Message, Mode, attributes, text, u32_at};
pub(super) use socket::{NetlinkError, Protocol, Socket};
