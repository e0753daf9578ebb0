//! Lists in a strategic merge.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::{PATCH, bare, internal, merge_maps, unknown_directive, wrong_type};
use crate::patch::{
    PatchError, go,
    types::{PatchMeta, TypeRef},
};

/// How the elements of a list are told apart.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Element {
    Scalar,
    Map,
}

/// The live list and the list of the patch, merged by key or, of scalars, as sets. Elements of the
/// patch stand in the patch's order, the others where they stood relative to them.
pub(super) fn merge(
    live: Vec<Value>,
    patch: Vec<Value>,
    element: TypeRef<'_>,
    meta: &PatchMeta,
) -> Result<Vec<Value>, PatchError> {
    let Some(kind) = common_kind(&live, &patch)? else {
        return Ok(live);
    };
    if kind == Element::Scalar {
        let mut seen = HashSet::new();
        let both = live.iter().chain(&patch);
        let merged = both.filter(|item| seen.insert(*item)).cloned().collect();
        return in_order(merged, &patch, &live, kind, meta);
    }
    let Some(key) = meta.merge_key.as_deref() else {
        return Err(internal("cannot merge lists without merge key for struct"));
    };
    let (live, patch) = obey_directives(live, patch, key)?;
    let mut merged = live.clone();
    let mut places = places(&live, |item| item.get(key));
    for item in &patch {
        let wanted = key_of(item, key)?;
        let place = places.get(&Some(wanted)).copied();
        places.entry(Some(wanted)).or_insert(merged.len());
        match (place, item) {
            (Some(place), Value::Object(fields)) => {
                let Value::Object(original) = merged[place].take() else {
                    return Err(PatchError::Internal(format!(
                        "value for key {place} is not a map"
                    )));
                };
                merged[place] = Value::Object(merge_maps(original, fields.clone(), element)?);
            }
            _ => merged.push(bare(item.clone())),
        }
    }
    in_order(merged, &patch, &live, kind, meta)
}

/// The live list without the scalars that the patch deletes.
pub(super) fn delete(live: Vec<Value>, deleted: &[Value]) -> Result<Vec<Value>, PatchError> {
    match common_kind(&live, deleted)? {
        Some(Element::Map) => Err(internal("cannot merge lists without merge key for struct")),
        _ => {
            let deleted: HashSet<&Value> = deleted.iter().collect();
            Ok(live
                .into_iter()
                .filter(|item| !deleted.contains(item))
                .collect())
        }
    }
}

/// Where each key first stands in a list.
fn places<'v, K>(list: &'v [Value], key_of: impl Fn(&'v Value) -> K) -> HashMap<K, usize>
where
    K: Eq + std::hash::Hash,
{
    let mut places = HashMap::with_capacity(list.len());
    for (place, item) in list.iter().enumerate() {
        places.entry(key_of(item)).or_insert(place);
    }
    places
}

/// Carries out the elements of the patch that say `$patch`; returns what is left of both lists.
fn obey_directives(
    mut live: Vec<Value>,
    patch: Vec<Value>,
    key: &str,
) -> Result<(Vec<Value>, Vec<Value>), PatchError> {
    let mut plain = Vec::new();
    let mut gone = HashSet::new();
    let mut replaces = false;
    for item in patch {
        let Some(directive) = item.get(PATCH) else {
            plain.push(item);
            continue;
        };
        match directive.as_str() {
            Some("delete") => _ = gone.insert(key_of(&item, key)?.clone()),
            Some("replace") => replaces = true,
            Some("merge") => {
                return Err(internal(
                    "merging lists cannot yet be specified in the patch",
                ));
            }
            _ => {
                let fields = item.as_object().cloned().unwrap_or_default();
                return Err(unknown_directive(directive, &fields));
            }
        }
    }
    live.retain(|item| item.get(key).is_none_or(|key| !gone.contains(key)));
    Ok(match replaces {
        true => (plain.into_iter().map(bare).collect(), Vec::new()),
        false => (live, plain),
    })
}

/// The merged list, reordered: what `first` names stands in that order; what only the server has
/// keeps its place before the first element that followed it in the live list.
pub(super) fn in_order(
    merged: Vec<Value>,
    first: &[Value],
    live: &[Value],
    kind: Element,
    meta: &PatchMeta,
) -> Result<Vec<Value>, PatchError> {
    let key = meta.merge_key.as_deref().unwrap_or_default();
    if kind == Element::Map {
        for item in merged.iter().chain(first).chain(live) {
            key_of(item, key)?;
        }
    }
    let (in_first, in_live) = (
        places(first, |item| identity(item, kind, key)),
        places(live, |item| identity(item, kind, key)),
    );
    let place = |places: &HashMap<Option<&Value>, usize>, item: &Value| {
        places.get(&identity(item, kind, key)).copied()
    };
    let (mut named, mut others): (Vec<Value>, Vec<Value>) = merged
        .into_iter()
        .partition(|item| place(&in_first, item).is_some());
    named.sort_by_cached_key(|item| place(&in_first, item));
    others.sort_by_cached_key(|item| place(&in_live, item));
    let mut named = named.into_iter().peekable();
    let mut out = Vec::new();
    for item in others {
        let own = place(&in_live, &item);
        while let Some(next) = named.peek() {
            let stays_before =
                matches!((own, place(&in_live, next)), (Some(own), Some(next)) if own < next);
            if stays_before {
                break;
            }
            out.extend(named.next());
        }
        out.push(item);
    }
    out.extend(named);
    Ok(out)
}

/// What tells an element of a list from the others.
fn identity<'v>(item: &'v Value, kind: Element, key: &str) -> Option<&'v Value> {
    match kind {
        Element::Scalar => Some(item),
        Element::Map => item.get(key),
    }
}

