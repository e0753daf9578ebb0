//! Watches that lag, repeat themselves and begin anew.

use std::sync::{Arc, Mutex};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::watcher::Event;
use serde_json::json;

use super::{By, Store, Texts, View};
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

fn list(store: &Store<Seen>, maps: Vec<ConfigMap>) {
    store.apply(Event::Init);
    for map in maps {
        store.apply(Event::InitApply(map));
    }
    store.apply(Event::InitDone);
}

/// What the store tells: name, versions before and after, and how it became known.
type Told = (String, Option<u64>, Option<u64>, By);

fn listen(store: &Store<Seen>) -> Arc<Mutex<Vec<Told>>> {
    let told: Arc<Mutex<Vec<Told>>> = Arc::default();
    let ear = Arc::clone(&told);
    store.tell(move |change| {
        let name = change.views().next().unwrap().0.key.name.to_string();
        let version = |view: Option<&Arc<Seen>>| view.map(|view| view.0.version);
        let told = (
            name,
            version(change.before),
            version(change.after),
            change.by,
        );
        ear.lock().unwrap().push(told);
    });
    told
}

fn version(store: &Store<Seen>, name: &str) -> Option<u64> {
    store.get(&Key::new("n", name)).map(|seen| seen.0.version)
}

#[test]
fn an_answer_counts_until_the_watch_has_come_as_far() {
    let store = listed(vec![map("a", 1, "x")]);
    store.learn(map("a", 5, "x"), "me");
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
    store.learn(map("a", 2, "x"), "me");
    assert_eq!(version(&store, "a"), None);
}

#[test]
fn a_watch_that_repeats_itself_says_nothing_new() {
    let store = listed(vec![]);
    store.apply(Event::Apply(map("a", 2, "x")));
    store.apply(Event::Delete(map("a", 4, "x")));
    let told = listen(&store);
    store.apply(Event::Apply(map("a", 2, "x")));
    assert!(told.lock().unwrap().is_empty());
    assert_eq!(version(&store, "a"), None);
    store.apply(Event::Apply(map("a", 9, "x")));
    let news = ("a".to_owned(), None, Some(9), By::Watch);
    assert_eq!(*told.lock().unwrap(), [news]);
}

#[test]
fn a_change_is_told_once_however_often_it_is_heard_of() {
    let store = listed(vec![map("a", 1, "x")]);
    let told = listen(&store);
    store.learn(map("a", 5, "x"), "me");
    store.apply(Event::Apply(map("a", 5, "x")));
    list(&store, vec![map("a", 5, "x")]);
    store.forget(&Key::new("n", "a"), "a", "me");
    store.apply(Event::Delete(map("a", 6, "x")));
    let name = || "a".to_owned();
    let steps = [
        (name(), Some(1), Some(5), By::Answer("me")),
        (name(), Some(5), None, By::Answer("me")),
    ];
    assert_eq!(*told.lock().unwrap(), steps);
}

#[test]
fn a_new_list_replaces_everything_and_tells_of_what_it_lacks() {
    let store = listed(vec![map("a", 1, "x"), map("b", 2, "x")]);
    let told = listen(&store);
    store.learn(map("c", 3, "x"), "me");
    list(&store, vec![map("b", 7, "y")]);
    let mut told = told.lock().unwrap().split_off(1);
    told.sort_by(|left, right| left.0.cmp(&right.0));
    let step = |name: &str, before, after| (name.to_owned(), Some(before), after, By::Watch);
    let steps = [
        step("a", 1, None),
        step("b", 2, Some(7)),
        step("c", 3, None),
    ];
    assert_eq!(told, steps);
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
    store.forget(&Key::new("n", "c"), "another", "me");
    store.forget(&Key::new("n", "b"), "b", "me");
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

#[test]
fn what_was_answered_while_a_list_was_read_counts_until_the_watch_has_come_as_far() {
    let store = listed(vec![map("a", 1, "x"), map("b", 2, "x")]);
    store.apply(Event::Init);
    store.apply(Event::InitApply(map("a", 1, "x")));
    store.apply(Event::InitApply(map("b", 2, "x")));
    store.learn(map("b", 5, "x"), "me");
    store.learn(map("c", 6, "x"), "me");
    let told = listen(&store);
    store.apply(Event::InitDone);
    assert!(told.lock().unwrap().is_empty());
    let all = ["a", "b", "c"].map(|name| version(&store, name));
    assert_eq!(all, [Some(1), Some(5), Some(6)]);
    assert_eq!(store.owned_by("x").len(), 3);
    for news in [map("b", 5, "x"), map("c", 6, "x"), map("d", 7, "x")] {
        store.apply(Event::Apply(news));
    }
    assert_eq!(store.len(), 4);
}

#[test]
fn what_was_made_and_is_gone_again_before_a_list_goes_with_the_next_event() {
    let store = listed(vec![]);
    store.apply(Event::Init);
    store.learn(map("a", 3, "x"), "me");
    store.apply(Event::InitDone);
    // the answer to a write that was sent before the list
    store.learn(map("b", 4, "x"), "me");
    assert_eq!(store.len(), 2);
    store.apply(Event::Apply(map("c", 9, "x")));
    assert_eq!((store.len(), version(&store, "c")), (1, Some(9)));
}

#[test]
fn a_list_that_is_newer_than_an_answer_is_believed() {
    let store = listed(vec![]);
    store.apply(Event::Init);
    store.learn(map("a", 3, "x"), "me");
    store.apply(Event::InitApply(map("b", 5, "x")));
    store.apply(Event::InitDone);
    assert_eq!((store.len(), version(&store, "a")), (1, None));
}

#[test]
fn a_list_does_not_bring_back_what_went_while_it_was_read() {
    let store = listed(vec![map("a", 1, "x"), map("b", 2, "x")]);
    store.apply(Event::Init);
    store.apply(Event::InitApply(map("a", 1, "x")));
    store.apply(Event::InitApply(map("b", 2, "x")));
    store.forget(&Key::new("n", "a"), "a", "me");
    store.apply(Event::InitDone);
    assert_eq!((store.len(), version(&store, "a")), (1, None));
    // who has the same name later is somebody else
    list(&store, vec![map("a", 8, "x"), map("b", 2, "x")]);
    assert_eq!(store.len(), 2);
}
