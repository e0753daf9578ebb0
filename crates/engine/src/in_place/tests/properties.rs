use proptest::{
    prelude::{Strategy, any, prop_assert, prop_assert_eq, proptest},
    sample,
};
use serde_json::{Value, json};

use super::{platform, template, verdict, with};
use crate::{
    in_place::{Changes, Platform, Step, Verdict, diff},
    revision::{Form, means_the_same, tests::anything},
};

/// Changes that no pod takes.
const IMMUTABLE: [(&str, &str); 8] = [
    ("/spec/hostNetwork", "true"),
    ("/spec/nodeSelector", r#"{"a":"b"}"#),
    ("/spec/terminationGracePeriodSeconds", "1"),
    ("/spec/activeDeadlineSeconds", "5"),
    ("/spec/containers/0/args", r#"["x"]"#),
    ("/spec/containers/1/env", r#"[{"name":"X","value":"y"}]"#),
    (
        "/spec/containers/1/livenessProbe",
        r#"{"tcpSocket":{"port":1}}"#,
    ),
    (
        "/spec/initContainers/1/securityContext",
        r#"{"runAsUser":0}"#,
    ),
];

/// Changes that a pod takes.
const MUTABLE: [(&str, &str); 6] = [
    ("/metadata/labels/b", "\"9\""),
    ("/metadata/annotations/z", "\"9\""),
    ("/spec/containers/0/image", "\"main:9\""),
    ("/spec/initContainers/1/image", "\"side:9\""),
    ("/spec/containers/1/resources/limits/cpu", "\"9\""),
    ("/spec/containers/0/resources/limits/memory", "\"9Gi\""),
];

fn some_of(
    all: &'static [(&'static str, &'static str)],
) -> impl Strategy<Value = Vec<(&'static str, Value)>> {
    sample::subsequence(all, 0..=all.len()).prop_map(|some| {
        some.iter()
            .map(|(at, value)| (*at, value.parse().unwrap()))
            .collect()
    })
}

proptest! {
    #[test]
    fn a_template_does_not_differ_from_itself(some in some_of(&MUTABLE), more in some_of(&IMMUTABLE), minor in 20_u32..40) {
        let template = with(&[some, more].concat());
        prop_assert_eq!(diff(&template, &template, &Platform::of(minor, true)), Verdict::None);
    }

    #[test]
    fn an_immutable_difference_always_recreates(
        some in some_of(&MUTABLE), more in some_of(&IMMUTABLE), way in any::<bool>(),
    ) {
        let (old, new) = (template(), with(&[some.clone(), more.clone()].concat()));
        let (old, new) = if way { (old, new) } else { (new, old) };
        let recreates = matches!(diff(&old, &new, &platform()), Verdict::Recreate { .. });
        prop_assert_eq!(recreates, !more.is_empty(), "{:?} {:?}", some, more);
    }

    #[test]
    fn no_change_is_the_same_meaning(some in some_of(&MUTABLE)) {
        let (old, new) = (template(), with(&some));
        let none = diff(&old, &new, &platform()) == Verdict::None;
        prop_assert_eq!(none, means_the_same(Form::PodTemplate, &old, &new));
    }

    #[test]
    fn nothing_passes_for_the_same_that_is_not(old in anything(), new in anything()) {
        let (old, new) = (json!({"spec": old}), json!({"spec": new}));
        let none = diff(&old, &new, &platform()) == Verdict::None;
        prop_assert_eq!(none, means_the_same(Form::PodTemplate, &old, &new));
    }

    #[test]
    fn steps_make_the_old_pod_the_new_one(some in some_of(&MUTABLE)) {
        let verdict = verdict(&some, &platform());
        let mut pod = template();
        for step in verdict.changes().map(Changes::steps).unwrap_or_default() {
            let (Step::Resize(patch) | Step::Update(patch)) = step;
            merge(&mut pod, &patch);
        }
        prop_assert_eq!(diff(&pod, &with(&some), &platform()), Verdict::None);
        prop_assert!(matches!(verdict, Verdict::None) == some.is_empty());
    }
}

/// As a strategic merge does for what stands in steps.
fn merge(target: &mut Value, patch: &Value) {
    match (target, patch) {
        (Value::Object(target), Value::Object(patch)) => {
            for (key, value) in patch {
                match value {
                    Value::Null => {
                        target.remove(key);
                    }
                    value => merge(target.entry(key.as_str()).or_insert(Value::Null), value),
                }
            }
        }
        (Value::Array(target), Value::Array(patch)) => {
            for item in patch {
                let named = target.iter_mut().find(|it| it["name"] == item["name"]);
                merge(named.unwrap(), item);
            }
        }
        (target, patch) => *target = patch.clone(),
    }
}
