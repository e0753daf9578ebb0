//! How pods and nodes behave on fake nodes: kwok's stages, ours because the stock ones neither answer an image
//! change nor write container ids and observed generations.

use crate::plan::Spec;

const STAGES: &[&str] = &[
    include_str!("stages/kwok.yaml"),
    include_str!("stages/node-initialize.yaml"),
    include_str!("stages/node-heartbeat.yaml"),
    include_str!("stages/pod-ready.yaml"),
    include_str!("stages/pod-changed.yaml"),
    include_str!("stages/pod-complete.yaml"),
    include_str!("stages/pod-delete.yaml"),
];

/// One file for `kwok --config`.
pub(crate) fn render(spec: &Spec) -> String {
    STAGES
        .join("---\n")
        .replace(
            "@START_DELAY_MS@",
            &spec.pod_start_delay.as_millis().to_string(),
        )
        .replace(
            "@RESTART_DELAY_MS@",
            &spec.pod_restart_delay.as_millis().to_string(),
        )
}

#[cfg(test)]
mod tests {
    use super::render;
    use crate::plan::Spec;
    use std::time::Duration;

    #[test]
    fn delays_are_filled_in_and_no_placeholder_is_left() {
        let spec = Spec {
            kubelet: false,
            controller_manager: false,
            fake_nodes: 1,
            pod_start_delay: Duration::from_millis(1234),
            pod_restart_delay: Duration::from_secs(5),
            audit: false,
            fsync: false,
        };
        let stages = render(&spec);
        assert!(stages.contains("durationMilliseconds: 1234\n"));
        assert!(stages.contains("durationMilliseconds: 5000\n"));
        assert!(!stages.contains('@'), "{stages}");
    }
}
