//! Properties of pruning, defaults and validation, on objects drawn from the schemas of our own kinds.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use api::{
    crds::{Conversion, Family, Versions, render},
    patch::merge,
    structural::Schema,
};
use proptest::prelude::{ProptestConfig, any, prop_assert, prop_assert_eq, proptest};
use serde_json::{Map, Value, json};

/// A kind's schema, as written and compiled.
struct Kind {
    written: Value,
    compiled: Schema,
}

fn kinds() -> &'static [Kind] {
    static KINDS: std::sync::LazyLock<Vec<Kind>> = std::sync::LazyLock::new(|| {
        let families = [
            (Family::Sigs, Versions::V1alpha1),
            (Family::Sigs, Versions::V1beta1),
            (Family::Kruise, Versions::V1beta1),
        ];
        families
            .into_iter()
            .flat_map(|(family, versions)| render(&[family], versions, Conversion::None).unwrap())
            .map(|crd| {
                let schema = serde_json::to_value(&crd.spec.versions[0].schema).unwrap();
                let written = schema["openAPIV3Schema"].clone();
                Kind {
                    compiled: Schema::compile(&written)
                        .unwrap_or_else(|errors| panic!("{errors:#?}")),
                    written,
                }
            })
            .collect()
    });
    &KINDS
}

/// SplitMix64, seeded by proptest.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }

    fn one_in(&mut self, bound: u64) -> bool {
        self.below(bound) == 0
    }
}

/// How wild the objects are.
#[derive(Clone, Copy)]
struct Draw {
    /// Nulls, unknown fields and values of the wrong type come along.
    wild: bool,
}

impl Draw {
    fn value(self, schema: &Value, random: &mut Random, fuel: &mut u64) -> Value {
        if self.wild && random.one_in(12) {
            return match random.below(4) {
                0 => Value::Null,
                1 => json!(random.below(9)),
                2 => json!({"unknown": {"deep": 1}}),
                _ => json!("text"),
            };
        }
        if let Some(choices) = schema.get("enum").and_then(Value::as_array) {
            let index = usize::try_from(random.below(choices.len() as u64)).unwrap();
            return choices[index].clone();
        }
        if schema.get("x-kubernetes-int-or-string").is_some() {
            return if random.one_in(2) {
                json!(random.below(50))
            } else {
                json!("5")
            };
        }
        match schema.get("type").and_then(Value::as_str) {
            Some("object") => self.object(schema, random, fuel),
            Some("array") => {
                let length = if *fuel > 0 { random.below(3) } else { 0 };
                (0..length)
                    .map(|_| self.value(&schema["items"], random, fuel))
                    .collect()
            }
            Some("boolean") => json!(random.one_in(2)),
            Some("integer" | "number") => json!(random.below(3)),
            Some("string") => match schema.get("format").and_then(Value::as_str) {
                Some("date-time") => json!("2026-01-02T03:04:05Z"),
                _ => json!(format!("{}s", random.below(100) + 1)),
            },
            _ => json!({}),
        }
    }

    fn object(self, schema: &Value, random: &mut Random, fuel: &mut u64) -> Value {
        let mut object = Map::new();
        let required = schema.get("required").and_then(Value::as_array);
        for (name, property) in schema
            .get("properties")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
        {
            let needed = required.is_some_and(|all| all.contains(&json!(name)));
            if needed || *fuel > 0 && random.one_in(4) {
                *fuel = fuel.saturating_sub(1);
                object.insert(name.clone(), self.value(property, random, fuel));
            }
        }
        if let Some(each) = schema
            .get("additionalProperties")
            .filter(|each| each.is_object())
        {
            for index in 0..random.below(3) {
                object.insert(format!("key{index}"), self.value(each, random, fuel));
            }
        }
        if self.wild && random.one_in(6) {
            object.insert("unknownField".to_owned(), json!([{"a": 1}]));
        }
        Value::Object(object)
    }

