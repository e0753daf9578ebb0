//! What goes wrong on purpose: told by annotations on a pod, or by rules of a test.

use std::time::Duration;

use k8s_openapi::{
    api::core::v1::{Container, Pod},
    jiff::SignedDuration,
};
use kube::ResourceExt as _;

use crate::selector::Labels;

/// One or more of `pull`, `crash`, `unschedulable`, `never-ready`, `resize-infeasible`,
/// `resize-deferred`, separated by commas.
pub const FAIL: &str = "hollow.sandbar.dev/fail";
/// How long containers run before they exit by themselves.
pub const EXIT_AFTER: &str = "hollow.sandbar.dev/exit-after";
/// What they exit with; alone, it means that they exit at once.
pub const EXIT_CODE: &str = "hollow.sandbar.dev/exit-code";
/// How long the pod takes to start, instead of what the node's options say.
pub const START_DELAY: &str = "hollow.sandbar.dev/start-delay";

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The image cannot be pulled.
    Pull,
    /// Containers exit with code 1 as soon as they start.
    Crash,
    /// No node takes the pod.
    Unschedulable,
    /// Containers run and never become ready.
    NeverReady,
    /// Containers exit by themselves after running so long.
    Exit { after: Duration, code: i32 },
    /// A resize in place is refused for ever.
    ResizeInfeasible,
    /// A resize in place has to wait.
    ResizeDeferred,
}

/// Whom a failure befalls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    All,
    Labels(Labels),
    /// One pod, by namespace and name.
    Pod(String, String),
    /// Containers by image; `*` stands for any text. Failures of a whole pod befall it if one of
    /// its containers has such an image.
    Image(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rule {
    pub(super) id: u64,
    pub(super) target: Target,
    pub(super) failure: Failure,
}

/// Everything that is to go wrong with one pod, or with one of its containers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Causes {
    pub(super) pull: bool,
    pub(super) crash: bool,
    pub(super) unschedulable: bool,
    pub(super) never_ready: bool,
    pub(super) exit: Option<(Duration, i32)>,
    pub(super) resize: Option<&'static str>,
}

impl Causes {
    fn add(&mut self, failure: &Failure) {
        match failure {
            Failure::Pull => self.pull = true,
            Failure::Crash => self.crash = true,
            Failure::Unschedulable => self.unschedulable = true,
            Failure::NeverReady => self.never_ready = true,
            Failure::Exit { after, code } => self.exit = Some((*after, *code)),
            Failure::ResizeInfeasible => self.resize = Some("Infeasible"),
            Failure::ResizeDeferred => self.resize = Some("Deferred"),
        }
    }

    pub(super) fn of_pod(pod: &Pod, rules: &[Rule]) -> Self {
        let mut causes = Self::annotated(pod);
        for rule in rules.iter().filter(|rule| rule.target.is_pod(pod)) {
            causes.add(&rule.failure);
        }
        causes
    }

    /// Annotations speak of the containers that run for the pod's life; rules speak of any.
    pub(super) fn of_container(
        pod: &Pod,
        container: &Container,
        is_init: bool,
        rules: &[Rule],
    ) -> Self {
        let mut causes = if is_init {
            Self::default()
        } else {
            Self::annotated(pod)
        };
        let befalls = |rule: &&Rule| match &rule.target {
            Target::Image(pattern) => has_image(container, pattern),
            other => !is_init && other.is_pod(pod),
        };
        for rule in rules.iter().filter(befalls) {
            causes.add(&rule.failure);
        }
        causes
    }

    fn annotated(pod: &Pod) -> Self {
        let mut causes = Self::default();
        let Some(annotations) = pod.metadata.annotations.as_ref() else {
            return causes;
        };
        let failures = annotations
            .get(FAIL)
            .map(String::as_str)
            .unwrap_or_default();
        for word in failures.split(',') {
            if let Some(failure) = named(word.trim()) {
                causes.add(&failure);
            }
        }
        let after = annotations.get(EXIT_AFTER).and_then(|text| duration(text));
        let code = annotations
            .get(EXIT_CODE)
            .and_then(|text| text.parse().ok());
        if after.is_some() || code.is_some() {
            causes.exit = Some((after.unwrap_or_default(), code.unwrap_or_default()));
        }
        causes
    }
}

