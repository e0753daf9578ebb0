//! The network of an instance that may manage links and rules.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ipnet::Ipv4Net;
use tokio::sync::OwnedMutexGuard;
use uuid::Uuid;

use super::dns::{Records, Server};
use super::error::NetworkError;
use super::forwarding::{self, Forwarding};
use super::namespace::{Namespace, on_a_thread};
use super::policy::{Located, Snapshot, translate};
use super::range::{self, Addresses};
use super::record::{Record, is_name};
use super::rules::{Base, Operation, Rules, Source, change, creation};
use super::turn::Turn;
use super::wire::{self, Instance, Seen};
use super::{Settings, nftables};

#[derive(Debug)]
pub(super) struct Routed {
    instance: Arc<Instance>,
    record: Record,
    addresses: Arc<Mutex<Addresses>>,
    /// The rules as they are in the kernel, if this process made them. Whoever holds this may change rules, and take
    /// an address from a pod: rules that are being made must not speak of a pod that has gone. A thread that changes
    /// rules holds it until it is done, also when nobody waits for it any more.
    enforced: Arc<tokio::sync::Mutex<Option<Rules>>>,
    resolver: Server,
}

impl Routed {
    pub(super) async fn open(settings: Settings) -> Result<Routed, NetworkError> {
        let record = Record::at(&settings.directory);
        let (instance, pods) = {
            let record = record.clone();
            on_a_thread(move || establish(&record, settings.range)).await?
        };
        let started = Server::start(instance.gateway(), settings.resolv_conf).await;
        let resolver = match started {
            Ok(resolver) => resolver,
            Err((address, source)) => {
                if pods.is_empty() {
                    let _ = on_a_thread(move || remove(&record)).await;
                }
                return Err(NetworkError::Resolver { address, source });
            }
        };
        Ok(Routed {
            addresses: Arc::new(Mutex::new(Addresses::new(instance.range, pods))),
            instance: Arc::new(instance),
            record,
            enforced: Arc::default(),
            resolver,
        })
    }

    /// Stops the resolver; what is left is told by the record.
    pub(super) async fn stop(self) -> Record {
        self.resolver.stop().await;
        self.record
    }

    pub(super) async fn attach(
        &self,
        pod: &str,
        namespace: &Path,
    ) -> Result<Ipv4Addr, NetworkError> {
        if !is_name(pod) {
            return Err(NetworkError::PodName(pod.to_owned()));
        }
        let range = self.instance.range;
        let full = NetworkError::Full { range };
        let address = self.given().give(pod).ok_or(full)?;
        let (instance, record) = (self.instance.clone(), self.record.clone());
        let (path, name) = (namespace.to_owned(), pod.to_owned());
        let attached = on_a_thread(move || {
            let namespace = Namespace::open(&path)?;
            record.write_pod(&name, address)?;
            wire::attach(&instance, address, &namespace)
        });
        match attached.await {
            Ok(()) => Ok(address),
            Err(error) => {
                // why it could not be attached says more than why it could not be detached
                let _ = self.detach(pod).await;
                Err(error)
            }
        }
    }

    pub(super) async fn detach(&self, pod: &str) -> Result<(), NetworkError> {
        let Some(address) = self.silence(pod).await? else {
            return Ok(());
        };
        let (instance, record, name) = (self.instance.clone(), self.record.clone(), pod.to_owned());
        let addresses = self.addresses.clone();
        // the kernel takes its time for this, so rules may change meanwhile
        on_a_thread(move || {
            let removed = wire::detach(&instance, address).and_then(|()| record.remove_pod(&name));
            let mut given = locked(&addresses);
            match removed {
                Ok(()) => given.free(address),
                Err(_) => given.restore(&name, address),
            }
            removed
        })
        .await
    }

