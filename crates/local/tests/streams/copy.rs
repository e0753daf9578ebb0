//! `kubectl cp`.

use std::fs;

use crate::stage::{KUBECTLS, Stage};

#[tokio::test(flavor = "multi_thread")]
async fn files_and_directories_are_copied_both_ways() {
    let stage = Stage::new().await;
    let contents: Vec<u8> = (0..3_000_000_u32)
        .map(|number| number.to_le_bytes()[0])
        .collect();
    for (index, kubectl) in KUBECTLS.iter().enumerate() {
        let (source, there, back) = (
            stage.path(&format!("source{index}")),
            stage.path(&format!("there{index}")),
            stage.path(&format!("back{index}")),
        );
        fs::create_dir_all(source.join("deep")).unwrap();
        fs::create_dir(&there).unwrap();
        fs::write(source.join("deep/large"), &contents).unwrap();
        fs::write(source.join("small"), "s").unwrap();
        let remote = format!("default/p:{}", there.join("copy").display());
        stage
            .does(kubectl, &["cp", source.to_str().unwrap(), &remote])
            .await;
        assert!(fs::read(there.join("copy/deep/large")).unwrap() == contents);
        assert_eq!(fs::read(there.join("copy/small")).unwrap(), b"s");
        stage
            .does(kubectl, &["cp", &remote, back.to_str().unwrap()])
            .await;
        assert!(fs::read(back.join("deep/large")).unwrap() == contents);
        assert_eq!(fs::read(back.join("small")).unwrap(), b"s");
        stage.assert_upgrades(kubectl);
    }
}
