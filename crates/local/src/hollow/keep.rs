//! How a hollow node keeps its pods.

use std::{collections::BTreeMap, future::pending};

use k8s_openapi::{
    api::core::v1::Pod, apimachinery::pkg::api::resource::Quantity, jiff::Timestamp,
};
use kube::Client;
use tokio::sync::watch;

use super::{
    Options,
    address::{self, Addresses},
    failure::{Causes, Rule},
    plan::{self, Memory, Place, World},
};
use crate::{
    clock::Clock,
    kubelet::{
        node::Machine,
        plan::Plan,
        run::{Engine, Keeper},
    },
};

pub(super) struct Pretence {
    options: Options,
    rules: watch::Receiver<Vec<Rule>>,
    addresses: Addresses,
}

pub(super) fn engine(
    client: Client,
    clock: Clock,
    options: Options,
    rules: watch::Receiver<Vec<Rule>>,
    trouble: watch::Sender<Option<String>>,
) -> Engine<Pretence> {
    let machines = options.nodes.iter().enumerate();
    let machines = machines.map(|(index, name)| Machine {
        name: name.clone(),
        address: address::of_node(index),
        capacity: options.capacity.clone(),
        labels: [("hollow.sandbar.dev/node".to_owned(), "true".to_owned())].into(),
        runtime: "hollow://1.0".to_owned(),
        kernel: "hollow".to_owned(),
        system: "hollow".to_owned(),
    });
    let (machines, schedule) = (machines.collect(), options.schedule);
    let pretence = Pretence {
        options,
        rules,
        addresses: Addresses::default(),
    };
    Engine::new(client, clock, pretence, machines, schedule, trouble)
}

pub(super) fn default_capacity() -> BTreeMap<String, Quantity> {
    [
        ("cpu", "256"),
        ("memory", "4000Gi"),
        ("ephemeral-storage", "4000Gi"),
        ("pods", "65535"),
    ]
    .map(|(name, size)| (name.to_owned(), Quantity(size.to_owned())))
    .into()
}

impl Keeper for Pretence {
    type Memory = Memory;

    fn run(&mut self, pod: &Pod, memory: &mut Memory, host_ip: &str, now: Timestamp) -> Plan {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let pod_ip = self.addresses.of(uid).to_string();
        let place = Place {
            host_ip,
            pod_ip: &pod_ip,
        };
        let world = World {
            now,
            options: &self.options,
            rules: &self.rules.borrow(),
        };
        plan::run(pod, memory, &world, &place)
    }

    fn lacks(&self, pod: &Pod) -> Option<&'static str> {
        let causes = Causes::of_pod(pod, &self.rules.borrow());
        causes.unschedulable.then_some("cpu")
    }

    fn observed(&mut self, pod: &Pod) {
        let status = pod.status.as_ref();
        let address = status.and_then(|status| status.pod_ip.as_ref()?.parse().ok());
        if let (Some(uid), Some(address)) = (&pod.metadata.uid, address) {
            self.addresses.note(uid, address);
        }
    }

    fn forgotten(&mut self, uid: &str) {
        self.addresses.release(uid);
    }

    async fn news(&mut self) -> Option<String> {
        match self.rules.changed().await {
            Ok(()) => None,
            // the handle that sends rules may go before the task is ended
            Err(_) => pending().await,
        }
    }
}
