//! Events: what happened, told once.

use engine::revision::name_hash;
use k8s_openapi::{
    api::{core::v1::ObjectReference, events::v1::Event},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
    jiff::Timestamp,
};

use crate::{meta::Meta, write::Writer};

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
        Event {
            metadata: ObjectMeta {
                name: Some(format!("{name}.{mark}")),
                namespace: Some(namespace.clone()),
                ..ObjectMeta::default()
            },
            event_time: Some(MicroTime(now)),
            type_: Some(if *is_warning { "Warning" } else { "Normal" }.to_owned()),
            reason: Some((*reason).to_owned()),
            action: Some((*action).to_owned()),
            note: Some(message.clone()),
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

#[cfg(test)]
mod tests {
    use k8s_openapi::{apimachinery::pkg::apis::meta::v1::ObjectMeta, jiff::Timestamp};

    use super::{News, Teller};

    #[test]
    fn an_occasion_has_one_event_however_often_it_is_told() {
        let teller = Teller {
            controller: "controller",
            api_version: "v1",
            kind: "Pod",
        };
        let name = |uid: &str, reason, occasion: &str, at: &str| {
            let about = ObjectMeta {
                name: Some("box".to_owned()),
                namespace: Some("n".to_owned()),
                uid: Some(uid.to_owned()),
                ..ObjectMeta::default()
            };
            let news = News {
                is_warning: false,
                reason,
                action: "Act",
                message: format!("told at {at}"),
                occasion: occasion.to_owned(),
            };
            let at: Timestamp = at.parse().unwrap();
            teller.event(&about.into(), &news, at).metadata.name
        };
        let told = name("one", "Began", "first", "2026-01-31T12:00:00Z");
        let later = "2026-01-31T13:00:00Z";
        assert_eq!(name("one", "Began", "first", later), told);
        assert_ne!(name("one", "Began", "second", later), told);
        assert_ne!(name("one", "Ended", "first", later), told);
        assert_ne!(name("two", "Began", "first", later), told);
    }
}
