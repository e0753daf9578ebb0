//! What a table says about a pod: the state its containers are in, in one word.

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::Definition;
use super::cells::{
    NONE, age, condition, elapsed, flag, has, items, name, number, text, text_or, time,
};

pub(super) const COLUMNS: &[Definition] = &[
    Definition::NAME,
    Definition::new("Ready", "How many of the containers are ready."),
    Definition::new(
        "Status",
        "The state of the pod and its containers in a word.",
    ),
    Definition::new(
        "Restarts",
        "How often containers were restarted, and how long ago the last time was.",
    ),
    Definition::AGE,
    Definition::new("IP", "The address of the pod.").wide(),
    Definition::new("Node", "The node that runs the pod.").wide(),
    Definition::new(
        "Nominated Node",
        "The node on which room is being made for the pod.",
    )
    .wide(),
    Definition::new(
        "Readiness Gates",
        "How many of the conditions that the pod waits for hold.",
    )
    .wide(),
];

pub(super) fn cells(pod: &Value, now: Timestamp) -> Vec<Value> {
    let Summary {
        ready,
        word,
        restarts,
    } = summary(pod);
    let total = items(pod, "/spec/containers").len() + sidecars(pod).count();
    vec![
        name(pod).into(),
        format!("{ready}/{total}").into(),
        word.into(),
        restarts.shown(now).into(),
        age(pod, now).into(),
        text_or(pod, "/status/podIPs/0/ip", NONE).into(),
        text_or(pod, "/spec/nodeName", NONE).into(),
        text_or(pod, "/status/nominatedNodeName", NONE).into(),
        readiness_gates(pod).into(),
    ]
}

/// A pod that is done says so in its row.
pub(super) fn conditions(pod: &Value) -> Option<Value> {
    let (reason, message) = match text(pod, "/status/phase") {
        "Succeeded" => ("Succeeded", "The pod has completed successfully."),
        "Failed" => ("Failed", "The pod failed."),
        _ => return None,
    };
    Some(json!([
        {"type": "Completed", "status": "True", "reason": reason, "message": message},
    ]))
}

struct Summary {
    ready: usize,
    word: String,
    restarts: Restarts,
}

/// How often containers came back, and when the last one had ended before.
#[derive(Clone, Copy, Default)]
struct Restarts {
    count: i64,
    last: Option<Timestamp>,
}

impl Restarts {
    fn add(&mut self, container: &Value) {
        self.count += number(container, "/restartCount");
        let ended = time(text(container, "/lastState/terminated/finishedAt"));
        self.last = self.last.max(ended);
    }

    fn shown(self, now: Timestamp) -> String {
        match self {
            Self {
                count,
                last: Some(last),
            } if count != 0 => format!("{count} ({} ago)", elapsed(last, now)),
            Self { count, .. } => count.to_string(),
        }
    }
}

fn summary(pod: &Value) -> Summary {
    let start = initialization(pod);
    let mut summary = Summary {
        ready: start.ready,
        word: start.stuck.clone().unwrap_or_else(|| phase(pod).to_owned()),
        restarts: start.restarts,
    };
    if start.stuck.is_none() || condition(pod, "Initialized") == Some("True") {
        summary.restarts = start.sidecar_restarts;
        add_containers(pod, &mut summary);
    }
    if has(pod, "/metadata/deletionTimestamp") {
        let over = matches!(text(pod, "/status/phase"), "Succeeded" | "Failed");
        match text(pod, "/status/reason") {
            "NodeLost" => summary.word = "Unknown".to_owned(),
            _ if !over => summary.word = "Terminating".to_owned(),
            _ => {}
        }
    }
    summary
}

fn phase(pod: &Value) -> &str {
    const GATED: &str = "SchedulingGated";
    let gated = items(pod, "/status/conditions")
        .iter()
        .any(|condition| condition["type"] == "PodScheduled" && condition["reason"] == GATED);
    match gated {
        true => GATED,
        false => text_or(pod, "/status/reason", text(pod, "/status/phase")),
    }
}

fn sidecars(pod: &Value) -> impl Iterator<Item = &Value> {
    items(pod, "/spec/initContainers")
        .iter()
        .filter(|container| container["restartPolicy"] == "Always")
}

#[derive(Default)]
struct Initialization {
    ready: usize,
    /// What the first init container that holds up the others does.
    stuck: Option<String>,
    restarts: Restarts,
    sidecar_restarts: Restarts,
}

fn initialization(pod: &Value) -> Initialization {
    let mut start = Initialization::default();
    let total = items(pod, "/spec/initContainers").len();
    let statuses = items(pod, "/status/initContainerStatuses");
    for (index, container) in statuses.iter().enumerate() {
        let sidecar = sidecars(pod).any(|sidecar| sidecar["name"] == container["name"]);
        start.restarts.add(container);
        if sidecar {
            start.sidecar_restarts.add(container);
        }
        let ended = container.pointer("/state/terminated");
        let waits_for = text(container, "/state/waiting/reason");
        let stuck = match ended {
            Some(ended) if number(ended, "/exitCode") == 0 => continue,
            _ if sidecar && flag(container, "/started") => {
                start.ready += usize::from(flag(container, "/ready"));
                continue;
            }
            Some(ended) => format!("Init:{}", end(ended)),
            None if !matches!(waits_for, "" | "PodInitializing") => format!("Init:{waits_for}"),
            None => format!("Init:{index}/{total}"),
        };
        start.stuck = Some(stuck);
        break;
    }
    start
}

fn add_containers(pod: &Value, summary: &mut Summary) {
    let mut running = false;
    let mut failed = None;
    for container in items(pod, "/status/containerStatuses").iter().rev() {
        summary.restarts.add(container);
        let waits_for = text(container, "/state/waiting/reason");
        if !waits_for.is_empty() {
            waits_for.clone_into(&mut summary.word);
        } else if let Some(ended) = container.pointer("/state/terminated") {
            summary.word = end(ended);
            if number(ended, "/exitCode") != 0 {
                failed = Some(summary.word.clone());
            }
        } else if flag(container, "/ready") && has(container, "/state/running") {
            running = true;
            summary.ready += 1;
        }
    }
    if summary.word == "Completed" {
        // one container may be done while others still run
        let ready = items(pod, "/status/conditions")
            .iter()
            .any(|condition| condition["type"] == "Ready" && condition["status"] == "True");
        match (running, failed) {
            (true, _) if ready => summary.word = "Running".to_owned(),
            (_, Some(failed)) => summary.word = failed,
            (true, None) => summary.word = "NotReady".to_owned(),
            (false, None) => {}
        }
    }
}

/// How a container ended.
fn end(terminated: &Value) -> String {
    match (text(terminated, "/reason"), number(terminated, "/signal")) {
        ("", 0) => format!("ExitCode:{}", number(terminated, "/exitCode")),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

fn readiness_gates(pod: &Value) -> String {
    let gates = items(pod, "/spec/readinessGates");
    let open = gates
        .iter()
        .filter(|gate| condition(pod, text(gate, "/conditionType")) == Some("True"))
        .count();
    match gates.len() {
        0 => NONE.to_owned(),
        total => format!("{open}/{total}"),
    }
}
