//! The manifests people have today apply unchanged.

use std::path::{Path, PathBuf};

use crate::cluster::{Cluster, KRUISE, V1ALPHA1, V1BETA1};

fn manifests(directory: &str) -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../examples")
        .join(directory);
    let mut files: Vec<_> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    files
}

pub(crate) fn all_apply(cluster: &Cluster, directory: &str, expected: usize) {
    let files = manifests(directory);
    assert_eq!(files.len(), expected, "{directory}");
    for file in files {
        let path = file.to_str().unwrap();
        let said = cluster.kubectl(&["apply", "-f", path], None);
        assert!(said.ok, "{path}: {said:?}");
        assert_eq!(said.stderr, "", "{path}: applies without a warning");
        let unchanged = cluster.kubectl(&["diff", "-f", path], None);
        assert!(
            unchanged.ok,
            "{path}: stored differently: {}",
            unchanged.stdout
        );
    }
}

#[test]
fn of_the_kruise_family() {
    all_apply(&KRUISE, "kruise", 12);
}

#[test]
fn of_the_sigs_family_in_v1beta1() {
    all_apply(&V1BETA1, "sigs/v1beta1", 7);
}

#[test]
fn of_the_sigs_family_in_v1alpha1() {
    all_apply(&V1ALPHA1, "sigs/v1alpha1", 12);
}