/// The order of the live list as the server has it after a merge: the merge works in the live list, so
/// a deleted element closes the gap, and new ones take the places that became free, while there are any.
pub(super) fn order_left(live: &[Value], patch: &[Value], meta: &PatchMeta) -> Vec<Value> {
    let Some(key) = meta.merge_key.as_deref() else {
        return live.to_vec();
    };
    let directive = |item: &Value| item.get(PATCH).and_then(Value::as_str).map(str::to_owned);
    let deleted: HashSet<Option<&Value>> = patch
        .iter()
        .filter(|item| directive(item).as_deref() == Some("delete"))
        .map(|item| item.get(key))
        .collect();
    let mut left: Vec<Value> = live.to_vec();
    left.retain(|item| !deleted.contains(&item.get(key)));
    if patch
        .iter()
        .any(|item| directive(item).as_deref() == Some("replace"))
    {
        return left;
    }
    let free = live.len() - left.len();
    let mut known: HashSet<Option<&Value>> = left.iter().map(|item| item.get(key)).collect();
    let added: Vec<Value> = patch
        .iter()
        .filter(|item| item.get(PATCH).is_none() && known.insert(item.get(key)))
        .take(free)
        .cloned()
        .collect();
    left.extend(added);
    left
}

/// The elements of the patch must stand in the order that the patch itself asks for.
pub(super) fn check_order(
    patch: &[Value],
    order: &[Value],
    meta: &PatchMeta,
) -> Result<(), PatchError> {
    if patch.is_empty() || order.is_empty() {
        return Ok(());
    }
    let key = meta.merge_key.as_deref();
    let mut wanted = order.iter();
    for item in patch.iter().filter(|item| item.get(PATCH).is_none()) {
        let found = match key {
            None => wanted.any(|one| one == item),
            Some(key) => {
                let value = key_of(item, key)?;
                let mut found = false;
                for one in wanted.by_ref() {
                    if key_of(one, key)? == value {
                        found = true;
                        break;
                    }
                }
                found
            }
        };
        if !found {
            return Err(PatchError::Internal(format!(
                "The order in patch list:\n{}\n doesn't match $setElementOrder list:\n{}\n",
                go::display(&patch.to_vec().into()),
                go::display(&order.to_vec().into())
            )));
        }
    }
    Ok(())
}

/// The one kind that all elements must be of; none in empty lists.
pub(super) fn common_kind(live: &[Value], patch: &[Value]) -> Result<Option<Element>, PatchError> {
    let mut all = live.iter().chain(patch);
    let Some(first) = all.next() else {
        return Ok(None);
    };
    if first.is_array() {
        return Err(PatchError::Unprocessable(
            "lists of lists are not supported".to_owned(),
        ));
    }
    let name = go::type_name(first);
    if all.any(|item| go::type_name(item) != name) {
        let both: Vec<Value> = vec![live.to_vec().into(), patch.to_vec().into()];
        return Err(PatchError::Internal(format!(
            "list element types are not identical: {}",
            go::display(&both.into())
        )));
    }
    Ok(Some(match first {
        Value::Object(_) => Element::Map,
        _ => Element::Scalar,
    }))
}

fn key_of<'v>(item: &'v Value, key: &str) -> Result<&'v Value, PatchError> {
    if !item.is_object() {
        return Err(wrong_type(go::MAP, item));
    }
    item.get(key).ok_or_else(|| {
        PatchError::Internal(format!(
            "map: {} does not contain declared merge key: {key}",
            go::display(item)
        ))
    })
}