    fn object_of(self, kind: &Kind, seed: u64) -> Value {
        let mut random = Random(seed);
        let mut fuel = random.below(60);
        let mut object = self.object(&kind.written, &mut random, &mut fuel);
        object["metadata"] = json!({"name": "one"});
        object
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1000) })]

    #[test]
    fn pruning_twice_is_pruning_once(seed in any::<u64>(), index in any::<usize>()) {
        let kind = &kinds()[index % kinds().len()];
        let mut once = Draw { wild: true }.object_of(kind, seed);
        kind.compiled.prune(&mut once);
        let mut twice = once.clone();
        prop_assert!(kind.compiled.prune(&mut twice).is_empty());
        prop_assert_eq!(once, twice);
    }

    #[test]
    fn defaulting_twice_is_defaulting_once(seed in any::<u64>(), index in any::<usize>()) {
        let kind = &kinds()[index % kinds().len()];
        let mut once = Draw { wild: true }.object_of(kind, seed);
        kind.compiled.default(&mut once);
        let mut twice = once.clone();
        kind.compiled.default(&mut twice);
        prop_assert_eq!(once, twice);
    }

    #[test]
    fn what_is_valid_stays_valid(seed in any::<u64>(), index in any::<usize>()) {
        let kind = &kinds()[index % kinds().len()];
        let given = Draw { wild: false }.object_of(kind, seed);
        if kind.compiled.validate(&given).is_empty() {
            let mut admitted = given.clone();
            kind.compiled.prune(&mut admitted);
            kind.compiled.default(&mut admitted);
            prop_assert_eq!(kind.compiled.validate(&admitted), vec![]);
            let verdict = kind.compiled.validate_update(&admitted, &admitted);
            prop_assert_eq!(verdict.errors, vec![]);
        }
    }

    #[test]
    fn a_change_is_admitted_as_if_all_of_it_were_new(seed in any::<u64>(), index in any::<usize>()) {
        let kind = &kinds()[index % kinds().len()];
        let mut old = Draw { wild: true }.object_of(kind, seed);
        if kind.compiled.admit(&mut old).is_ok() {
            let change = Draw { wild: true }.object_of(kind, seed.rotate_left(17));
            let mut whole = merge::apply(old.clone(), &change).unwrap();
            let mut in_part = whole.clone();
            let unknown = kind.compiled.admit_change(&mut in_part, Some(&old));
            prop_assert_eq!(unknown, kind.compiled.admit(&mut whole));
            prop_assert_eq!(in_part, whole);
        }
    }

    #[test]
    fn a_patch_is_judged_without_what_it_leaves_alone(
        seed in any::<u64>(), index in any::<usize>(), wild in any::<bool>(), is_small in any::<bool>(),
    ) {
        let kind = &kinds()[index % kinds().len()];
        let schema = &kind.compiled;
        let mut old = Draw { wild: true }.object_of(kind, seed);
        if schema.admit(&mut old).is_ok() {
            let mut patch = Draw { wild }.object_of(kind, seed.rotate_left(17));
            if is_small && let Some(spec) = patch.get_mut("spec").and_then(Value::as_object_mut) {
                let chosen = seed % (spec.len() as u64).max(1);
                let mut index = 0..;
                spec.retain(|_, _| index.next() == Some(chosen));
            }
            let judged = |old: &Value| {
                let mut new = merge::apply(old.clone(), &patch).unwrap();
                let unknown = schema.admit_change(&mut new, Some(old));
                let verdicts = [schema.validate_update(&new, old), schema.validate_status(&new, old)];
                (new, unknown, verdicts)
            };
            let (whole, unknown, verdicts) = judged(&old);
            let mut rest = old.clone();
            let aside = schema.set_aside(&mut rest, &patch);
            let (mut new, unknown_of_rest, verdicts_of_rest) = judged(&rest);
            aside.put_back(&mut new);
            prop_assert_eq!(new, whole);
            prop_assert_eq!(unknown_of_rest, unknown);
            for (of_rest, verdict) in verdicts_of_rest.into_iter().zip(verdicts) {
                if of_rest.errors.is_empty() {
                    prop_assert_eq!(verdict.errors, vec![]);
                    prop_assert_eq!(of_rest.warnings, verdict.warnings);
                }
            }
        }
    }

    #[test]
    fn nothing_unknown_is_left_and_nothing_panics(seed in any::<u64>(), index in any::<usize>()) {
        let kind = &kinds()[index % kinds().len()];
        let old = Draw { wild: true }.object_of(kind, seed);
        let mut new = Draw { wild: true }.object_of(kind, seed.rotate_left(17));
        if kind.compiled.admit(&mut new).is_ok() {
            let mut again = new.clone();
            prop_assert_eq!(kind.compiled.admit(&mut again).unwrap(), Vec::<String>::new());
            prop_assert_eq!(&again, &new);
        }
        kind.compiled.validate(&new);
        kind.compiled.validate_update(&new, &old);
        kind.compiled.validate_status(&new, &old);
    }
}

#[test]
fn most_objects_drawn_are_valid() {
    let valid = (0..400)
        .filter(|seed| {
            let kind = &kinds()[usize::try_from(*seed).unwrap() % kinds().len()];
            let mut object = Draw { wild: false }.object_of(kind, *seed);
            kind.compiled.prune(&mut object);
            kind.compiled.default(&mut object);
            kind.compiled.validate(&object).is_empty()
        })
        .count();
    assert!(valid > 100, "{valid} of 400");
}
