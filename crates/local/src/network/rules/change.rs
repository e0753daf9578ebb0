//! What has to be done to make one table another, in an order in which nothing is used before it is there or removed
//! while it is used.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use super::{Chain, Hook, Rule, Rules, Source};

/// One step; the steps of a change are taken all at once or not at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::network) enum Operation {
    /// Takes the table away with all that is in it, if it is there, and makes it anew.
    NewTable,
    NewSet(String),
    NewMap(String),
    NewChain(String, Option<Hook>),
    AddSources(Vec<Source>),
    RemoveSources(Vec<Source>),
    AddMembers(String, Vec<Ipv4Addr>),
    RemoveMembers(String, Vec<Ipv4Addr>),
    AddEntries(String, Vec<(Ipv4Addr, String)>),
    RemoveEntries(String, Vec<Ipv4Addr>),
    AddRule(String, Rule),
    Empty(String),
    RemoveChain(String),
    RemoveSet(String),
}

/// The whole table.
pub(in crate::network) fn creation(rules: &Rules) -> Vec<Operation> {
    let mut operations = vec![Operation::NewTable];
    operations.extend(change(&Rules::default(), rules));
    operations
}

/// From the table that is there to another.
pub(in crate::network) fn change(old: &Rules, new: &Rules) -> Vec<Operation> {
    let mut operations = Vec::new();
    containers(old, new, &mut operations);
    members(old, new, &mut operations);
    for (name, chain) in &new.chains {
        fill(name, old.chains.get(name), chain, &mut operations);
    }
    entries(old, new, &mut operations);
    remains(old, new, &mut operations);
    operations
}

fn containers(old: &Rules, new: &Rules, operations: &mut Vec<Operation>) {
    let sets = missing(&new.sets, &old.sets).cloned();
    operations.extend(sets.map(Operation::NewSet));
    let maps = missing(&new.maps, &old.maps).cloned();
    operations.extend(maps.map(Operation::NewMap));
    for name in missing(&new.chains, &old.chains) {
        operations.push(Operation::NewChain(name.clone(), new.chains[name].hook));
    }
}

fn members(old: &Rules, new: &Rules, operations: &mut Vec<Operation>) {
    let (gone, come) = differences(&old.sources, &new.sources);
    push(operations, gone, Operation::RemoveSources);
    push(operations, come, Operation::AddSources);
    let nothing = BTreeSet::new();
    for (name, set) in &new.sets {
        let (gone, come) = differences(old.sets.get(name).unwrap_or(&nothing), set);
        push(operations, gone, |gone| {
            Operation::RemoveMembers(name.clone(), gone)
        });
        push(operations, come, |come| {
            Operation::AddMembers(name.clone(), come)
        });
    }
}

fn fill(name: &str, old: Option<&Chain>, new: &Chain, operations: &mut Vec<Operation>) {
    match old {
        Some(old) if old.rules == new.rules => return,
        Some(_) => operations.push(Operation::Empty(name.to_owned())),
        None => {}
    }
    let rules = new.rules.iter();
    operations.extend(rules.map(|rule| Operation::AddRule(name.to_owned(), rule.clone())));
}

fn entries(old: &Rules, new: &Rules, operations: &mut Vec<Operation>) {
    let nothing = BTreeMap::new();
    for (name, map) in &new.maps {
        let old = old.maps.get(name).unwrap_or(&nothing);
        let gone = old
            .iter()
            .filter(|(address, chain)| map.get(*address) != Some(*chain));
        let gone = gone.map(|(address, _)| *address).collect();
        let come = map
            .iter()
            .filter(|(address, chain)| old.get(*address) != Some(*chain));
        let come = come.map(|(address, chain)| (*address, chain.clone()));
        let come = come.collect();
        push(operations, gone, |gone| {
            Operation::RemoveEntries(name.clone(), gone)
        });
        push(operations, come, |come| {
            Operation::AddEntries(name.clone(), come)
        });
    }
}

/// Chains before the sets that their rules ask, and empty before they go.
fn remains(old: &Rules, new: &Rules, operations: &mut Vec<Operation>) {
    let chains: Vec<_> = missing(&old.chains, &new.chains).cloned().collect();
    operations.extend(chains.iter().cloned().map(Operation::Empty));
    operations.extend(chains.into_iter().map(Operation::RemoveChain));
    let sets = missing(&old.sets, &new.sets).cloned();
    operations.extend(sets.map(Operation::RemoveSet));
}

fn missing<'a, T>(
    these: &'a BTreeMap<String, T>,
    those: &'a BTreeMap<String, T>,
) -> impl Iterator<Item = &'a String> {
    these.keys().filter(|name| !those.contains_key(*name))
}

fn differences<T: Clone + Ord>(old: &BTreeSet<T>, new: &BTreeSet<T>) -> (Vec<T>, Vec<T>) {
    let gone = old.difference(new).cloned().collect();
    (gone, new.difference(old).cloned().collect())
}

fn push<T>(
    operations: &mut Vec<Operation>,
    items: Vec<T>,
    operation: impl FnOnce(Vec<T>) -> Operation,
) {
    if !items.is_empty() {
        operations.push(operation(items));
    }
}
