//! Events: what happened, told once.

use engine::revision::name_hash;
use k8s_openapi::{
    api::{core::v1::ObjectReference, events::v1::Event},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
    jiff::Timestamp,
};

use crate::{meta::Meta, write::Writer};

/// What a server takes.
const LONGEST_NAME: usize = 253;
const LONGEST_NOTE: usize = 1024;

/// Something worth telling about an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct News {
    pub is_warning: bool,
    pub reason: &'static str,
    pub action: &'static str,
    pub message: String,
    /// What it was that happened: the same occasion is told once, whoever tells it and however often.
    pub occasion: String,
}

/// Who tells, and of which kind.
#[derive(Clone, Copy, Debug)]
pub struct Teller {
    pub controller: &'static str,
    pub api_version: &'static str,
    pub kind: &'static str,
}

impl Teller {
    /// Nothing depends on an event, so that one that is lost is no failure.
    pub async fn tell(&self, writer: &Writer, about: &Meta, news: &News, now: Timestamp) {
        let event = self.event(about, news, now);
        let _ = writer.post(&about.key.namespace, &event).await;
    }

    fn event(&self, about: &Meta, news: &News, now: Timestamp) -> Event {
        let News {
            is_warning,
            reason,
            action,
            message,
            occasion,
        } = news;
        let (namespace, name) = (about.key.namespace.to_string(), about.key.name.to_string());
        let mark = name_hash(&format!("{}/{reason}/{occasion}", about.uid));
        // the mark tells those apart that begin in the same way
        let start = cut(&name, LONGEST_NAME - mark.len() - 1);
        let start = start.trim_end_matches(['-', '.']);
        Event {
            metadata: ObjectMeta {
                name: Some(format!("{start}.{mark}")),
                namespace: Some(namespace.clone()),
                ..ObjectMeta::default()
            },
            event_time: Some(MicroTime(now)),
            type_: Some(if *is_warning { "Warning" } else { "Normal" }.to_owned()),
            reason: Some((*reason).to_owned()),
            action: Some((*action).to_owned()),
            note: Some(cut(message, LONGEST_NOTE).to_owned()),
            regarding: Some(ObjectReference {
                api_version: Some(self.api_version.to_owned()),
                kind: Some(self.kind.to_owned()),
                name: Some(name),
                namespace: Some(namespace),
                uid: Some(about.uid.to_string()),
                ..ObjectReference::default()
            }),
            reporting_controller: Some(self.controller.to_owned()),
            reporting_instance: Some(self.controller.to_owned()),
            ..Event::default()
        }
    }
}

/// As much of the beginning as there is room for.
fn cut(text: &str, room: usize) -> &str {
    &text[..text.floor_char_boundary(room)]
}

#[cfg(test)]
mod tests {
    use api::structural::names::subdomain_problems;
    use k8s_openapi::{apimachinery::pkg::apis::meta::v1::ObjectMeta, jiff::Timestamp};

    use super::{News, Teller};

    const TELLER: Teller = Teller {
        controller: "controller",
        api_version: "v1",
        kind: "Pod",
    };

    fn about(name: &str, uid: &str) -> ObjectMeta {
        ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some("n".to_owned()),
            uid: Some(uid.to_owned()),
            ..ObjectMeta::default()
        }
    }

    fn news(reason: &'static str, occasion: &str, message: String) -> News {
        News {
            is_warning: false,
            reason,
            action: "Act",
            message,
            occasion: occasion.to_owned(),
        }
    }

    #[test]
    fn an_occasion_has_one_event_however_often_it_is_told() {
        let name = |uid: &str, reason, occasion: &str, at: &str| {
            let news = news(reason, occasion, format!("told at {at}"));
            let at: Timestamp = at.parse().unwrap();
            let event = TELLER.event(&about("box", uid).into(), &news, at);
            event.metadata.name
        };
        let told = name("one", "Began", "first", "2026-01-31T12:00:00Z");
        let later = "2026-01-31T13:00:00Z";
        assert_eq!(name("one", "Began", "first", later), told);
        assert_ne!(name("one", "Began", "second", later), told);
        assert_ne!(name("one", "Ended", "first", later), told);
        assert_ne!(name("two", "Began", "first", later), told);
    }

    #[test]
    fn whatever_an_object_is_called_and_however_much_there_is_to_say_the_server_takes_the_event() {
        let dashes = format!("{}-.-b", "a".repeat(241));
        for name in ["a".repeat(253), dashes, "b".to_owned()] {
            let news = news("Began", "first", "ä".repeat(1000));
            let event = TELLER.event(&about(&name, "one").into(), &news, Timestamp::UNIX_EPOCH);
            let told = event.metadata.name.unwrap();
            assert_eq!(subdomain_problems(&told), Vec::<String>::new(), "{told}");
            assert!(name.starts_with(told.rsplit_once('.').unwrap().0));
            let note = event.note.unwrap();
            assert_eq!(note.len(), 1024);
            assert_eq!(event.regarding.unwrap().name, Some(name));
        }
    }
}
