//! Pods and containers that are over, or not yet anything, and what is told of them.

use serde_json::json;

use super::{Act, Busy, Facts, Shell, World, simple, with_init};

#[test]
fn a_pod_that_was_told_to_be_over_ends_although_it_still_runs() {
    for phase in ["Failed", "Succeeded"] {
        let mut world = simple();
        world.settle();
        world.change("/status/phase", json!(phase));
        assert_eq!(world.settle(), ["end"]);
        assert_eq!(world.phase(), phase);
        world.facts = Facts::default();
        assert_eq!(world.settle(), Vec::<String>::new(), "nor is it made again");
    }
}

#[test]
fn a_pod_that_only_its_finalizers_keep_is_not_removed_again() {
    let mut world = simple();
    world.settle();
    world.delete(30);
    world.settle();
    assert_eq!(world.tell(), Some(Act::Remove));
    world.delete(0);
    assert_eq!(world.tell(), None);
}

#[test]
fn the_containers_of_a_deleted_pod_are_told_of_until_all_have_ended() {
    let mut world = World::of(json!({"containers": [
        {"name": "a", "image": "one"},
        {"name": "b", "image": "one"},
    ]}));
    world.settle();
    // whoever ends for the second time would have to wait for its next start
    world.exit("a", 1);
    world.settle();
    world.delete(30);
    world.facts.shell = Shell::Ending;
    world.tell();
    assert!(world.holds("Ready") && world.holds("PodReadyToStartContainers"));
    world.exit("a", 3);
    world.tell();
    let ended = world.container("a").state.clone().unwrap().terminated;
    let ended = ended.unwrap();
    assert_eq!(
        (ended.exit_code, ended.reason.as_deref()),
        (3, Some("Error"))
    );
    assert!(
        world
            .container("b")
            .state
            .clone()
            .unwrap()
            .running
            .is_some()
    );
    assert!(!world.holds("Ready"));
    world.exit("b", 0);
    world.tell();
    assert_eq!(world.phase(), "Running", "until what it lives in has ended");
    world.facts.shell = Shell::Ended;
    world.tell();
    assert_eq!(world.phase(), "Failed");
    assert_eq!(world.tell(), Some(Act::Remove));
}

#[test]
fn a_container_that_never_was_is_not_told_to_have_ended_with_its_pod() {
    let mut world = simple();
    world.delete(30);
    world.tell();
    assert_eq!(
        (world.phase(), world.waits_for("a")),
        ("Failed", "ContainerCreating")
    );
}

#[test]
fn one_of_which_nothing_is_known_has_ended_with_its_pod_if_another_ran() {
    let mut world = World::of(json!({"containers": [
        {"name": "a", "image": "one"},
        {"name": "b", "image": "one"},
    ]}));
    world.settle();
    world.facts.containers.remove("b");
    world.delete(30);
    world.settle();
    let state = world.container("b").state.clone().unwrap();
    let ended = state.terminated.unwrap();
    assert_eq!(
        (ended.exit_code, ended.reason.as_deref()),
        (137, Some("ContainerStatusUnknown"))
    );
}

#[test]
fn an_init_container_is_ready_when_it_has_done_its_work_and_not_before() {
    let mut world = with_init();
    world.settle();
    assert!(!world.container("i").ready);
    world.exit("i", 1);
    world.settle();
    assert!(!world.container("i").ready);
    world.exit("i", 0);
    world.settle();
    assert!(world.container("i").ready);
    world.exit("a", 0);
    world.tell();
    assert!(!world.container("a").ready, "no app is after its end");
}

#[test]
fn an_init_container_that_is_forgotten_does_not_run_again_after_the_others_have_begun() {
    let mut world = with_init();
    world.settle();
    world.exit("i", 0);
    world.settle();
    world.facts.containers.remove("i");
    assert_eq!(world.settle(), Vec::<String>::new());
    world.exit("a", 1);
    assert_eq!(world.settle(), ["start a"]);
}

#[test]
fn a_container_that_is_started_with_another_image_does_not_wait_for_its_back_off() {
    let mut world = simple();
    world.settle();
    world.exit("a", 1);
    world.settle();
    world.exit("a", 1);
    world.tell();
    assert_eq!(world.waits_for("a"), "CrashLoopBackOff");
    world.change("/spec/containers/0/image", json!("two"));
    world.facts.containers.get_mut("a").unwrap().busy = Some(Busy::Starting);
    world.tell();
    let state = world.container("a").state.clone().unwrap();
    assert_eq!(state.waiting, None);
    assert_eq!(state.terminated.unwrap().exit_code, 1);
}

#[test]
fn a_resize_to_more_than_the_machine_has_is_infeasible_until_less_is_asked_for() {
    let resources = |cpu| json!({"limits": {"cpu": cpu}, "requests": {"cpu": cpu}});
    for policy in ["NotRequired", "RestartContainer"] {
        let mut world = World::of(json!({"containers": [{
            "name": "a", "image": "one", "resources": resources("1"),
            "resizePolicy": [{"resourceName": "cpu", "restartPolicy": policy}],
        }]}));
        world.settle();
        world.change("/spec/containers/0/resources", resources("5"));
        assert_eq!(world.settle(), Vec::<String>::new());
        let mut conditions = world.status().conditions.iter().flatten();
        let pending = conditions.find(|one| one.type_ == "PodResizePending");
        let pending = pending.unwrap();
        let message =
            "Node didn't have enough capacity: cpu, requested: 5000, capacity: 4000".to_owned();
        assert_eq!(
            (pending.reason.as_deref(), &pending.message),
            (Some("Infeasible"), &Some(message))
        );
        world.exit("a", 1);
        assert_eq!(world.settle(), ["start a"], "with what it had");
        let cpu = |world: &World| {
            let allocated = world.container("a").allocated_resources.clone();
            allocated.unwrap()["cpu"].0.clone()
        };
        assert_eq!(cpu(&world), "1");
        world.change("/spec/containers/0/resources", resources("4"));
        assert!(!world.settle().is_empty());
        assert_eq!(cpu(&world), "4");
        assert!(!world.holds("PodResizePending"));
    }
}

#[test]
fn a_resize_that_failed_is_deferred_until_it_is_tried_again() {
    let resources = |cpu| json!({"limits": {"cpu": cpu}, "requests": {"cpu": cpu}});
    let mut world = World::of(json!({"containers": [{
        "name": "a", "image": "one", "resources": resources("1"),
    }]}));
    world.settle();
    world.change("/spec/containers/0/resources", resources("2"));
    world.fail("a", "ResizeError", 1);
    world.tell();
    assert!(world.holds("PodResizePending") && !world.holds("PodResizeInProgress"));
    let mut conditions = world.status().conditions.iter().flatten();
    let pending = conditions.find(|one| one.type_ == "PodResizePending");
    assert_eq!(pending.unwrap().reason.as_deref(), Some("Deferred"));
    assert_eq!(world.next().steps, []);
    assert_eq!(world.pass(1).settle(), ["resize a"]);
}
