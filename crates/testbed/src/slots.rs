//! Slots: each running instance owns one, and with it a link on the host, three address ranges and a control group.
//!
//! Whoever holds a slot cleans it before use, so remains of a holder that was killed do no harm.

use std::net::Ipv4Addr;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::command::run;
use crate::plan::Net;
use crate::{cgroups, paths};

const SLOTS: u8 = 64;

/// A slot that is ours until dropped.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) index: u8,
    /// A name in the kernel's abstract socket namespace: exclusive on the whole machine, released on any death,
    /// and it leaves no file.
    _name: UnixListener,
}

impl Slot {
    /// The first free slot whose ranges are not in use on this machine.
    pub(crate) fn allocate() -> Result<Self> {
        let mut spoilt = String::new();
        for index in 0..SLOTS {
            let Some(slot) = Self::take(index)? else {
                continue;
            };
            match slot.clean() {
                Ok(()) if !clashes(Net(index), &routes()?) => return Ok(slot),
                Ok(()) => {}
                // remains that cannot be removed spoil this slot only
                Err(error) => spoilt = format!("; slot {index} cannot be cleaned: {error:#}"),
            }
        }
        bail!(
            "no free slot: {SLOTS} testbeds are running, or the machine has routes into 10.89.0.0/16 to 10.91.0.0/16 (see `testbed status` and `ip route`){spoilt}"
        )
    }

    /// A given slot, if nobody holds it within a moment.
    pub(crate) fn reclaim(index: u8) -> Result<Option<Self>> {
        let give_up = Instant::now() + Duration::from_secs(2);
        loop {
            let slot = Self::take(index)?;
            if slot.is_some() || Instant::now() > give_up {
                return Ok(slot);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn take(index: u8) -> Result<Option<Self>> {
        let name = SocketAddr::from_abstract_name(format!("sandbar-testbed-slot-{index}"))
            .context("naming a slot")?;
        match UnixListener::bind_addr(&name) {
            Ok(name) => Ok(Some(Self { index, _name: name })),
            Err(e) if e.kind() == std::io::ErrorKind::AddrInUse => Ok(None),
            Err(e) => Err(e).with_context(|| format!("taking slot {index}")),
        }
    }

    pub(crate) fn cgroup(&self) -> String {
        format!("sandbar-testbed-{}", self.index)
    }

    /// Removes what belongs to the slot on the host. Routes go with the link.
    pub(crate) fn clean(&self) -> Result<()> {
        let net = Net(self.index);
        if let Some(remembered) = paths::remembered_discovery(net.node()) {
            // usually absent, and stale at worst
            let _ = std::fs::remove_dir_all(remembered);
        }
        let link = net.host_link();
        let exists = || Path::new("/sys/class/net").join(&link).exists();
        if exists()
            && let Err(error) = run(
                Command::new("ip").args(["link", "del", &link]),
                "removing the link",
            )
            // the kernel may have removed it in this moment, with the namespace of its other end
            && exists()
        {
            return Err(error);
        }
        cgroups::remove(Path::new(cgroups::ROOT), &self.cgroup())
    }

    /// Creates the link between the host and the network namespace of process `pid`.
    pub(crate) fn connect(&self, pid: u32) -> Result<()> {
        let net = Net(self.index);
        let link = net.host_link();
        let pid = pid.to_string();
        let ip = |arguments: &[&str]| {
            run(
                Command::new("ip").args(arguments),
                "connecting the network namespace",
            )
            .map(drop)
        };
        ip(&[
            "link", "add", &link, "type", "veth", "peer", "name", "eth0", "netns", &pid,
        ])?;
        ip(&[
            "address",
            "add",
            &format!("{}/30", net.host()),
            "dev",
            &link,
        ])?;
        ip(&["link", "set", &link, "up"])?;
        for range in [net.pods(), net.services()] {
            ip(&[
                "route",
                "add",
                &range,
                "via",
                &net.node().to_string(),
                "dev",
                &link,
            ])?;
        }
        Ok(())
    }
}

/// Inside the namespace: addresses and routes of the node's end.
pub(crate) fn configure_node(net: Net) -> Result<()> {
    let give_up = Instant::now() + Duration::from_secs(10);
    // not /sys/class/net: that mount still shows the host's interfaces
    while !std::fs::read_to_string("/proc/net/dev")
        .unwrap_or_default()
        .contains("eth0:")
    {
        if Instant::now() > give_up {
            bail!("the link to the host did not appear in the network namespace");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let ip = |arguments: &[&str]| {
        run(
            Command::new("ip").args(arguments),
            "configuring the node's network",
        )
        .map(drop)
    };
    ip(&["link", "set", "lo", "up"])?;
    ip(&[
        "address",
        "add",
        &format!("{}/30", net.node()),
        "dev",
        "eth0",
    ])?;
    ip(&["link", "set", "eth0", "up"])?;
    ip(&["route", "add", "default", "via", &net.host().to_string()])?;
    std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").context("turning on forwarding")
}

type Range = (u32, u32);

/// The destinations of the machine's routes.
fn routes() -> Result<Vec<Range>> {
    let text = run(
        Command::new("ip").args(["-4", "route", "show"]),
        "listing routes",
    )?;
    Ok(text
        .lines()
        .filter_map(|l| range(l.split_whitespace().next()?))
        .collect())
}

fn clashes(net: Net, routes: &[Range]) -> bool {
    [net.link(), net.pods(), net.services()]
        .iter()
        .filter_map(|ours| range(ours))
        .any(|(first, last)| routes.iter().any(|(a, b)| first <= *b && *a <= last))
}

/// First and last address of `a.b.c.d/n` or `a.b.c.d`; `None` for `default` and everything that is no address.
fn range(text: &str) -> Option<Range> {
    let (address, bits) = text.split_once('/').unwrap_or((text, "32"));
    let address = u32::from(address.parse::<Ipv4Addr>().ok()?);
    let bits: u32 = bits.parse().ok().filter(|b| *b <= 32)?;
    let host_part = u32::MAX.checked_shr(bits).unwrap_or(0);
    Some((address & !host_part, address | host_part))
}

#[cfg(test)]
mod tests {
    use super::{SLOTS, Slot, clashes, range};
    use crate::plan::Net;

    #[test]
    fn a_slot_clashes_with_any_overlapping_route_but_not_with_the_default_one() {
        let clash = |route: &str| clashes(Net(3), &range(route).into_iter().collect::<Vec<_>>());
        for route in ["10.89.3.0/30", "10.90.3.7", "10.91.0.0/16", "10.0.0.0/8"] {
            assert!(clash(route), "{route}");
        }
        for route in ["default", "10.90.4.0/24", "192.168.0.0/16", "blackhole"] {
            assert!(!clash(route), "{route}");
        }
    }

    #[test]
    fn a_slot_has_one_holder_at_a_time() {
        // beyond the slots that real instances use; another run of this test may hold one of them
        let held = (SLOTS..u8::MAX)
            .find_map(|index| Slot::take(index).unwrap())
            .unwrap();
        assert!(Slot::take(held.index).unwrap().is_none());
        let index = held.index;
        drop(held);
        assert!(Slot::take(index).unwrap().is_some());
    }
}
