//! Reads the kernel's tables of connections, where it cannot be asked for listeners alone.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const LISTENING: &str = "0A";

pub(super) fn each_listener(found: &mut dyn FnMut(IpAddr, u16)) -> io::Result<()> {
    read(File::open("/proc/net/tcp")?, found)?;
    match File::open("/proc/net/tcp6") {
        Ok(table) => read(table, found),
        // a machine without IPv6
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

fn read(table: File, found: &mut dyn FnMut(IpAddr, u16)) -> io::Result<()> {
    let mut table = BufReader::new(table);
    let mut line = String::new();
    while table.read_line(&mut line)? > 0 {
        if let Some((address, port)) = listener(&line) {
            found(address, port);
        }
        line.clear();
    }
    Ok(())
}

/// Of a line such as `0: 0100007F:0BB8 00000000:0000 0A …`.
fn listener(line: &str) -> Option<(IpAddr, u16)> {
    let mut fields = line.split_ascii_whitespace();
    let local = fields.nth(1)?;
    if fields.nth(1)? != LISTENING {
        return None;
    }
    let (address, port) = local.split_once(':')?;
    let mut bytes = [0; 16];
    for (at, word) in bytes.chunks_exact_mut(4).enumerate() {
        // each word is written as a number of the machine's own byte order
        let digits = address.get(8 * at..8 * at + 8).unwrap_or("0");
        let number = u32::from_str_radix(digits, 16).ok()?;
        word.copy_from_slice(&number.to_ne_bytes());
    }
    let address = match *bytes.first_chunk::<4>()? {
        v4 if address.len() == 8 => Ipv4Addr::from(v4).into(),
        _ => Ipv6Addr::from(bytes).into(),
    };
    Some((address, u16::from_str_radix(port, 16).ok()?))
}
