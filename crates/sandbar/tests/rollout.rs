//! `sandbar rollout` as a user runs it, on a served API with controllers and a hollow node.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::process::{Command, Output};

use api::sigs::v1beta1::{SandboxTemplate, SandboxWarmPool};
use controller::{clock, sigs};
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};
use support::{Served, until};

/// A cluster with controllers and a pool of two members.
struct World(Served);

impl World {
    async fn with_pool(strategy: Value) -> Self {
        let served = Served::start().await;
        let (clock, options) = (clock::Clock::system(), sigs::Options::default());
        tokio::spawn(sigs::run(served.client.clone(), clock, options));
        let world = Self(served);
        world.fill(strategy).await;
        world
    }

    async fn fill(&self, strategy: Value) {
        let container = json!({"name": "main", "image": "app:1"});
        let template = json!({
            "metadata": {"name": "one"},
            "spec": {"podTemplate": {"spec": {"containers": [container]}}},
        });
        self.0.create::<SandboxTemplate>(template).await;
        let pool = json!({
            "metadata": {"name": "pool"},
            "spec": {
                "replicas": 2, "sandboxTemplateRef": {"name": "one"}, "updateStrategy": strategy,
            },
        });
        self.0.create::<SandboxWarmPool>(pool).await;
    }

    async fn set_image(&self, image: &str) {
        let containers = json!([{"name": "main", "image": image}]);
        let patch = json!({"spec": {"podTemplate": {"spec": {"containers": containers}}}});
        let templates: Api<SandboxTemplate> = self.0.api();
        let params = PatchParams::default();
        templates
            .patch("one", &params, &Patch::Merge(patch))
            .await
            .unwrap();
    }

    /// What the template says now.
    async fn image(&self) -> String {
        let template: SandboxTemplate = self.0.api().get("one").await.unwrap();
        let pod = template.spec.blueprint.pod_template.spec.json();
        pod["containers"][0]["image"].as_str().unwrap().to_owned()
    }

    /// Waits until the history ends with this revision.
    async fn until_stored(&self, number: i64, image: &str) {
        let wanted = format!("{number} (now)");
        let look = async || {
            let (_, said) = self.rollout(&["history", "pool"]).await;
            let last = said.lines().last().unwrap_or_default();
            (last.starts_with(&wanted) && last.contains(image)).then_some(())
        };
        until(&format!("{wanted} is {image}"), look).await;
    }

    /// Waits as a user does; what it says.
    async fn until_complete(&self) -> String {
        let (code, said) = self.rollout(&["status", "pool", "--timeout", "60"]).await;
        assert_eq!(code, 0, "{said}");
        said
    }

    /// Runs `sandbar rollout`; what it says, and how it ends.
    async fn rollout(&self, args: &[&str]) -> (i32, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sandbar"));
        command
            .arg("rollout")
            .args(args)
            .arg("--kubeconfig")
            .arg(&self.0.kubeconfig);
        let output = tokio::task::spawn_blocking(move || command.output().unwrap());
        let Output {
            status,
            stdout,
            stderr,
        } = output.await.unwrap();
        let text = [stdout, stderr]
            .map(|text| String::from_utf8(text).unwrap())
            .concat();
        (status.code().unwrap(), text)
    }
}

