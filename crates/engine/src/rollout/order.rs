//! In which order old members are taken: the base order, then priority, then scatter.

use crate::member::{Labels, Node, Time};
use std::cmp::Reverse;
use std::collections::HashMap;

/// Who goes first. Members that no rule names keep their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Priority {
    /// Larger sums of the weights that match go first.
    Weight(Vec<Weight>),
    /// The first of these keys that a member has decides, earlier keys first; within a key the number at
    /// the end of the value, larger first. Members without any of the keys go before all others.
    Order(Vec<Box<str>>),
}

/// The weight of members with such labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Weight {
    pub weight: i32,
    /// All of them must hold.
    pub selector: Vec<Requirement>,
}

/// One condition of a label selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    pub key: Box<str>,
    pub operator: Operator,
}

/// What a label must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operator {
    In(Vec<Box<str>>),
    NotIn(Vec<Box<str>>),
    Exists,
    DoesNotExist,
}

/// Members with this label shall not follow each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScatterTerm {
    pub key: Box<str>,
    pub value: Box<str>,
}

/// What the order looks at.
pub(super) struct Candidate<'a, T> {
    pub(super) item: T,
    pub(super) labels: Option<&'a Labels>,
    pub(super) node: Option<&'a Node>,
    pub(super) claimable: bool,
    /// Idle since then.
    pub(super) idle: Time,
}

/// Sorts candidates; `all` are the labels of every member of the pool.
///
/// Those that nobody can claim go first, because losing them costs nothing. The others go longest idle
/// first and one of each node in turn; the last claimable one of a node is left for the end.
pub(super) fn sort<'a, T>(
    mut candidates: Vec<Candidate<'a, T>>,
    claimable_on: &HashMap<Option<&'a Node>, u32>,
    priority: Option<&Priority>,
    scatter: &[ScatterTerm],
    all: impl Iterator<Item = Option<&'a Labels>> + Clone,
) -> Vec<Candidate<'a, T>> {
    candidates.sort_by_key(|candidate| (candidate.claimable, candidate.idle));
    candidates = in_turns(candidates, claimable_on);
    if let Some(priority) = priority {
        candidates.sort_by_cached_key(|candidate| priority.rank(candidate.labels));
    }
    for term in by_frequency(scatter, &candidates) {
        let total = all.clone().filter(|labels| term.matches(*labels)).count();
        let others = all.clone().count() - total;
        candidates = spread(
            candidates,
            |candidate| term.matches(candidate.labels),
            total,
            others,
        );
    }
    candidates
}

/// The terms that no member has the labels for, as people find them in their spec.
pub(super) fn unmatched<'a>(
    priority: Option<&Priority>,
    scatter: &[ScatterTerm],
    all: impl Iterator<Item = Option<&'a Labels>> + Clone,
) -> Vec<String> {
    let mut terms = Vec::new();
    match priority {
        Some(Priority::Weight(weights)) => {
            for (index, weight) in weights.iter().enumerate() {
                if !all.clone().any(|labels| weight.matches(labels)) {
                    terms.push(format!("priorityStrategy.weightPriority[{index}]"));
                }
            }
        }
        Some(Priority::Order(keys)) => {
            for (index, key) in keys.iter().enumerate() {
                let mut labels = all.clone().flatten();
                if !labels.any(|labels| labels.contains_key(key)) {
                    terms.push(format!("priorityStrategy.orderPriority[{index}]"));
                }
            }
        }
        None => {}
    }
    for (index, term) in scatter.iter().enumerate() {
        if !all.clone().any(|labels| term.matches(labels)) {
            terms.push(format!("scatterStrategy[{index}]"));
        }
    }
    terms
}

fn in_turns<'a, T>(
    candidates: Vec<Candidate<'a, T>>,
    claimable_on: &HashMap<Option<&'a Node>, u32>,
) -> Vec<Candidate<'a, T>> {
    let mut taken: HashMap<Option<&Node>, u32> = HashMap::new();
    let mut keyed: Vec<_> = candidates
        .into_iter()
        .map(|candidate| {
            if !candidate.claimable {
                return ((false, 0), candidate);
            }
            let turn = taken.entry(candidate.node).or_default();
            *turn += 1;
            let last = claimable_on
                .get(&candidate.node)
                .is_none_or(|stock| *turn >= *stock);
            ((last, *turn), candidate)
        })
        .collect();
    keyed.sort_by_key(|(key, _)| *key);
    keyed.into_iter().map(|(_, candidate)| candidate).collect()
}

