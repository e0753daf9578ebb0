//! What is kept of the status of a sandbox: of thousands, most say the same in the same words.

use std::sync::Arc;

use api::sigs::v1beta1::SandboxStatus;
use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{self as meta, Time},
    jiff::Timestamp,
};

use crate::store::Texts;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    conditions: Option<Box<[Condition]>>,
    pub service: Option<Box<str>>,
    service_fqdn: Option<Box<str>>,
    pub selector: Option<Box<str>>,
    pub pod_ips: Option<Box<[Box<str>]>>,
    pub node_name: Option<Arc<str>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Type, status and reason, which have no blanks in them, and the message.
    words: Arc<str>,
    pub since: Timestamp,
    pub generation: Option<i64>,
}

impl Condition {
    fn new(condition: &meta::Condition, texts: &mut Texts) -> Self {
        let meta::Condition {
            type_,
            status,
            reason,
            message,
            ..
        } = condition;
        Self {
            words: texts.share(format!("{type_} {status} {reason} {message}")),
            since: condition.last_transition_time.0,
            generation: condition.observed_generation,
        }
    }

    fn words(&self) -> [&str; 4] {
        let mut words = self.words.splitn(4, ' ');
        std::array::from_fn(|_| words.next().unwrap_or_default())
    }

    fn kind(&self) -> &str {
        self.words()[0]
    }

    pub fn is_true(&self) -> bool {
        self.words()[1] == "True"
    }

    pub fn reason(&self) -> &str {
        self.words()[2]
    }

    pub fn whole(&self) -> meta::Condition {
        let [type_, status, reason, message] = self.words().map(str::to_owned);
        meta::Condition {
            type_,
            status,
            reason,
            message,
            last_transition_time: Time(self.since),
            observed_generation: self.generation,
        }
    }

    /// Whether both say the same, of whichever generation.
    pub fn says_the_same(&self, other: &Self) -> bool {
        (&self.words, self.since) == (&other.words, other.since)
    }
}

impl Status {
    pub fn new(status: SandboxStatus, texts: &mut Texts) -> Self {
        let conditions = status.conditions.map(|conditions| {
            let conditions = conditions.iter();
            conditions.map(|one| Condition::new(one, texts)).collect()
        });
        let ips = |ips: Vec<String>| ips.into_iter().map(Into::into).collect();
        Self {
            conditions,
            service: status.service.map(Into::into),
            service_fqdn: status.service_fqdn.map(Into::into),
            selector: status.selector.map(Into::into),
            pod_ips: status.pod_ips.map(ips),
            node_name: status.node_name.map(|name| texts.share(name)),
        }
    }

    pub fn find(&self, kind: &str) -> Option<&Condition> {
        let mut all = self.conditions.iter().flatten();
        all.find(|condition| condition.kind() == kind)
    }

    pub fn is_true(&self, kind: &str) -> bool {
        self.find(kind).is_some_and(Condition::is_true)
    }

    /// As it was read.
    pub fn whole(&self) -> SandboxStatus {
        let conditions = self.conditions.as_deref();
        let ips = self.pod_ips.as_deref();
        SandboxStatus {
            conditions: conditions.map(|all| all.iter().map(Condition::whole).collect()),
            service: self.service.as_deref().map(str::to_owned),
            service_fqdn: self.service_fqdn.as_deref().map(str::to_owned),
            selector: self.selector.as_deref().map(str::to_owned),
            pod_ips: ips.map(|ips| ips.iter().map(ToString::to_string).collect()),
            node_name: self.node_name.as_deref().map(str::to_owned),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use api::sigs::v1beta1::SandboxStatus;
    use serde_json::json;

    use super::Status;
    use crate::store::Texts;

    #[test]
    fn nothing_of_a_status_is_lost() {
        let ready = json!({
            "type": "Ready", "status": "False", "reason": "DependenciesNotReady",
            "message": "Pod exists with phase: Pending; Service Exists",
            "lastTransitionTime": "2026-11-16T12:00:00Z", "observedGeneration": 3,
        });
        let other = json!({
            "type": "Theirs", "status": "True", "reason": "", "message": "",
            "lastTransitionTime": "2026-11-16T12:00:00Z",
        });
        for status in [
            json!({}),
            json!({"conditions": []}),
            json!({
                "conditions": [ready, other], "service": "a", "serviceFQDN": "a.ns.svc",
                "selector": "a=b", "podIPs": ["10.0.0.1", "fd00::1"], "nodeName": "n",
            }),
        ] {
            let status: SandboxStatus = serde_json::from_value(status).unwrap();
            let told = Status::new(status.clone(), &mut Texts::default());
            assert_eq!(told.whole(), status);
        }
    }
}
