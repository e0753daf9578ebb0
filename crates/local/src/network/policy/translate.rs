//! Policies as rules: each pod that is isolated gets the chain of what it may do, shared by all pods that may do the
//! same; the pods that a rule selects are a set, so that a new pod only adds elements.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Debug;
use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use sha2::{Digest as _, Sha256};

use super::parse::{Allowed, Peer, Policy, Port, policy};
use super::{Labels, Located, NamedPort, Snapshot};
use crate::network::rules::{
    Action, CONSENTED, Chain, ENTERING, LEAVING, Match, NAMING, Ports, Protocol, Rule, Rules, Side,
    is_metadata, no_metadata,
};

/// The kernel takes at most 128 expressions in a rule, and an exception is three of them.
const EXCEPTIONS_IN_A_RULE: usize = 16;
const DNS: u16 = 53;
/// What selectors of a cluster's resolver look for.
const RESOLVER_NAMESPACE: &str = "kube-system";
const RESOLVER_LABEL: (&str, &str) = ("k8s-app", "kube-dns");
const NAMESPACE_LABEL: &str = "kubernetes.io/metadata.name";

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::network) struct Translation {
    pub(in crate::network) rules: Rules,
    /// The pods for which the resolver asks others.
    pub(in crate::network) resolving: BTreeSet<Ipv4Addr>,
}

/// `rules` are those without any pods. Pods that the same policies select and that have the same ports may do the same,
/// and most pods of a node are alike: what they may do is worked out once.
pub(in crate::network) fn translate(
    rules: Rules,
    snapshot: &Snapshot,
    pods: &[Located<'_>],
) -> Translation {
    let policies: Vec<_> = snapshot.policies.iter().filter_map(policy).collect();
    let mut translator = Translator {
        namespaces: &snapshot.namespaces,
        pods,
        rules,
    };
    let mut known = HashMap::new();
    let mut resolving = BTreeSet::new();
    for pod in pods {
        let selects =
            |policy: &(usize, &Policy)| policy.1.selects(&pod.pod.namespace, &pod.pod.labels);
        let selected = policies.iter().enumerate().filter(selects);
        let (indices, selected): (Vec<_>, Vec<_>) = selected.unzip();
        let chains = known
            .entry((indices, &pod.pod.ports))
            .or_insert_with(|| translator.chains(&selected, &pod.pod.ports));
        if chains.resolves {
            resolving.insert(pod.address);
        }
        translator.lead(pod.address, chains);
    }
    let rules = translator.rules;
    Translation { rules, resolving }
}

/// Where packets of a pod go on; none where it is not isolated.
struct Chains {
    entering: Option<String>,
    leaving: Option<String>,
    naming: Option<String>,
    resolves: bool,
}

/// One way in or out that is open.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Way {
    peer: Whom,
    ports: Option<Ports>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Whom {
    /// Where clouds serve credentials. First, as it is about addresses that no other way is about.
    Metadata(Ipv4Net, Vec<Ipv4Net>),
    Everybody,
    Block(Ipv4Net, Vec<Ipv4Net>),
    /// The pods of a set; `named` if a selector made it.
    Set {
        name: String,
        named: bool,
    },
}

struct Translator<'a> {
    namespaces: &'a BTreeMap<String, Labels>,
    pods: &'a [Located<'a>],
    rules: Rules,
}

