//! What containers ask for: as the API server completes it, and which changes of it a running pod takes.

use std::collections::{BTreeMap, BTreeSet};

use quantity::Quantity;
use serde_json::{Value, json};

use crate::json::{items, object, text};

/// The resources that a running pod can change.
pub(super) const RESIZABLE: [&str; 2] = ["cpu", "memory"];

/// An amount with the spelling it came in.
#[derive(Clone, Debug)]
pub(super) struct Amount {
    pub(super) value: Quantity,
    pub(super) written: Value,
}

impl PartialEq for Amount {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

pub(super) type Amounts = BTreeMap<String, Amount>;

/// Requests and limits of a container or a pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Resources {
    pub(super) requests: Amounts,
    pub(super) limits: Amounts,
}

impl Resources {
    /// Reads what is written; nothing if some amount is none.
    pub(super) fn read(resources: Option<&Value>) -> Option<Self> {
        let none = Value::Null;
        let resources = resources.unwrap_or(&none);
        Some(Self {
            requests: amounts(resources, "requests")?,
            limits: amounts(resources, "limits")?,
        })
    }

    /// As a container has them in a pod: what is limited and not requested is requested up to the limit.
    pub(super) fn of_container(container: &Value) -> Option<Self> {
        let mut out = Self::read(container.get("resources"))?;
        for (name, amount) in &out.limits {
            let entry = out.requests.entry(name.clone());
            entry.or_insert_with(|| amount.clone());
        }
        Some(out)
    }

    /// The resources in which two differ.
    pub(super) fn differing(&self, other: &Self) -> BTreeSet<String> {
        let names = [&self.requests, &self.limits, &other.requests, &other.limits];
        let names = names.into_iter().flat_map(BTreeMap::keys);
        names
            .filter(|name| {
                self.requests.get(*name) != other.requests.get(*name)
                    || self.limits.get(*name) != other.limits.get(*name)
            })
            .cloned()
            .collect()
    }

    /// Whether something is asked for here that the other does not ask for at all.
    pub(super) fn has_more_keys_than(&self, other: &Self, name: &str) -> bool {
        let lost =
            |here: &Amounts, there: &Amounts| here.contains_key(name) && !there.contains_key(name);
        lost(&self.requests, &other.requests) || lost(&self.limits, &other.limits)
    }

    /// The larger of every two amounts: a size between both that takes nothing away.
    pub(super) fn at_least(&self, other: &Self) -> Self {
        let larger = |one: &Amounts, two: &Amounts| {
            let mut out = one.clone();
            for (name, amount) in two {
                let entry = out.entry(name.clone()).or_insert_with(|| amount.clone());
                if amount.value > entry.value {
                    *entry = amount.clone();
                }
            }
            out
        };
        Self {
            requests: larger(&self.requests, &other.requests),
            limits: larger(&self.limits, &other.limits),
        }
    }

    /// Only what a resize may name.
    pub(super) fn resizable(&self) -> Self {
        let only = |amounts: &Amounts| {
            let mut out = amounts.clone();
            out.retain(|name, _| RESIZABLE.contains(&name.as_str()));
            out
        };
        Self {
            requests: only(&self.requests),
            limits: only(&self.limits),
        }
    }

    pub(super) fn to_json(&self) -> Value {
        let written = |amounts: &Amounts| -> Value {
            let entries = amounts.iter();
            entries
                .map(|(name, amount)| (name.clone(), amount.written.clone()))
                .collect()
        };
        json!({"requests": written(&self.requests), "limits": written(&self.limits)})
    }

    /// Whether the reported resources are these, key by key; more may be reported.
    pub(super) fn are_reported(&self, reported: Option<&Value>) -> bool {
        let Some(reported) = Self::read(reported) else {
            return false;
        };
        let within = |here: &Amounts, there: &Amounts| {
            here.iter()
                .all(|(name, amount)| there.get(name) == Some(amount))
        };
        within(&self.requests, &reported.requests) && within(&self.limits, &reported.limits)
    }
}

fn amounts(resources: &Value, list: &str) -> Option<Amounts> {
    let entries = object(resources, list).into_iter().flatten();
    entries
        .map(|(name, written)| {
            let value = match written {
                Value::String(text) => Quantity::parse(text).ok()?,
                Value::Number(number) => Quantity::parse(&number.to_string()).ok()?,
                _ => return None,
            };
            let written = written.clone();
            Some((name.clone(), Amount { value, written }))
        })
        .collect()
}

/// How dear a pod is to its node; no resize may change it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Qos {
    Guaranteed,
    Burstable,
    BestEffort,
}

/// The class of a pod made from this spec; nothing if some amount is none.
pub(super) fn qos(spec: &Value) -> Option<Qos> {
    let of_pod = spec.get("resources").filter(|it| it.is_object());
    let askers: Vec<Resources> = match of_pod {
        Some(resources) => vec![Resources::read(Some(resources))?],
        None => ["containers", "initContainers"]
            .iter()
            .flat_map(|list| items(spec, list))
            .map(Resources::of_container)
            .collect::<Option<_>>()?,
    };
    let sums = |of: fn(&Resources) -> &Amounts| {
        RESIZABLE.map(|name| {
            let asked = askers.iter().filter_map(|it| positive(of(it), name));
            asked.reduce(|sum, more| sum + more)
        })
    };
    let (requests, limits) = (sums(|it| &it.requests), sums(|it| &it.limits));
    let all_limited = askers.iter().all(|asker| {
        let spared = of_pod.is_some() && asker.limits.is_empty();
        spared
            || RESIZABLE
                .iter()
                .all(|name| positive(&asker.limits, name).is_some())
    });
    Some(match (requests, limits) {
        ([None, None], [None, None]) => Qos::BestEffort,
        _ if all_limited && requests == limits => Qos::Guaranteed,
        _ => Qos::Burstable,
    })
}

fn positive(amounts: &Amounts, name: &str) -> Option<i128> {
    let amount = amounts.get(name)?.value.milli_value();
    (amount > 0).then(|| i128::from(amount))
}

/// Whether changing the resource restarts the container.
pub(super) fn restarts_on(container: &Value, resource: &str) -> bool {
    items(container, "resizePolicy").iter().any(|policy| {
        text(policy, "resourceName") == resource
            && text(policy, "restartPolicy") == "RestartContainer"
    })
}
