//! A table that refuses what the kernel would refuse.

use crate::network::rules::{Action, Chain, Match, Operation, Rules};

#[derive(Debug, Default)]
pub(super) struct Table {
    pub(super) rules: Rules,
}

impl Table {
    pub(super) fn apply(&mut self, operations: &[Operation]) {
        for operation in operations {
            self.step(operation);
        }
    }

    fn step(&mut self, operation: &Operation) {
        let rules = &mut self.rules;
        match operation.clone() {
            Operation::NewTable => *rules = Rules::default(),
            Operation::NewSet(name) => {
                assert!(rules.sets.insert(name, Default::default()).is_none());
            }
            Operation::NewMap(name) => {
                assert!(rules.maps.insert(name, Default::default()).is_none());
            }
            Operation::NewChain(name, hook) => {
                let chain = Chain {
                    hook,
                    rules: Vec::new(),
                };
                assert!(rules.chains.insert(name, chain).is_none());
            }
            Operation::AddSources(sources) => rules.sources.extend(sources),
            Operation::RemoveSources(sources) => {
                assert!(sources.iter().all(|one| rules.sources.remove(one)));
            }
            Operation::AddMembers(set, members) => {
                rules.sets.get_mut(&set).unwrap().extend(members);
            }
            Operation::RemoveMembers(set, members) => {
                let set = rules.sets.get_mut(&set).unwrap();
                assert!(members.iter().all(|one| set.remove(one)));
            }
            Operation::AddEntries(map, entries) => {
                for (address, chain) in entries {
                    assert!(rules.chains.contains_key(&chain));
                    let map = rules.maps.get_mut(&map).unwrap();
                    assert_eq!(map.insert(address, chain), None);
                }
            }
            Operation::RemoveEntries(map, addresses) => {
                let map = rules.maps.get_mut(&map).unwrap();
                assert!(addresses.iter().all(|one| map.remove(one).is_some()));
            }
            Operation::AddRule(chain, rule) => {
                self.check(&rule.matches, &rule.action);
                let chain = self.rules.chains.get_mut(&chain).unwrap();
                chain.rules.push(rule);
            }
            Operation::Empty(chain) => rules.chains.get_mut(&chain).unwrap().rules.clear(),
            Operation::RemoveChain(chain) => {
                assert!(rules.chains.remove(&chain).unwrap().rules.is_empty());
                let entries = rules.maps.values().flat_map(|map| map.values());
                assert!(!entries.into_iter().any(|target| *target == chain));
                assert!(
                    !self
                        .actions()
                        .any(|one| *one == Action::Goto(chain.clone()))
                );
            }
            Operation::RemoveSet(set) => {
                assert!(rules.sets.remove(&set).is_some());
                let chains = rules.chains.values();
                let mut matches = chains
                    .flat_map(|chain| &chain.rules)
                    .flat_map(|rule| &rule.matches);
                assert!(
                    !matches
                        .any(|one| matches!(one, Match::Member { set: used, .. } if *used == set))
                );
            }
        }
    }

    fn actions(&self) -> impl Iterator<Item = &Action> {
        let chains = self.rules.chains.values();
        chains
            .flat_map(|chain| &chain.rules)
            .map(|rule| &rule.action)
    }

    /// All that a rule refers to is there.
    fn check(&self, matches: &[Match], action: &Action) {
        let rules = &self.rules;
        for one in matches {
            if let Match::Member { set, .. } = one {
                assert!(rules.sets.contains_key(set), "{set}");
            }
        }
        match action {
            Action::Goto(chain) => assert!(rules.chains.contains_key(chain), "{chain}"),
            Action::Lookup { map, .. } => assert!(rules.maps.contains_key(map), "{map}"),
            Action::Accept | Action::Drop | Action::Masquerade => {}
        }
    }
}