impl Priority {
    /// Smaller goes first.
    fn rank(&self, labels: Option<&Labels>) -> (i64, Reverse<u64>) {
        match self {
            Priority::Weight(weights) => {
                let matching = weights.iter().filter(|weight| weight.matches(labels));
                (
                    -matching.map(|weight| i64::from(weight.weight)).sum::<i64>(),
                    Reverse(0),
                )
            }
            Priority::Order(keys) => keys
                .iter()
                .zip(0..)
                .find_map(|(key, level)| Some((level, trailing_number(labels?.get(key)?))))
                .map_or((-1, Reverse(0)), |(level, number)| (level, Reverse(number))),
        }
    }
}

fn trailing_number(value: &str) -> u64 {
    let text = value.trim_end_matches(|letter: char| letter.is_ascii_digit());
    value[text.len()..].parse().unwrap_or(0)
}

impl Weight {
    fn matches(&self, labels: Option<&Labels>) -> bool {
        self.selector.iter().all(|requirement| {
            let value = labels.and_then(|labels| labels.get(&requirement.key));
            match &requirement.operator {
                Operator::In(values) => value.is_some_and(|value| values.contains(value)),
                Operator::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
                Operator::Exists => value.is_some(),
                Operator::DoesNotExist => value.is_none(),
            }
        })
    }
}

impl ScatterTerm {
    fn matches(&self, labels: Option<&Labels>) -> bool {
        labels
            .and_then(|labels| labels.get(&self.key))
            .is_some_and(|value| *value == self.value)
    }
}

fn by_frequency<'t, T>(
    terms: &'t [ScatterTerm],
    candidates: &[Candidate<'_, T>],
) -> Vec<&'t ScatterTerm> {
    let mut terms: Vec<_> = terms.iter().collect();
    terms.sort_by_cached_key(|term| {
        Reverse(
            candidates
                .iter()
                .filter(|candidate| term.matches(candidate.labels))
                .count(),
        )
    });
    terms
}

/// Alternates groups of matching items with groups of others, and leaves one matching item for the very
/// end. `total` and `others` count the whole set, of which `items` are a part.
fn spread<T>(items: Vec<T>, matches: impl Fn(&T) -> bool, total: usize, others: usize) -> Vec<T> {
    let matching = items.iter().filter(|item| matches(item)).count();
    if matching <= 1 || items.len() - matching <= 1 {
        return items;
    }
    let (mut matching, mut rest): (Vec<T>, Vec<T>) =
        items.into_iter().partition(|item| matches(item));
    let kept = matching.pop();
    let (own, whole) = (
        Groups::of(matching.len(), rest.len()),
        Groups::of(total - 1, others),
    );
    // two ratios compared by cross multiplication: are the candidates relatively richer in others?
    let richer = rest.len() * (total - 1) > others * matching.len();
    let groups = if richer {
        whole.filled_from(matching.len(), rest.len())
    } else {
        own
    };
    let surplus = if richer {
        rest.len() - groups.count * groups.others
    } else {
        0
    };
    let mut sorted: Vec<T> = rest.drain(..surplus).collect();
    for _ in 0..groups.count {
        sorted.extend(matching.drain(..groups.matching.min(matching.len())));
        sorted.extend(rest.drain(..groups.others.min(rest.len())));
    }
    sorted.extend(matching);
    sorted.extend(rest);
    sorted.extend(kept);
    sorted
}

#[derive(Clone, Copy)]
struct Groups {
    count: usize,
    matching: usize,
    others: usize,
}

impl Groups {
    fn of(matching: usize, others: usize) -> Self {
        let count = matching.min(others).max(1);
        let share = |whole: usize| ((2 * whole + count) / (2 * count)).max(1);
        Self {
            count,
            matching: share(matching),
            others: share(others),
        }
    }

    /// As many groups of this size as there are items for.
    fn filled_from(self, matching: usize, others: usize) -> Self {
        Self {
            count: (matching / self.matching).min(others / self.others),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Candidate, Operator, Priority, Requirement, ScatterTerm, Weight, sort, unmatched};
    use crate::member::{Labels, Node, Time};
    use std::collections::HashMap;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs
            .iter()
            .map(|(key, value)| ((*key).into(), (*value).into()))
            .collect()
    }

    fn sorted(
        members: &[Labels],
        priority: Option<&Priority>,
        scatter: &[ScatterTerm],
    ) -> Vec<usize> {
        let candidates = members
            .iter()
            .enumerate()
            .map(|(item, labels)| Candidate {
                item,
                labels: Some(labels),
                node: None,
                claimable: false,
                idle: Time(item as u64),
            })
            .collect();
        let all = members.iter().map(Some);
        let sorted = sort(candidates, &HashMap::new(), priority, scatter, all);
        sorted.into_iter().map(|candidate| candidate.item).collect()
    }