impl Translator<'_> {
    fn chains(&mut self, policies: &[&Policy], ports: &[NamedPort]) -> Chains {
        let ingress = policies.iter().filter_map(|policy| policy.ingress.as_ref());
        let ingress: Vec<_> = ingress.collect();
        let egress = policies.iter().filter_map(|policy| policy.egress.as_ref());
        let egress: Vec<_> = egress.collect();
        let resolves = egress.is_empty() || egress.iter().copied().flatten().any(resolves);
        let entering = (!ingress.is_empty()).then(|| self.enter(&ingress, ports));
        let ways = (!egress.is_empty()).then(|| self.leave(&egress));
        Chains {
            entering,
            leaving: ways.as_ref().map(|ways| self.leaving(ways)),
            naming: ways.as_ref().and_then(|ways| self.naming(ways)),
            resolves,
        }
    }

    fn lead(&mut self, pod: Ipv4Addr, chains: &Chains) {
        for (map, chain) in [
            (ENTERING, &chains.entering),
            (LEAVING, &chains.leaving),
            (NAMING, &chains.naming),
        ] {
            if let Some(chain) = chain {
                let entries = self.rules.maps.entry(map.to_owned()).or_default();
                entries.insert(pod, chain.clone());
            }
        }
    }

    fn enter(&mut self, policies: &[&Vec<Allowed>], own: &[NamedPort]) -> String {
        let mut ways = BTreeSet::new();
        for (peer, port) in pairs(policies) {
            let whom = self.whom(peer);
            let ports = match port {
                Port::Any => vec![None],
                Port::Numbers(ports) => vec![Some(*ports)],
                Port::Named(protocol, name) => numbers(own, *protocol, name)
                    .map(|number| Some(Ports::one(*protocol, number)))
                    .collect(),
            };
            ways.extend(ports.into_iter().map(|ports| Way {
                peer: whom.clone(),
                ports,
            }));
        }
        let onward = Action::Goto(CONSENTED.to_owned());
        let rules = lines(ways.iter(), Side::From, &onward);
        self.chain("in", rules)
    }

    fn leave(&mut self, policies: &[&Vec<Allowed>]) -> BTreeSet<Way> {
        let mut ways = BTreeSet::new();
        for (peer, port) in pairs(policies) {
            let ports = match port {
                Port::Any => None,
                Port::Numbers(ports) => Some(*ports),
                Port::Named(protocol, name) => {
                    ways.extend(self.by_name(peer, *protocol, name));
                    continue;
                }
            };
            let peer = self.whom(peer);
            ways.insert(Way { peer, ports });
        }
        ways
    }

    fn leaving(&mut self, ways: &BTreeSet<Way>) -> String {
        let is_local = |way: &&Way| matches!(way.peer, Whom::Metadata(..));
        let local = ways.iter().filter(is_local);
        let mut rules = lines(local, Side::To, &Action::Accept);
        rules.extend(no_metadata());
        let others = ways.iter().filter(|way| !is_local(way));
        rules.extend(lines(others, Side::To, &Action::Accept));
        self.chain("out", rules)
    }

    /// None if no pods are selected.
    fn naming(&mut self, ways: &BTreeSet<Way>) -> Option<String> {
        let names = |way: &&Way| matches!(way.peer, Whom::Set { named: true, .. });
        let rules = lines(ways.iter().filter(names), Side::To, &Action::Accept);
        (!rules.is_empty()).then(|| self.chain("named", rules))
    }

    /// The ways to a port that each receiver has under its own number.
    fn by_name(&mut self, peer: &Peer, protocol: Protocol, name: &str) -> Vec<Way> {
        let mut receivers: BTreeMap<u16, BTreeSet<Ipv4Addr>> = BTreeMap::new();
        for pod in self.pods.iter().filter(|pod| self.includes(peer, pod)) {
            for number in numbers(&pod.pod.ports, protocol, name) {
                receivers.entry(number).or_default().insert(pod.address);
            }
        }
        let named = matches!(peer, Peer::Pods { .. });
        let ways = receivers.into_iter().map(|(number, addresses)| {
            let set = identifier("ports", &(peer, protocol, name, number));
            self.rules.sets.insert(set.clone(), addresses);
            Way {
                peer: Whom::Set { name: set, named },
                ports: Some(Ports::one(protocol, number)),
            }
        });
        ways.collect()
    }

    fn whom(&mut self, peer: &Peer) -> Whom {
        match peer {
            Peer::Everybody => Whom::Everybody,
            Peer::Block { within, except } if is_metadata(*within) => {
                Whom::Metadata(*within, except.clone())
            }
            Peer::Block { within, except } => Whom::Block(*within, except.clone()),
            Peer::Pods { .. } => {
                let name = identifier("pods", peer);
                if !self.rules.sets.contains_key(&name) {
                    let selected = self.pods.iter().filter(|pod| self.includes(peer, pod));
                    let addresses = selected.map(|pod| pod.address).collect();
                    self.rules.sets.insert(name.clone(), addresses);
                }
                Whom::Set { name, named: true }
            }
        }
    }

    fn includes(&self, peer: &Peer, pod: &Located<'_>) -> bool {
        match peer {
            Peer::Everybody => true,
            Peer::Block { within, except } => {
                within.contains(&pod.address)
                    && !except.iter().any(|one| one.contains(&pod.address))
            }
            Peer::Pods { .. } => peer.selects(&pod.pod.namespace, self.namespaces, &pod.pod.labels),
        }
    }

    /// What no rule of the chain lets through is dropped.
    fn chain(&mut self, kind: &str, mut rules: Vec<Rule>) -> String {
        rules.push(Rule {
            matches: Vec::new(),
            action: Action::Drop,
        });
        let lines: Vec<_> = rules.iter().map(ToString::to_string).collect();
        let name = identifier(kind, &lines);
        let chain = Chain { hook: None, rules };
        self.rules.chains.insert(name.clone(), chain);
        name
    }
}

