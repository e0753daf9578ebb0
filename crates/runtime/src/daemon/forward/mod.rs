//! Servers on loopback addresses are reached from outside, too: what listens on a port of 127.0.0.1 or ::1 is published at the same
//! port of the sandbox's own address for as long as it listens. `servers` knows what does.

mod diagnosis;
mod servers;
mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::upgrade::Inherit;
use super::{log, sys};

/// How often the reference looks.
const EVERY: Duration = Duration::from_secs(1);

/// After an error of `accept` such as too many open files; at once it would only come again.
const PAUSE: Duration = Duration::from_millis(50);

/// Follows the servers that come and go, until it is dropped. `host` is where the daemon listens: it is reached there, so are they.
pub(super) async fn follow(host: IpAddr, published: Published) {
    if host.is_loopback() {
        return;
    }
    let mut blind = false;
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        match servers::on_loopback() {
            Ok(ports) => {
                blind = false;
                published.become_as(&wanted(host, &ports)).await;
            }
            Err(error) if !blind => {
                blind = true;
                log(format_args!(
                    "cannot see which ports are listened on: {error}"
                ));
            }
            Err(_) => {}
        }
    }
}

/// Where servers on these ports are to be reached.
fn wanted(host: IpAddr, ports: &BTreeSet<u16>) -> BTreeSet<SocketAddr> {
    if ports.is_empty() {
        return BTreeSet::new();
    }
    let addresses = outward(host);
    let at = |port: &u16| {
        let port = *port;
        addresses.iter().map(move |ip| SocketAddr::new(*ip, port))
    };
    ports.iter().flat_map(at).collect()
}

/// The addresses of the sandbox that others know it by. They may change while it is paused.
fn outward(host: IpAddr) -> Vec<IpAddr> {
    if !host.is_unspecified() {
        return vec![host];
    }
    let v4 = towards(
        Ipv4Addr::UNSPECIFIED.into(),
        Ipv4Addr::new(1, 1, 1, 1).into(),
    );
    let v6 = host.is_ipv6().then(|| {
        let far = Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 1);
        towards(Ipv6Addr::UNSPECIFIED.into(), far.into())
    });
    v4.into_iter().chain(v6.flatten()).collect()
}

/// The own address on the way to one that only a default route leads to. Nothing is sent.
fn towards(any: IpAddr, far: IpAddr) -> Option<IpAddr> {
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect((far, 9)).ok()?;
    let own = socket.local_addr().ok()?.ip();
    (!own.is_loopback() && !own.is_unspecified()).then_some(own)
}

/// What is published now. Clones are the same.
#[derive(Clone, Default)]
pub(super) struct Published(Arc<Mutex<Forwarders>>);

/// Nothing where the port could not be had, which is said once and tried again.
type Forwarders = BTreeMap<SocketAddr, Option<Forwarder>>;

impl Published {
    fn forwarders(&self) -> MutexGuard<'_, Forwarders> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn become_as(&self, wanted: &BTreeSet<SocketAddr>) {
        self.forwarders()
            .retain(|address, _| wanted.contains(address));
        for address in wanted {
            let before = self.forwarders().get(address).map(Option::is_some);
            if before == Some(true) {
                continue;
            }
            let forwarder = match TcpListener::bind(address).await {
                Ok(listener) => Some(Forwarder::new(listener, address.port())),
                Err(error) => {
                    if before.is_none() {
                        complain(*address, &error);
                    }
                    None
                }
            };
            self.forwarders().insert(*address, forwarder);
        }
    }

    pub(super) fn hand_over(&self, inherit: Inherit) -> io::Result<Vec<i32>> {
        let forwarders = self.forwarders();
        let held = forwarders.values().flatten();
        held.map(|forwarder| inherit(forwarder.listener.as_fd()))
            .collect()
    }

    /// What cannot be taken over is published again when it is looked for.
    pub(super) fn take_over(listeners: Vec<i32>) -> Self {
        let published = Self::default();
        let taken = listeners.into_iter().flat_map(|fd| {
            let listener = std::net::TcpListener::from(sys::inherited(fd)?);
            let address = listener.local_addr()?;
            let listener = TcpListener::from_std(listener)?;
            let forwarder = Forwarder::new(listener, address.port());
            io::Result::Ok((address, Some(forwarder)))
        });
        published.forwarders().extend(taken);
        published
    }
}

fn complain(address: SocketAddr, error: &io::Error) {
    // whoever has the port is reached there without help
    if error.kind() != io::ErrorKind::AddrInUse {
        log(format_args!("cannot forward {address}: {error}"));
    }
}

/// Holds a port until it is dropped; connections that were made stay.
struct Forwarder {
    listener: Arc<TcpListener>,
    accepting: JoinHandle<()>,
}

impl Forwarder {
    fn new(listener: TcpListener, port: u16) -> Self {
        let listener = Arc::new(listener);
        Self {
            accepting: tokio::spawn(accept(Arc::clone(&listener), port)),
            listener,
        }
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: Arc<TcpListener>, port: u16) {
    loop {
        match listener.accept().await {
            Ok((client, _)) => {
                tokio::spawn(pass(client, port));
            }
            Err(_) => sleep(PAUSE).await,
        }
    }
}

/// Passes on what either side says, and that it has said all. What breaks one side ends the other.
async fn pass(mut client: TcpStream, port: u16) {
    let loopback = [
        SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
        SocketAddr::from((Ipv6Addr::LOCALHOST, port)),
    ];
    if let Ok(mut server) = TcpStream::connect(&loopback[..]).await {
        let _ = client.set_nodelay(true);
        let _ = server.set_nodelay(true);
        let _ = copy_bidirectional(&mut client, &mut server).await;
    }
}
