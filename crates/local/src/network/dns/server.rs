//! The server: takes queries, answers what records know and hands on the rest.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::DOMAIN;
use super::forward::{Forwarder, Transport, read_message, write_message};
use super::records::{Answer, Records};
use super::wire::{Code, Query};

const PORT: u16 = 53;
/// Questions to others and connections, of all pods and of each.
const AT_ONCE: usize = 512;
const AT_ONCE_EACH: usize = 32;
/// A connection without a question is closed.
const IDLE: Duration = Duration::from_secs(10);
/// Larger queries are none.
const LARGEST: usize = 4096;
/// Until sockets can be had again.
const PAUSE: Duration = Duration::from_millis(50);

/// Runs until it is stopped or, a little longer, dropped.
#[derive(Debug)]
pub(in crate::network) struct Server {
    shared: Arc<Shared>,
    tasks: JoinSet<()>,
}

#[derive(Debug)]
struct Shared {
    /// None until they are known: a process that just came back must not deny what there is.
    records: RwLock<Option<Arc<Records>>>,
    resolving: RwLock<Option<BTreeSet<Ipv4Addr>>>,
    forwarder: Forwarder,
    under_way: Arc<UnderWay>,
}

impl Server {
    pub(in crate::network) async fn start(
        address: Ipv4Addr,
        resolv_conf: PathBuf,
    ) -> Result<Server, (SocketAddr, io::Error)> {
        let address = SocketAddr::new(address.into(), PORT);
        let cannot = |error| (address, error);
        let udp = UdpSocket::bind(address).await.map_err(cannot)?;
        let tcp = TcpListener::bind(address).await.map_err(cannot)?;
        let shared = Arc::new(Shared {
            records: RwLock::default(),
            resolving: RwLock::default(),
            forwarder: Forwarder { resolv_conf },
            under_way: Arc::default(),
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(serve_udp(Arc::new(udp), shared.clone()));
        tasks.spawn(serve_tcp(tcp, shared.clone()));
        Ok(Server { shared, tasks })
    }

    /// Its address can be bound again afterwards.
    pub(in crate::network) async fn stop(mut self) {
        self.tasks.shutdown().await;
    }

    pub(in crate::network) fn set_records(&self, records: Records) {
        let current = self.shared.records.write();
        *current.unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(records));
    }

    pub(in crate::network) fn set_resolving(&self, pods: BTreeSet<Ipv4Addr>) {
        let current = self.shared.resolving.write();
        *current.unwrap_or_else(PoisonError::into_inner) = Some(pods);
    }
}

impl Shared {
    /// What can be said at once; nothing if others have to be asked.
    fn answer(&self, from: SocketAddr, query: &Query) -> Option<Vec<u8>> {
        let records = self.records.read();
        let records = records.unwrap_or_else(PoisonError::into_inner).clone();
        let cannot = |code| Some(query.answer(code, &[], None));
        let Some(records) = records else {
            return cannot(Code::ServerFailure);
        };
        match records.find(&query.name, query.kind) {
            Answer::Data(data) => Some(query.answer(Code::NoError, &data, Some(DOMAIN))),
            Answer::NoSuchName => Some(query.answer(Code::NoSuchName, &[], Some(DOMAIN))),
            Answer::Elsewhere => match self.may_ask_others(from) {
                Some(true) => None,
                Some(false) => cannot(Code::Refused),
                None => cannot(Code::ServerFailure),
            },
        }
    }

    fn may_ask_others(&self, from: SocketAddr) -> Option<bool> {
        let resolving = self.resolving.read();
        let resolving = resolving.unwrap_or_else(PoisonError::into_inner);
        let resolving = resolving.as_ref()?;
        Some(match from.ip() {
            IpAddr::V4(address) => resolving.contains(&address),
            IpAddr::V6(_) => false,
        })
    }