    /// Vectors 55 to 58.
    #[test]
    fn scatter_keeps_matching_members_apart() {
        for (order, expected) in [
            ("mmuuuu", "muuuum"),
            ("mmmmuu", "mmumum"),
            ("mmmuuuuuu", "muuumuuum"),
            ("mu", "mu"),
            ("mmm", "mmm"),
            ("muuu", "muuu"),
        ] {
            let members: Vec<_> = order
                .chars()
                .map(|kind| {
                    if kind == 'm' {
                        labels(&[("role", "m")])
                    } else {
                        labels(&[])
                    }
                })
                .collect();
            let term = ScatterTerm {
                key: "role".into(),
                value: "m".into(),
            };
            let result: String = sorted(&members, None, &[term])
                .into_iter()
                .map(|index| order.as_bytes()[index] as char)
                .collect();
            assert_eq!(result, expected, "{order}");
        }
    }

    #[test]
    fn scatter_uses_the_ratio_of_the_whole_set_when_others_abound() {
        let marked = labels(&[("role", "m")]);
        let plain = labels(&[]);
        let whole: Vec<_> = [&marked; 5].into_iter().chain([&plain; 4]).collect();
        let candidates = [&marked, &marked, &plain, &plain, &plain, &plain]
            .into_iter()
            .zip(0..)
            .map(|(labels, item)| Candidate {
                item,
                labels: Some(labels),
                node: None,
                claimable: false,
                idle: Time(item),
            })
            .collect();
        let term = ScatterTerm {
            key: "role".into(),
            value: "m".into(),
        };
        let order: Vec<_> = sort(
            candidates,
            &HashMap::new(),
            None,
            &[term],
            whole.iter().map(|labels| Some(*labels)),
        )
        .into_iter()
        .map(|candidate| candidate.item)
        .collect();
        assert_eq!(order, [2, 3, 4, 0, 5, 1]);
    }

    #[test]
    fn larger_weights_go_first() {
        let weight = |weight, key: &str, operator| Weight {
            weight,
            selector: vec![Requirement {
                key: key.into(),
                operator,
            }],
        };
        let priority = Priority::Weight(vec![
            weight(10, "zone", Operator::In(vec!["a".into()])),
            weight(5, "canary", Operator::Exists),
            weight(1, "canary", Operator::DoesNotExist),
            weight(1, "zone", Operator::NotIn(vec!["b".into()])),
        ]);
        let members = [
            labels(&[("zone", "b")]),
            labels(&[("zone", "b"), ("canary", "")]),
            labels(&[("zone", "a")]),
            labels(&[("zone", "b")]),
        ];
        assert_eq!(sorted(&members, Some(&priority), &[]), [2, 1, 0, 3]);
    }

    #[test]
    fn terms_that_match_nobody_are_named() {
        let members = [labels(&[("zone", "a")]), labels(&[("rank", "r-1")])];
        let named = |priority, scatter: &[(&str, &str)]| {
            let scatter: Vec<_> = scatter
                .iter()
                .map(|(key, value)| ScatterTerm {
                    key: (*key).into(),
                    value: (*value).into(),
                })
                .collect();
            unmatched(Some(&priority), &scatter, members.iter().map(Some))
        };
        let weight = |key: &str| Weight {
            weight: 1,
            selector: vec![Requirement {
                key: key.into(),
                operator: Operator::Exists,
            }],
        };
        let weights = Priority::Weight(vec![weight("zone"), weight("canary")]);
        let expected = ["priorityStrategy.weightPriority[1]", "scatterStrategy[0]"];
        assert_eq!(named(weights, &[("zone", "b"), ("zone", "a")]), expected);
        let keys = Priority::Order(vec!["order".into(), "rank".into()]);
        assert_eq!(named(keys, &[]), ["priorityStrategy.orderPriority[0]"]);
    }

    #[test]
    fn ordered_keys_rank_by_key_then_number_and_strangers_lead() {
        let priority = Priority::Order(vec!["first".into(), "second".into()]);
        let members = [
            labels(&[("second", "rank-9")]),
            labels(&[("first", "rank-2")]),
            labels(&[]),
            labels(&[("first", "rank-10")]),
            labels(&[("first", "none")]),
        ];
        assert_eq!(sorted(&members, Some(&priority), &[]), [2, 3, 1, 4, 0]);
    }

    #[test]
    fn nodes_take_turns_and_the_last_of_each_is_left_for_the_end() {
        let nodes = [Node::from("a"), Node::from("b"), Node::from("c")];
        let on = [0, 0, 0, 1, 1, 0, 2];
        let candidates = on
            .iter()
            .enumerate()
            .map(|(item, node)| Candidate {
                item,
                labels: None,
                node: Some(&nodes[*node]),
                claimable: item != 5,
                idle: Time(item as u64),
            })
            .collect();
        let stock = [3, 2, 1];
        let stock = nodes.iter().map(Some).zip(stock).collect();
        let order: Vec<_> = sort(candidates, &stock, None, &[], [].into_iter())
            .into_iter()
            .map(|candidate| candidate.item)
            .collect();
        assert_eq!(order, [5, 0, 3, 1, 6, 4, 2]);
    }
}
