//! Asks the kernel for listeners alone (`sock_diag` of netlink), which costs a hundredth of reading its tables.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};

/// The kernel does not write more at once to whoever does not read more at once.
const LARGEST_ANSWER: usize = 8192;

const HEADER: usize = 16;
const LENGTH: u32 = 72;
const BY_FAMILY: u16 = 20;
const DONE: u16 = 3;
const ERROR: u16 = 2;
const REQUEST_ALL: u16 = 0x301;
const TCP: u8 = 6;
const LISTENING: u32 = 1 << 10;

enum Message {
    Listener(IpAddr, u16),
    Done,
    Refusal(io::Error),
    Other,
}

pub(super) fn each_listener(found: &mut dyn FnMut(IpAddr, u16)) -> io::Result<()> {
    ask(AddressFamily::INET, found)?;
    ask(AddressFamily::INET6, found)
}

fn ask(family: AddressFamily, found: &mut dyn FnMut(IpAddr, u16)) -> io::Result<()> {
    let socket = socket_with(
        AddressFamily::NETLINK,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        Some(netlink::SOCK_DIAG),
    )?;
    send(&socket, &question(family), SendFlags::empty())?;
    let mut buffer = [0; LARGEST_ANSWER];
    loop {
        // the answer is there before the question is sent off, so there is nothing to wait for
        let (length, _) = recv(&socket, &mut buffer[..], RecvFlags::DONTWAIT)?;
        let mut rest = &buffer[..length];
        while let Some((message, others)) = split(rest) {
            match message {
                Message::Listener(address, port) => found(address, port),
                Message::Done => return Ok(()),
                Message::Refusal(error) => return Err(error),
                Message::Other => {}
            }
            rest = others;
        }
    }
}

fn question(family: AddressFamily) -> [u8; LENGTH as usize] {
    let mut question = [0; LENGTH as usize];
    question[..4].copy_from_slice(&LENGTH.to_ne_bytes());
    question[4..6].copy_from_slice(&BY_FAMILY.to_ne_bytes());
    question[6..8].copy_from_slice(&REQUEST_ALL.to_ne_bytes());
    question[HEADER] = family.as_raw().to_le_bytes()[0];
    question[HEADER + 1] = TCP;
    question[HEADER + 4..HEADER + 8].copy_from_slice(&LISTENING.to_ne_bytes());
    question
}

/// The first message, and the bytes after it.
fn split(bytes: &[u8]) -> Option<(Message, &[u8])> {
    let length = u32::from_ne_bytes(*bytes.first_chunk()?);
    let length = usize::try_from(length).ok()?;
    let kind = u16::from_ne_bytes(*bytes.get(4..)?.first_chunk()?);
    let content = bytes.get(HEADER..length)?;
    let message = match kind {
        BY_FAMILY => listener(content)?,
        DONE => Message::Done,
        ERROR => {
            let negative = i32::from_ne_bytes(*content.first_chunk()?);
            Message::Refusal(io::Error::from_raw_os_error(-negative))
        }
        _ => Message::Other,
    };
    let aligned = length.next_multiple_of(4);
    Some((message, bytes.get(aligned..).unwrap_or_default()))
}

fn listener(content: &[u8]) -> Option<Message> {
    let port = u16::from_be_bytes(*content.get(4..)?.first_chunk()?);
    let address = content.get(8..)?;
    let v4 = u16::from(*content.first()?) == AddressFamily::INET.as_raw();
    let address = if v4 {
        Ipv4Addr::from(*address.first_chunk::<4>()?).into()
    } else {
        Ipv6Addr::from(*address.first_chunk::<16>()?).into()
    };
    Some(Message::Listener(address, port))
}