fn pairs<'a>(policies: &[&'a Vec<Allowed>]) -> impl Iterator<Item = (&'a Peer, &'a Port)> {
    let allowed = policies.iter().flat_map(|policy| policy.iter());
    allowed.flat_map(|one| {
        let ports = move |peer| one.ports.iter().map(move |port| (peer, port));
        one.peers.iter().flat_map(ports)
    })
}

fn numbers(ports: &[NamedPort], protocol: Protocol, name: &str) -> impl Iterator<Item = u16> {
    let ports = ports.iter();
    let of_name = ports.filter(move |port| port.protocol == protocol && port.name == name);
    of_name.map(|port| port.number)
}

/// The rules that let these ways through; `side` is where the peer is.
fn lines<'a>(ways: impl Iterator<Item = &'a Way>, side: Side, action: &Action) -> Vec<Rule> {
    let mut rules = Vec::new();
    for way in ways {
        for mut matches in peers(&way.peer, side) {
            matches.extend(way.ports.map(Match::Ports));
            rules.push(Rule {
                matches,
                action: action.clone(),
            });
        }
    }
    rules
}

/// Each list of matches is one alternative.
fn peers(whom: &Whom, side: Side) -> Vec<Vec<Match>> {
    let address = |within: Ipv4Net, is| Match::Address { side, within, is };
    match whom {
        Whom::Everybody => vec![Vec::new()],
        Whom::Set { name, .. } => vec![vec![Match::Member {
            side,
            set: name.clone(),
        }]],
        Whom::Block(within, except) | Whom::Metadata(within, except) => {
            if except.len() > EXCEPTIONS_IN_A_RULE {
                let parts = without(*within, except).into_iter();
                return parts.map(|part| vec![address(part, true)]).collect();
            }
            let except = except.iter().map(|one| address(*one, false));
            vec![
                std::iter::once(address(*within, true))
                    .chain(except)
                    .collect(),
            ]
        }
    }
}

/// The blocks that are left of one without its exceptions.
fn without(block: Ipv4Net, except: &[Ipv4Net]) -> Vec<Ipv4Net> {
    if except.iter().any(|one| one.contains(&block)) {
        return Vec::new();
    }
    let inside = except.iter().filter(|one| block.contains(*one)).copied();
    let inside: Vec<_> = inside.collect();
    if inside.is_empty() {
        return vec![block];
    }
    let halves = block.subnets(block.prefix_len() + 1).into_iter().flatten();
    halves.flat_map(|half| without(half, &inside)).collect()
}

/// Whether a rule lets a pod ask the resolver of a cluster, or any in the world. The names of other machines are
/// what tells most about them, and a question can carry anything out.
fn resolves(allowed: &Allowed) -> bool {
    let asks = allowed.ports.iter().any(|port| match port {
        Port::Any => true,
        Port::Numbers(ports) => [Protocol::Udp, Protocol::Tcp]
            .iter()
            .any(|one| ports.contains(*one, DNS)),
        Port::Named(..) => false,
    });
    let (key, value) = RESOLVER_LABEL;
    let labels = Labels::from([(key.to_owned(), value.to_owned())]);
    let own = Labels::from([(NAMESPACE_LABEL.to_owned(), RESOLVER_NAMESPACE.to_owned())]);
    let namespaces = BTreeMap::from([(RESOLVER_NAMESPACE.to_owned(), own)]);
    asks && allowed.peers.iter().any(|peer| match peer {
        Peer::Everybody => true,
        Peer::Block { within, .. } => within.prefix_len() == 0,
        Peer::Pods { .. } => peer.selects(RESOLVER_NAMESPACE, &namespaces, &labels),
    })
}

/// A name that stays the same as long as what it stands for does.
fn identifier(kind: &str, of: &impl Debug) -> String {
    let digest = Sha256::digest(format!("{of:?}"));
    let digits: String = digest[..8]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("{kind}_{digits}")
}
