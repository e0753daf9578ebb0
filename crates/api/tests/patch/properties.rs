//! What must hold of patches whatever the objects are.

use std::sync::LazyLock;

use api::patch::{
    PatchError,
    apply::{FieldSet, Fields, Item, Live, Managed, OneVersion, PathElement, Writer, apply},
    strategic,
    types::{Schema, TypeRef},
};
use proptest::{
    collection::{btree_map, vec},
    option,
    prelude::{Just, Strategy, any, prop_oneof},
    sample::{Index, subsequence},
    test_runner::{Config, TestRunner},
};
use serde_json::{Map, Value, json};

const API_VERSION: &str = "test.dev/v1";

static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
    let text = json!({"type": "string"});
    Schema::of_crd(
        &json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "set": {"type": "array", "x-kubernetes-list-type": "set", "items": text},
            "list": {"type": "array", "items": text},
            "keyed": {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["k", "p"],
                "items": {"type": "object", "properties": {"k": text, "p": {"type": "string", "default": "tcp"}, "v": text}},
            },
            "map": {"type": "object", "additionalProperties": text},
            "whole": {"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": text},
            "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        }}}}),
    )
});

fn text() -> impl Strategy<Value = Value> {
    prop_oneof![Just("1"), Just("2")].prop_map(Value::from)
}

fn map() -> impl Strategy<Value = Value> {
    let keys = prop_oneof![Just("a"), Just("b"), Just("c")].prop_map(str::to_owned);
    btree_map(keys, text(), 0..4).prop_map(|fields| fields.into_iter().collect())
}

fn words() -> impl Strategy<Value = Value> {
    subsequence(vec!["a", "b", "c", "d"], 0..4)
        .prop_shuffle()
        .prop_map(Value::from)
}

fn keyed() -> impl Strategy<Value = Value> {
    let element = (option::of(Just("udp")), option::of(text()));
    let elements = subsequence(vec!["x", "y", "z"], 0..3).prop_shuffle();
    (elements, vec(element, 3)).prop_map(|(keys, more)| {
        let elements = keys.into_iter().zip(more);
        let elements = elements.map(|(key, (protocol, value))| {
            with(
                json!({"k": key}),
                [("p", protocol.map(Value::from)), ("v", value)],
            )
        });
        elements.collect()
    })
}

fn with<const N: usize>(mut object: Value, fields: [(&str, Option<Value>); N]) -> Value {
    for (name, value) in fields {
        if let Some(value) = value {
            object[name] = value;
        }
    }
    object
}

/// A configuration that somebody may apply.
fn config() -> impl Strategy<Value = Value> {
    let deep = (option::of(text()), option::of(map()), option::of(words()));
    let open = deep.prop_map(|(p, q, r)| with(json!({}), [("p", p), ("q", q), ("r", r)]));
    (
        option::of(words()),
        option::of(words()),
        option::of(keyed()),
        option::of(map()),
        option::of(map()),
        option::of(open),
    )
        .prop_map(|(set, list, keyed, map, whole, open)| {
            let spec = with(
                json!({}),
                [
                    ("set", set),
                    ("list", list),
                    ("keyed", keyed),
                    ("map", map),
                    ("whole", whole),
                    ("open", open),
                ],
            );
            json!({"apiVersion": API_VERSION, "kind": "Widget", "metadata": {"name": "w"}, "spec": spec})
        })
}

fn empty_config() -> Value {
    json!({"apiVersion": API_VERSION, "kind": "Widget", "metadata": {"name": "w"}})
}

/// An apply at a given second, to a kind with or without a schema.
fn applied(
    schema: TypeRef<'_>,
    live: Option<&Value>,
    config: &Value,
    manager: &str,
    second: u8,
) -> Result<Value, PatchError> {
    let now = format!("2026-01-01T00:00:{second:02}Z");
    let writer = Writer {
        manager,
        api_version: API_VERSION,
        kind: "Widget",
        subresource: "",
        now: &now,
    };
    let kind = OneVersion::custom(API_VERSION, schema);
    let mut object = live.cloned().unwrap_or_default();
    let owners = Managed::take(&mut object).unwrap();
    let stored = live.is_some().then_some(Live {
        object: &object,
        owners: &owners,
        fits: false,
    });
    let (mut object, owners) = apply(&kind, stored, config, writer, false)?;
    owners.put(&mut object);
    Ok(object)
}

