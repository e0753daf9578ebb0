//! Watches that lag, repeat themselves and begin anew.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::watcher::Event;
use serde_json::json;

use super::{Store, Texts, View};
use crate::meta::{Key, Meta};

struct Seen(Meta);

impl View for Seen {
    type Object = ConfigMap;

    fn of(object: ConfigMap, _: &mut Texts) -> Self {
        Self(object.metadata.into())
    }

    fn meta(&self) -> &Meta {
        &self.0
    }
}

fn map(name: &str, version: u64, owner: &str) -> ConfigMap {
    let owner = json!({
        "apiVersion": "v1", "kind": "Owner", "name": owner, "uid": owner, "controller": true,
    });
    serde_json::from_value(json!({"metadata": {
        "namespace": "n", "name": name, "uid": name, "resourceVersion": version.to_string(),
        "ownerReferences": [owner],
    }}))
    .unwrap()
}

fn listed(maps: Vec<ConfigMap>) -> Store<Seen> {
    let store = Store::default();
    list(&store, maps);
    store
}

fn list(store: &Store<Seen>, maps: Vec<ConfigMap>) -> usize {
    store.apply(Event::Init);
    for map in maps {
        store.apply(Event::InitApply(map));
    }
    store.apply(Event::InitDone).len()
}

fn version(store: &Store<Seen>, name: &str) -> Option<u64> {
    store.get(&Key::new("n", name)).map(|seen| seen.0.version)
}

#[test]
fn an_answer_counts_until_the_watch_has_come_as_far() {
    let store = listed(vec![map("a", 1, "x")]);
    store.learn(map("a", 5, "x"));
    assert_eq!(version(&store, "a"), Some(5));
    store.apply(Event::Apply(map("a", 3, "x")));
    assert_eq!(version(&store, "a"), Some(5));
    store.apply(Event::Apply(map("a", 6, "x")));
    assert_eq!(version(&store, "a"), Some(6));
}

#[test]
fn a_late_answer_does_not_bring_back_what_the_watch_saw_go() {
    let store = listed(vec![]);
    store.apply(Event::Apply(map("a", 2, "x")));
    store.apply(Event::Delete(map("a", 4, "x")));
    store.learn(map("a", 2, "x"));
    assert_eq!(version(&store, "a"), None);
}

#[test]
fn a_watch_that_repeats_itself_says_nothing_new() {
    let store = listed(vec![]);
    store.apply(Event::Apply(map("a", 2, "x")));
    store.apply(Event::Delete(map("a", 4, "x")));
    assert!(store.apply(Event::Apply(map("a", 2, "x"))).is_empty());
    assert_eq!(version(&store, "a"), None);
    assert_eq!(store.apply(Event::Apply(map("a", 9, "x"))).len(), 1);
}

#[test]
fn a_new_list_replaces_everything_and_touches_what_it_lacks() {
    let store = listed(vec![map("a", 1, "x"), map("b", 2, "x")]);
    store.learn(map("c", 3, "x"));
    assert_eq!(list(&store, vec![map("b", 7, "y")]), 4);
    assert_eq!((store.len(), version(&store, "b")), (1, Some(7)));
    assert!(store.owned_by("x").is_empty());
}

#[test]
fn objects_are_found_by_their_owner() {
    let store = listed(vec![map("b", 1, "x"), map("a", 2, "x"), map("c", 3, "y")]);
    let names = |owner| -> Vec<String> {
        let owned = store.owned_by(owner);
        owned
            .iter()
            .map(|seen| seen.0.key.name.to_string())
            .collect()
    };
    assert_eq!(names("x"), ["a", "b"]);
    store.apply(Event::Apply(map("a", 4, "y")));
    assert_eq!(
        (names("x"), names("y")),
        (vec!["b".into()], vec!["a".into(), "c".into()])
    );
    store.forget(&Key::new("n", "c"), "another");
    store.forget(&Key::new("n", "b"), "b");
    assert_eq!((names("x"), names("y").len()), (vec![], 2));
}

#[test]
fn equal_texts_are_kept_once_and_dropped_with_their_last_holder() {
    let mut texts = Texts::default();
    let one = texts.share("same".to_owned());
    assert!(Arc::ptr_eq(&one, &texts.share("same".to_owned())));
    for number in 0..1000 {
        texts.share(number.to_string());
    }
    assert!(texts.known.len() < 200);
    assert!(texts.known.contains("same"));
}
