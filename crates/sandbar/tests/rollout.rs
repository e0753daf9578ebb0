//! `sandbar rollout` as a user runs it, on a served API with controllers and a hollow node.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::{
    process::{Command, Output},
    time::Duration,
};

use api::sigs::v1beta1::{Sandbox, SandboxClaim, SandboxTemplate, SandboxWarmPool};
use controller::{clock, sigs};
use kube::{
    Api,
    api::{ListParams, Patch, PatchParams},
};
use local::hollow::{Failure, Target};
use serde_json::{Value, json};
use support::{Served, until};
use tokio::io::AsyncReadExt as _;

/// Not a bound on anything that is tested: only how long a broken test takes to fail.
const PATIENCE: Duration = Duration::from_secs(60);

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

    async fn change(&self, rolling_update: Value) {
        let patch = json!({"spec": {"updateStrategy": {"rollingUpdate": rolling_update}}});
        let pools: Api<SandboxWarmPool> = self.0.api();
        let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
        pools.patch("pool", &params, &patch).await.unwrap();
    }

    /// Waits until old members have given way, and the pool gives this reason for whether it is stalled.
    async fn until_rolling_and_stalled_by(&self, reason: &str) {
        let look = async || {
            let pool: SandboxWarmPool = self.0.api().get("pool").await.unwrap();
            let status = pool.status.unwrap_or_default();
            let is_rolling = status.current_revision != status.update_revision
                && status.updated_replicas >= Some(1);
            let mut conditions = status.conditions.into_iter().flatten();
            let stalled = conditions.find(|one| one.type_ == "Stalled")?;
            (is_rolling && stalled.reason == reason).then_some(())
        };
        until(&format!("it is rolling, and Stalled is {reason}"), look).await;
    }

    /// What the template says now.
    async fn image(&self) -> String {
        let template: SandboxTemplate = self.0.api().get("one").await.unwrap();
        let pod = template.spec.blueprint.pod_template.spec.json();
        pod["containers"][0]["image"].as_str().unwrap().to_owned()
    }

    /// What the idle members that stay were made from.
    async fn member_images(&self) -> Vec<String> {
        let sandboxes: Api<Sandbox> = self.0.api();
        let members = sandboxes.list(&ListParams::default()).await.unwrap();
        let members = members.items.into_iter();
        let members = members.filter(|member| member.metadata.deletion_timestamp.is_none());
        let image = |member: Sandbox| {
            let pod = member.spec.blueprint.pod_template.spec.json().clone();
            pod["containers"][0]["image"].as_str().unwrap().to_owned()
        };
        members.map(image).collect()
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

/// Whether new members never come up or are known not to.
#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_that_misses_its_deadline_ends_with_an_error() {
    for (failure, known, why) in [
        ("never-ready", "AsExpected", "DeadlineExceeded"),
        ("pull", "ImagePull", "ImagePull"),
    ] {
        let world = World::with_pool(rolling(json!({"inPlace": "Never"}))).await;
        world.until_complete().await;
        let annotations = json!({"hollow.sandbar.dev/fail": failure});
        let metadata = json!({"metadata": {"annotations": annotations}});
        let patch = Patch::Merge(json!({"spec": {"podTemplate": metadata}}));
        let templates: Api<SandboxTemplate> = world.0.api();
        let params = PatchParams::default();
        templates.patch("one", &params, &patch).await.unwrap();
        world.until_rolling_and_stalled_by(known).await;
        world.change(json!({"progressDeadlineSeconds": 2})).await;
        let (code, said) = world.rollout(&["status", "pool", "--timeout", "60"]).await;
        assert_eq!(code, 1, "{said}");
        let last = said.lines().last().unwrap();
        assert!(
            last.contains(why) && last.contains("of 2 members"),
            "{said}"
        );
    }
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
async fn the_history_tells_who_runs_what() {
    let world = World::with_pool(json!({"type": "OnReplenish"})).await;
    world.until_complete().await;
    let claim = json!({
        "metadata": {"name": "mine"}, "spec": {"warmPoolRef": {"name": "pool"}},
    });
    world.0.create::<SandboxClaim>(claim).await;
    let shows = async |wanted: &[[&str; 4]]| {
        let look = async || {
            let (_, said) = world.rollout(&["history", "pool"]).await;
            let rows = said.lines().map(|line| {
                let row = line.split("  ").map(str::trim);
                row.filter(|cell| !cell.is_empty()).collect::<Vec<_>>()
            });
            // the template before and the age behind are not what this is about
            let rows = rows.map(|row| [row[0], row[2], row[3], row[4]].map(str::to_owned));
            let columns = ["REVISION", "IMAGES", "MEMBERS", "CLAIMED"];
            let wanted = [&[columns], wanted].concat();
            rows.eq(wanted).then_some(())
        };
        until(&format!("{wanted:?}"), look).await;
    };
    shows(&[["1 (now)", "app:1", "2", "1"]]).await;
    world.set_image("app:2").await;
    shows(&[["1", "app:1", "2", "1"], ["2 (now)", "app:2", "0", "0"]]).await;
    // what claims took is made up for by new ones
    let claim = json!({
        "metadata": {"name": "other"}, "spec": {"warmPoolRef": {"name": "pool"}},
    });
    world.0.create::<SandboxClaim>(claim).await;
    shows(&[["1", "app:1", "1", "2"], ["2 (now)", "app:2", "1", "0"]]).await;
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

#[tokio::test(flavor = "multi_thread")]
async fn nobody_gets_a_member_of_a_revision_that_is_left_as_bad() {
    let world = World::with_pool(rolling(json!({"inPlace": "Never"}))).await;
    world.until_stored(1, "app:1").await;
    world.set_image("app:2").await;
    world.until_complete().await;
    // by itself a paused pool would keep what it has
    let (code, said) = world.rollout(&["pause", "pool"]).await;
    assert_eq!(code, 0, "{said}");
    let (code, said) = world.rollout(&["undo", "pool", "--retire"]).await;
    assert!(
        code == 0 && said.contains("nobody gets a member of revision 2 (app:2) any more"),
        "{said}"
    );
    until("all members are of the revision before", async || {
        let images = world.member_images().await;
        (images == ["app:1", "app:1"]).then_some(())
    })
    .await;
    // going there again on purpose is no mistake
    let (code, said) = world.rollout(&["undo", "pool", "--retire"]).await;
    assert_eq!(code, 0, "{said}");
    until("all members are of the revision that was bad", async || {
        let images = world.member_images().await;
        (images == ["app:2", "app:2"]).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn others_may_write_while_a_pool_goes_back() {
    let world = World::with_pool(rolling(json!({"inPlace": "Never"}))).await;
    world.until_stored(1, "app:1").await;
    world.set_image("app:2").await;
    world.until_complete().await;
    let (pools, templates) = (
        world.0.api::<SandboxWarmPool>(),
        world.0.api::<SandboxTemplate>(),
    );
    let others = tokio::spawn(async move {
        for number in 0.. {
            let body = json!({"metadata": {"annotations": {"somebody": number.to_string()}}});
            let (params, body) = (PatchParams::default(), Patch::Merge(body));
            pools.patch("pool", &params, &body).await.unwrap();
            templates.patch("one", &params, &body).await.unwrap();
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    for image in ["app:1", "app:2", "app:1", "app:2"] {
        let (code, said) = world.rollout(&["undo", "pool", "--retire"]).await;
        assert_eq!(code, 0, "{said}");
        until("all members are of the revision before", async || {
            let images = world.member_images().await;
            (images == [image, image]).then_some(())
        })
        .await;
    }
    others.abort();
}

/// What a terminal is shown until it contains this, or until the program ends.
async fn shown(terminal: &mut pty_process::Pty, end: &str) -> String {
    let mut text = String::new();
    let mut buffer = [0; 4096];
    while !text.contains(end) {
        let read = tokio::time::timeout(PATIENCE, terminal.read(&mut buffer)).await;
        let read = read.unwrap_or_else(|_| panic!("never shown {end:?}: {text}"));
        // the end of a terminal is an error
        let Ok(read) = read else { break };
        text.push_str(&String::from_utf8_lossy(&buffer[..read]));
    }
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_is_shown_a_bar_that_grows() {
    let slowly = json!({"inPlace": "Never", "maxUnavailable": 1, "maxSurge": 0});
    let world = World::with_pool(rolling(slowly)).await;
    world.until_complete().await;
    world.rollout(&["pause", "pool"]).await;
    let hollow = &world.0.hollow;
    let slow = hollow.fail(Target::Image("app:2".to_owned()), Failure::NeverReady);
    world.set_image("app:2").await;

    let (mut terminal, theirs) = pty_process::open().unwrap();
    terminal.resize(pty_process::Size::new(24, 160)).unwrap();
    let mut child = pty_process::Command::new(env!("CARGO_BIN_EXE_sandbar"))
        .args(["rollout", "status", "pool", "--kubeconfig"])
        .arg(&world.0.kubeconfig)
        .env("TERM", "xterm")
        .spawn(theirs)
        .unwrap();
    let empty = shown(&mut terminal, "Paused").await;
    assert!(empty.contains("0/2 updated"), "{empty}");
    assert!(empty.contains(&"░".repeat(30)), "{empty}");
    world.rollout(&["resume", "pool"]).await;
    let half = shown(&mut terminal, "1/2 updated").await;
    assert!(half.contains(&"█".repeat(15)), "{half}");
    hollow.heal(slow);
    // the bar gives way to the last word
    let last = shown(&mut terminal, "nothing more").await;
    assert!(last.contains("2 of 2 updated"), "{last}");
    assert_eq!(child.wait().await.unwrap().code(), Some(0));
}