    async fn ask_others(&self, query: &Query, transport: Transport) -> Vec<u8> {
        let answer = self.forwarder.ask(query, transport).await;
        answer.unwrap_or_else(|| query.answer(Code::ServerFailure, &[], None))
    }
}

async fn serve_udp(socket: Arc<UdpSocket>, shared: Arc<Shared>) {
    let mut asking = JoinSet::new();
    let mut buffer = vec![0; LARGEST];
    loop {
        while asking.try_join_next().is_some() {}
        let Ok((length, from)) = socket.recv_from(&mut buffer).await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let query = match Query::read(&buffer[..length]) {
            Ok(query) => query,
            Err(bad) => {
                if let Some(answer) = bad.answer() {
                    let _ = socket.send_to(&answer, from).await;
                }
                continue;
            }
        };
        if let Some(answer) = shared.answer(from, &query) {
            // `try_send_to` would lose it while the socket is not known to be writable yet
            let _ = socket.send_to(&fitting(&query, answer), from).await;
            continue;
        }
        let Some(place) = UnderWay::enter(&shared.under_way, from.ip()) else {
            continue;
        };
        let (socket, shared) = (socket.clone(), shared.clone());
        asking.spawn(async move {
            let answer = shared.ask_others(&query, Transport::Udp).await;
            let _ = socket.send_to(&fitting(&query, answer), from).await;
            drop(place);
        });
    }
}

fn fitting(query: &Query, answer: Vec<u8>) -> Vec<u8> {
    match answer.len() <= query.limit() {
        true => answer,
        false => query.truncated(),
    }
}

async fn serve_tcp(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let Ok((stream, from)) = listener.accept().await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        if let Some(place) = UnderWay::enter(&shared.under_way, from.ip()) {
            let shared = shared.clone();
            connections.spawn(async move {
                // a connection that breaks is the other side's loss
                let _ = converse(stream, from, &shared).await;
                drop(place);
            });
        }
    }
}

async fn converse(mut stream: TcpStream, from: SocketAddr, shared: &Shared) -> io::Result<()> {
    loop {
        let message = timeout(IDLE, read_message(&mut stream)).await??;
        let answer = match Query::read(&message) {
            Ok(query) => match shared.answer(from, &query) {
                Some(answer) => answer,
                None => shared.ask_others(&query, Transport::Tcp).await,
            },
            Err(bad) => match bad.answer() {
                Some(answer) => answer,
                None => return Ok(()),
            },
        };
        timeout(IDLE, write_message(&mut stream, &answer)).await??;
    }
}

/// How much is under way for whom.
#[derive(Debug, Default)]
struct UnderWay {
    of: Mutex<HashMap<IpAddr, usize>>,
}

struct Place {
    under_way: Arc<UnderWay>,
    of: IpAddr,
}

impl UnderWay {
    fn enter(under_way: &Arc<UnderWay>, of: IpAddr) -> Option<Place> {
        let mut places = under_way.places();
        let all: usize = places.values().sum();
        let own = places.entry(of).or_default();
        if all >= AT_ONCE || *own >= AT_ONCE_EACH {
            return None;
        }
        *own += 1;
        let under_way = under_way.clone();
        Some(Place { under_way, of })
    }

    fn places(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.of.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut places = self.under_way.places();
        if let Some(count) = places.get_mut(&self.of) {
            *count -= 1;
        }
        places.retain(|_, count| *count > 0);
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};
    use std::sync::Arc;

    use super::{AT_ONCE, AT_ONCE_EACH, UnderWay};

    #[test]
    fn one_pod_cannot_take_the_places_of_others() {
        let under_way = Arc::<UnderWay>::default();
        let pod = |last| IpAddr::V4(Ipv4Addr::new(10, 88, 0, last));
        let enter = |last| UnderWay::enter(&under_way, pod(last));
        let greedy: Vec<_> = (0..100).filter_map(|_| enter(1)).collect();
        assert_eq!(greedy.len(), AT_ONCE_EACH);
        let many = (2..100).flat_map(|last| [last; 9]);
        let others: Vec<_> = many.filter_map(enter).collect();
        assert_eq!(others.len(), AT_ONCE - AT_ONCE_EACH);
        drop((greedy, others));
        assert!(under_way.places().is_empty());
        assert!(enter(1).is_some());
    }
}