    /// From here on the pod cannot send, and no longer has its address.
    async fn silence(&self, pod: &str) -> Result<Option<Ipv4Addr>, NetworkError> {
        let enforced = self.enforced.clone().lock_owned().await;
        let Some(address) = self.given().retire(pod) else {
            return Ok(None);
        };
        let source = self.source(address);
        let mut rules = enforced.clone();
        let known = rules.as_mut();
        if !known.is_some_and(|rules| rules.sources.remove(&source)) {
            return Ok(Some(address));
        }
        let operations = vec![Operation::RemoveSources(vec![source])];
        let applied = self.put_in_force(enforced, rules, operations).await;
        if applied.is_err() {
            self.given().restore(pod, address);
        }
        applied.map(|_| Some(address))
    }

    /// Does what makes the rules these. If it fails, what they are is no longer known.
    async fn put_in_force(
        &self,
        mut enforced: OwnedMutexGuard<Option<Rules>>,
        rules: Option<Rules>,
        operations: Vec<Operation>,
    ) -> Result<OwnedMutexGuard<Option<Rules>>, NetworkError> {
        let instance = self.instance.clone();
        on_a_thread(move || {
            *enforced = None;
            apply(&instance, &operations)?;
            *enforced = rules;
            Ok(enforced)
        })
        .await
    }

    pub(super) async fn sweep(&self, known: &BTreeSet<String>) -> Result<(), NetworkError> {
        let attached = self.addresses();
        for pod in attached.keys().filter(|pod| !known.contains(*pod)) {
            self.detach(pod).await?;
        }
        let instance = self.instance.clone();
        let links = on_a_thread(move || wire::pod_links(&instance)).await?;
        // asked only now: whoever has a link among those had its address before
        let left = self.addresses().into_values();
        let left: BTreeSet<_> = left.map(|one| self.instance.pod_link(one)).collect();
        let stray: Vec<_> = links
            .into_iter()
            .filter(|link| !left.contains(link))
            .collect();
        on_a_thread(move || wire::delete_links(&stray)).await
    }

    pub(super) async fn enforce(&self, snapshot: &Snapshot) -> Result<(), NetworkError> {
        let enforced = self.enforced.clone().lock_owned().await;
        let given = self.addresses();
        let located = snapshot.pods.iter().filter_map(|pod| {
            let address = *given.get(&pod.id)?;
            Some(Located { pod, address })
        });
        let located: Vec<_> = located.collect();
        let mut translation = translate(self.base().rules(), snapshot, &located);
        let sources = located.iter().map(|pod| self.source(pod.address));
        translation.rules.sources = sources.collect();
        let new = translation.rules;
        // without knowing what is there, everything is made anew
        let operations = match enforced.as_ref() {
            Some(old) => change(old, &new),
            None => creation(&new),
        };
        let held = match operations.is_empty() {
            true => enforced,
            false => self.put_in_force(enforced, Some(new), operations).await?,
        };
        self.resolver.set_resolving(translation.resolving);
        drop(held);
        Ok(())
    }

    pub(super) fn set_records(&self, records: Records) {
        self.resolver.set_records(records);
    }

    pub(super) fn addresses(&self) -> BTreeMap<String, Ipv4Addr> {
        self.given().all().clone()
    }

    pub(super) fn gateway(&self) -> Ipv4Addr {
        self.instance.gateway()
    }

    pub(super) fn range(&self) -> Ipv4Net {
        self.instance.range
    }

    pub(super) async fn describe(&self) -> String {
        let enforced = self.enforced.lock().await;
        let table = self.instance.table();
        enforced
            .as_ref()
            .map_or_else(String::new, |rules| rules.describe(&table))
    }

    fn base(&self) -> Base {
        base(&self.instance)
    }

    fn source(&self, address: Ipv4Addr) -> Source {
        Source {
            link: self.instance.pod_link(address),
            address,
        }
    }

    fn given(&self) -> MutexGuard<'_, Addresses> {
        locked(&self.addresses)
    }
}

fn locked(addresses: &Mutex<Addresses>) -> MutexGuard<'_, Addresses> {
    addresses.lock().unwrap_or_else(PoisonError::into_inner)
}

fn base(instance: &Instance) -> Base {
    Base {
        prefix: instance.pod_prefix(),
        range: instance.range,
        gateway: instance.gateway(),
    }
}

fn apply(instance: &Instance, operations: &[Operation]) -> Result<(), NetworkError> {
    let table = instance.table();
    let doing = format!("change the rules of the table {table}");
    nftables::apply(&table, operations).map_err(NetworkError::kernel(doing))
}