fn rolling(fields: Value) -> Value {
    json!({"type": "RollingUpdate", "rollingUpdate": fields})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_is_followed_paused_resumed_and_undone() {
    let world = World::with_pool(rolling(json!({"inPlace": "Never"}))).await;
    let said = world.until_complete().await;
    assert!(said.contains("2 of 2 updated"), "{said}");
    assert_eq!(
        world.rollout(&["pause", "pool"]).await,
        (0, "default/pool paused\n".to_owned())
    );
    world.set_image("app:2").await;
    let (code, said) = world.rollout(&["status", "pool", "--timeout", "2"]).await;
    assert!(
        code == 1 && said.contains("not complete after 2 s"),
        "{said}"
    );
    let (code, said) = world.rollout(&["status", "pool", "--no-watch"]).await;
    assert!(code == 0 && said.contains("Paused"), "{said}");
    let (code, said) = world.rollout(&["pause", "pool"]).await;
    assert!(code == 0 && said.contains("is paused already"), "{said}");
    assert_eq!(world.rollout(&["resume", "pool"]).await.0, 0);
    let said = world.until_complete().await;
    assert!(said.contains("2 of 2 updated"), "{said}");
    let (_, said) = world.rollout(&["history", "pool"]).await;
    let rows: Vec<Vec<&str>> = said
        .lines()
        .map(|line| line.split("  ").map(str::trim).collect())
        .collect();
    assert_eq!(rows[0][0], "REVISION", "{said}");
    assert!(
        rows[1].contains(&"app:1") && rows[2].contains(&"app:2"),
        "{said}"
    );
    assert_eq!(rows[2][0], "2 (now)", "{said}");
    let (_, said) = world.rollout(&["history", "pool", "--revision", "1"]).await;
    assert!(
        said.contains("image: app:1") || said.contains("image: \"app:1\""),
        "{said}"
    );
    let (code, said) = world.rollout(&["undo", "pool", "--dry-run"]).await;
    assert!(
        code == 0 && said.contains("would go back to revision 1 (app:1)"),
        "{said}"
    );
    let (code, said) = world.rollout(&["undo", "pool"]).await;
    assert!(
        code == 0 && said.contains("goes back to revision 1 (app:1)"),
        "{said}"
    );
    world.until_complete().await;
    let (_, said) = world.rollout(&["history", "pool"]).await;
    assert!(
        said.contains("3 (now)") && said.lines().last().unwrap().contains("app:1"),
        "{said}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_undo_goes_to_the_revision_that_is_asked_for() {
    let world = World::with_pool(json!({"type": "OnReplenish"})).await;
    world.until_stored(1, "app:1").await;
    for number in [2, 3] {
        let image = format!("app:{number}");
        world.set_image(&image).await;
        world.until_stored(number, &image).await;
    }
    let to_first = ["undo", "pool", "--to-revision", "1"];
    let (code, said) = world
        .rollout(&[&to_first[..], &["--dry-run"]].concat())
        .await;
    assert!(
        code == 0 && said.contains("would go back to revision 1 (app:1)"),
        "{said}"
    );
    assert_eq!(world.image().await, "app:3");
    let (code, said) = world.rollout(&to_first).await;
    assert!(
        code == 0 && said.contains("goes back to revision 1 (app:1)"),
        "{said}"
    );
    assert_eq!(world.image().await, "app:1");
    world.until_stored(4, "app:1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_done_is_said_with_a_way_out() {
    let world = World::with_pool(json!({"type": "OnReplenish"})).await;
    let (code, said) = world.rollout(&["pause", "pool"]).await;
    assert!(
        code == 1 && said.contains("set spec.updateStrategy.type to RollingUpdate"),
        "{said}"
    );
    for nobody in [
        "nobody",
        "swp/nobody",
        "SandboxWarmPool.extensions.agents.x-k8s.io/nobody",
    ] {
        let (code, said) = world.rollout(&["status", nobody]).await;
        assert!(
            code == 1 && said.contains("default/nobody not found"),
            "{said}"
        );
    }
    let (code, said) = world.rollout(&["status", "deployment/pool"]).await;
    assert!(
        code == 2 && said.contains("only SandboxWarmPools have rollouts, not deployment"),
        "{said}"
    );
    world.until_complete().await;
    let (code, said) = world.rollout(&["undo", "pool"]).await;
    assert!(code == 1 && said.contains("no earlier revision"), "{said}");
    let (code, said) = world.rollout(&["undo", "pool", "--to-revision", "7"]).await;
    assert!(
        code == 1 && said.contains("there is no revision 7"),
        "{said}"
    );
    world.set_image("app:2").await;
    // nothing will happen before somebody claims, and nobody need wait for it
    let said = world.until_complete().await;
    assert!(said.contains("UntilClaimed"), "{said}");
}