impl Target {
    fn is_pod(&self, pod: &Pod) -> bool {
        match self {
            Self::All => true,
            Self::Labels(labels) => labels.matches(pod.labels()),
            Self::Pod(namespace, name) => {
                pod.metadata.namespace.as_ref() == Some(namespace)
                    && pod.metadata.name.as_ref() == Some(name)
            }
            Self::Image(pattern) => pod.spec.iter().any(|spec| {
                let init = spec.init_containers.iter().flatten();
                let mut all = spec.containers.iter().chain(init);
                all.any(|container| has_image(container, pattern))
            }),
        }
    }
}

fn named(word: &str) -> Option<Failure> {
    Some(match word {
        "pull" => Failure::Pull,
        "crash" => Failure::Crash,
        "unschedulable" => Failure::Unschedulable,
        "never-ready" => Failure::NeverReady,
        "resize-infeasible" => Failure::ResizeInfeasible,
        "resize-deferred" => Failure::ResizeDeferred,
        _ => return None,
    })
}

fn has_image(container: &Container, pattern: &str) -> bool {
    container
        .image
        .as_deref()
        .is_some_and(|image| is_like(image, pattern))
}

fn is_like(text: &str, pattern: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else {
        return text == pattern;
    };
    let Some(text) = text.strip_prefix(head) else {
        return false;
    };
    (0..=text.len())
        .filter_map(|from| text.get(from..))
        .any(|tail| is_like(tail, rest))
}

pub(super) fn start_delay(pod: &Pod) -> Option<Duration> {
    duration(pod.metadata.annotations.as_ref()?.get(START_DELAY)?)
}

fn duration(text: &str) -> Option<Duration> {
    let time: SignedDuration = text.parse().ok()?;
    time.try_into().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Causes, Duration, Failure, Pod, Rule, Target, duration, is_like};

    fn pod() -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "n", "labels": {"app": "web"}, "annotations": {
                "hollow.sandbar.dev/fail": "never-ready, resize-deferred",
                "hollow.sandbar.dev/exit-after": "1m30s",
            }},
            "spec": {"containers": [{"name": "a", "image": "good:1"}, {"name": "b", "image": "bad:2"}]},
        }))
        .unwrap()
    }

    fn rule(target: Target, failure: Failure) -> Rule {
        Rule {
            id: 0,
            target,
            failure,
        }
    }

    #[test]
    fn annotations_say_what_goes_wrong() {
        let expected = Causes {
            never_ready: true,
            resize: Some("Deferred"),
            exit: Some((Duration::from_secs(90), 0)),
            ..Causes::default()
        };
        assert_eq!(Causes::of_pod(&pod(), &[]), expected);
    }

    #[test]
    fn a_rule_for_images_befalls_only_containers_with_such_an_image() {
        let pod = pod();
        let rules = [rule(Target::Image("bad:*".into()), Failure::Pull)];
        let pulls: Vec<bool> = pod
            .spec
            .as_ref()
            .unwrap()
            .containers
            .iter()
            .map(|container| Causes::of_container(&pod, container, false, &rules).pull)
            .collect();
        assert_eq!(pulls, [false, true]);
    }

    #[test]
    fn rules_find_pods_by_label_and_by_name() {
        let labels = |text: &str| Target::Labels(crate::selector::Labels::parse(text).unwrap());
        let name = |name: &str| Target::Pod("n".into(), name.into());
        for (target, hit) in [
            (labels("app=web"), true),
            (labels("app=db"), false),
            (name("p"), true),
            (name("q"), false),
            (Target::All, true),
        ] {
            let causes = Causes::of_pod(&pod(), &[rule(target.clone(), Failure::Unschedulable)]);
            assert_eq!(causes.unschedulable, hit, "{target:?}");
        }
    }

    #[test]
    fn a_star_stands_for_any_text() {
        for (text, pattern, is) in [
            ("bad:1", "bad:*", true),
            ("bad", "bad:*", false),
            ("registry/bad:1", "*bad*", true),
            ("registry/bad:1", "*bad", false),
            ("abab", "*ab", true),
            ("x", "x", true),
        ] {
            assert_eq!(is_like(text, pattern), is, "{text} {pattern}");
        }
    }

    #[test]
    fn durations_are_written_as_go_writes_them() {
        assert_eq!(duration("300ms"), Some(Duration::from_millis(300)));
        assert_eq!(duration("3s"), Some(Duration::from_secs(3)));
        assert_eq!(duration("-3s"), None);
        assert_eq!(duration("soon"), None);
    }
}