/// Everything but the pods: what is there stays, what is missing is made.
fn establish(
    record: &Record,
    wanted: Option<Ipv4Net>,
) -> Result<(Instance, BTreeMap<String, Ipv4Addr>), NetworkError> {
    record.make()?;
    // until it is known whether forwarding was on before: two that come and go at the same time would misread each other
    let turn = Turn::take()?;
    let instance = anchored(record, wanted)?;
    wire::close_range(instance.range)?;
    let table = instance.table();
    let tables = nftables::tables().map_err(NetworkError::kernel("list the rules"))?;
    if !tables.contains(&table) {
        apply(&instance, &creation(&base(&instance).rules()))?;
    }
    forwarding::take(&instance, &Seen::now()?)?;
    drop(turn);
    let mut pods = record.pods()?;
    for (pod, _) in pods.extract_if(.., |_, address| !instance.range.contains(&*address)) {
        record.remove_pod(&pod)?;
    }
    Ok((instance, pods))
}

/// The instance with its anchor, whose address tells others which range is taken.
fn anchored(record: &Record, wanted: Option<Ipv4Net>) -> Result<Instance, NetworkError> {
    let seen = Seen::now()?;
    let known = record.instance()?;
    let is_there = known.as_ref().filter(|known| seen.anchor(known).is_some());
    let instance = match is_there {
        Some(known) => match wanted.filter(|wanted| *wanted != known.range) {
            None => known.clone(),
            Some(wanted) if seen.has_pods(known) => {
                let known = known.range;
                return Err(NetworkError::Elsewhere { known, wanted });
            }
            wanted => decide(&seen, Some(known), wanted)?,
        },
        None => decide(&seen, known.as_ref(), wanted)?,
    };
    if let Some(former) = known.filter(|known| *known != instance) {
        remove_table(&former)?;
        forwarding::give_back(&former, &seen)?;
        wire::remove(&former)?;
    }
    record.write_instance(&instance)?;
    wire::make_anchor(&instance)?;
    Ok(instance)
}

/// Who an instance without an anchor is: as before, if its addresses are still free.
fn decide(
    seen: &Seen,
    known: Option<&Instance>,
    wanted: Option<Ipv4Net>,
) -> Result<Instance, NetworkError> {
    let foreign = seen.foreign_routes(known);
    let fits = |one: &&Instance| wanted.is_none_or(|range| range == one.range);
    let is_free = |one: &&Instance| range::is_free(one.range, &foreign);
    if let Some(known) = known.filter(fits).filter(is_free) {
        return Ok(known.clone());
    }
    let range = match wanted {
        None => range::choose(&foreign).ok_or(NetworkError::NoRange)?,
        Some(range) => {
            if let Some(reason) = range::flaw(range, &foreign) {
                return Err(NetworkError::Range { range, reason });
            }
            range
        }
    };
    let id = known.map_or_else(new_id, |known| known.id.clone());
    Ok(Instance { id, range })
}

fn new_id() -> String {
    Uuid::new_v4().simple().to_string()[..8].to_owned()
}

fn remove_table(instance: &Instance) -> Result<(), NetworkError> {
    let table = instance.table();
    let doing = format!("remove the table {table}");
    nftables::remove(&table).map_err(NetworkError::kernel(doing))
}

/// Removes every trace of an instance. Its record goes last, so that what fails can be tried again.
pub(super) fn remove(record: &Record) -> Result<Forwarding, NetworkError> {
    let Some(instance) = record.instance()? else {
        record.remove()?;
        return Ok(Forwarding::Untouched);
    };
    // the last of those that go together must not take the others for staying
    let turn = Turn::take_patiently();
    remove_table(&instance)?;
    let forwarding = match &turn {
        Ok(_) => forwarding::give_back(&instance, &Seen::now()?)?,
        // whoever has the turn all this time is there, and may need it
        Err(_) => Forwarding::LeftToOthers,
    };
    wire::remove(&instance)?;
    drop(turn);
    record.remove()?;
    Ok(forwarding)
}