/// The object without owners, without empty values, and with lists in one order: what is left to
/// compare when somebody has come and gone.
fn essence(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.iter().filter(|(name, _)| *name != "managedFields");
            let fields = fields.map(|(name, value)| (name.clone(), essence(value)));
            let kept: Map<String, Value> = fields.filter(|(_, value)| !value.is_null()).collect();
            match kept.is_empty() {
                true => Value::Null,
                false => Value::Object(kept),
            }
        }
        Value::Array(items) if items.is_empty() => Value::Null,
        Value::Array(items) => {
            let mut items: Vec<Value> = items.iter().map(essence).collect();
            items.sort_by_key(Value::to_string);
            Value::Array(items)
        }
        scalar => scalar.clone(),
    }
}

fn has_empty(value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields.is_empty() || fields.values().any(has_empty),
        Value::Array(items) => items.is_empty() || items.iter().any(has_empty),
        _ => false,
    }
}

fn schemas() -> [TypeRef<'static>; 2] {
    [SCHEMA.root(), TypeRef::deduced()]
}

fn check<S: Strategy>(inputs: &S, property: impl Fn(S::Value)) {
    let mut runner = TestRunner::new(Config {
        cases: 300,
        failure_persistence: None,
        ..Config::default()
    });
    let outcome = runner.run(inputs, |input| {
        property(input);
        Ok(())
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn an_apply_again_changes_nothing() {
    check(&(config(), config()), |(first, second)| {
        for schema in schemas() {
            let live = applied(schema, None, &first, "x", 0).unwrap();
            let Ok(once) = applied(schema, Some(&live), &second, "y", 1) else {
                continue;
            };
            let again = applied(schema, Some(&once), &second, "y", 2).unwrap();
            assert_eq!(once, again);
        }
    });
}

#[test]
fn who_leaves_takes_only_what_was_theirs() {
    check(&(config(), config()), |(first, second)| {
        for schema in schemas() {
            let live = applied(schema, None, &first, "x", 0).unwrap();
            // an empty value is owned until somebody else has filled and emptied it, as on the server
            if has_empty(&first) || has_empty(&second) {
                continue;
            }
            let Ok(both) = applied(schema, Some(&live), &second, "y", 1) else {
                continue;
            };
            let left = applied(schema, Some(&both), &empty_config(), "y", 2).unwrap();
            assert_eq!(essence(&left), essence(&live), "by way of {both}");
            assert_eq!(
                left["metadata"]["managedFields"],
                live["metadata"]["managedFields"]
            );
        }
    });
}

#[test]
fn an_apply_without_force_leaves_what_others_applied() {
    check(&(config(), config()), |(first, second)| {
        for schema in schemas() {
            let live = applied(schema, None, &first, "x", 0).unwrap();
            let Ok(both) = applied(schema, Some(&live), &second, "y", 1) else {
                continue;
            };
            let again = applied(schema, Some(&both), &first, "x", 2).unwrap();
            assert_eq!(essence(&again), essence(&both));
        }
    });
}

fn element() -> impl Strategy<Value = PathElement> {
    let value = prop_oneof![
        any::<i32>().prop_map(Value::from),
        "[a-z<&\"\\\\ü]{0,3}".prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
        (-1000i32..1000).prop_map(|tenths| Value::from(f64::from(tenths) / 10.0)),
    ];
    prop_oneof![
        "[a-z./\":]{1,4}".prop_map(PathElement::Field),
        btree_map("[a-z]{1,2}", value.clone(), 1..3).prop_map(PathElement::key),
        value.prop_map(|value| PathElement::Value(Item(value))),
        (0i64..50).prop_map(PathElement::Index),
    ]
}

fn field_set() -> impl Strategy<Value = FieldSet> {
    vec(vec(element(), 1..4), 0..8).prop_map(|paths| {
        let mut set = FieldSet::default();
        paths.iter().for_each(|path| set.insert(path));
        set
    })
}

#[test]
fn field_sets_survive_their_json() {
    check(&field_set(), |set| {
        assert_eq!(FieldSet::decode(&set.encode()).unwrap(), set);
    });
}

#[test]
fn field_sets_obey_the_laws_of_sets() {
    let pairs = (field_set(), field_set(), vec(any::<Index>(), 4));
    check(&pairs, |(one, other, picks)| {
        // sets that have something in common
        let mut other = other;
        let paths = one.paths();
        for pick in picks.iter().filter(|_| !paths.is_empty()) {
            other.insert(&pick.get(&paths).0);
        }
        let union = one.clone().union(&other);
        let common = one.intersection(&other);
        let stored = Fields::Stored(one.encode().to_string().into());
        assert_eq!(stored.intersection(&other), common);
        let only_one = one.difference(&other);
        assert_eq!(only_one.clone().union(&common), one);
        assert!(only_one.intersection(&other).is_empty());
        assert_eq!(union.difference(&other), only_one);
        assert_eq!(
            one.difference_below(&other).difference(&only_one),
            FieldSet::default()
        );
        assert!(
            union
                .paths()
                .iter()
                .all(|path| one.contains(&path.0) || other.contains(&path.0))
        );
    });
}

/// A container list of a patch; elements may ask to be deleted.
fn containers(deletes: bool) -> impl Strategy<Value = Value> {
    let env = subsequence(vec!["A", "B", "C", "D"], 0..4).prop_shuffle();
    let one = (env, vec(text(), 4), vec(any::<Index>(), 5));
    let names = subsequence(vec!["web", "log", "side"], 0..3).prop_shuffle();
    (names, vec(one, 3)).prop_map(move |(names, more)| {
        let deleted = |pick: &Index| deletes && pick.index(4) == 0;
        let containers = names
            .into_iter()
            .zip(more)
            .map(|(name, (env, values, picks))| {
                let env = env
                    .iter()
                    .zip(values)
                    .zip(&picks)
                    .map(|((name, value), pick)| match deleted(pick) {
                        true => json!({"name": name, "$patch": "delete"}),
                        false => json!({"name": name, "value": value}),
                    });
                match deleted(&picks[4]) {
                    true => json!({"name": name, "$patch": "delete"}),
                    false => json!({"name": name, "image": name, "env": env.collect::<Vec<_>>()}),
                }
            });
        containers.collect()
    })
}

#[test]
fn a_strategic_merge_again_changes_nothing() {
    let schema = TypeRef::core("io.k8s.api.core.v1.PodTemplateSpec").unwrap();
    check(&(containers(false), containers(true)), |(live, patch)| {
        let live = json!({"spec": {"containers": live}});
        let patch = json!({"spec": {"containers": patch}});
        let once = strategic::apply(live, &patch, schema).unwrap();
        // an element that is new keeps those of its own that ask to be deleted, as on the server;
        // they are gone only when the patch comes again
        let twice = strategic::apply(once, &patch, schema).unwrap();
        let thrice = strategic::apply(twice.clone(), &patch, schema).unwrap();
        assert_eq!(twice, thrice);
    });
}

#[test]
fn a_strategic_merge_of_what_is_there_changes_nothing() {
    let schema = TypeRef::core("io.k8s.api.core.v1.PodTemplateSpec").unwrap();
    check(&containers(false), |live| {
        let live = json!({"spec": {"containers": live}});
        assert_eq!(strategic::apply(live.clone(), &live, schema).unwrap(), live);
        assert_eq!(
            strategic::apply(live.clone(), &json!({}), schema).unwrap(),
            live
        );
    });
}
