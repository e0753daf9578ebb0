//! Candidates for one lease, and for two, on the embedded API.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/clock.rs"]
mod moved;

use std::{sync::Arc, time::Duration};

use controller::{
    clock::Clock,
    lease::{Candidate, Role, Terms},
};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::{Api, Client};
use local::{
    Cluster, clock,
    fault::{Fault, Faults, Refusal, every_point},
};
use tokio::{
    sync::{oneshot, watch},
    task::JoinHandle,
};

const NAMESPACE: &str = "default";
const NAME: &str = "one.sandbar.dev";
const OTHER: &str = "two.sandbar.dev";
const SECOND: Duration = Duration::from_secs(1);

struct Scene {
    cluster: Cluster,
    clock: clock::Clock,
}

impl Scene {
    async fn open() -> Self {
        Self {
            cluster: Cluster::open(local::Options::ephemeral()).await.unwrap(),
            clock: clock::Clock::manual("2026-01-31T12:00:00Z".parse().unwrap()),
        }
    }

    fn enter(&self, name: &str) -> Player {
        self.enter_with(name, &[NAME], &Faults::none())
    }

    fn enter_with(&self, name: &str, leases: &[&str], faults: &Faults) -> Player {
        let client = faults.client(self.cluster.client());
        let clock = moved::of(&self.clock);
        Player::start(client, clock, name, leases, Terms::default())
    }

    async fn lease(&self, name: &str) -> LeaseSpec {
        let api: Api<Lease> = Api::namespaced(self.cluster.client(), NAMESPACE);
        let lease = api.get_opt(name).await.unwrap();
        lease.and_then(|lease| lease.spec).unwrap_or_default()
    }

    async fn holder(&self, name: &str) -> String {
        self.lease(name).await.holder_identity.unwrap_or_default()
    }

    /// Lets time pass in small steps, at each of which no more than one leads.
    async fn pass(&self, seconds: u64, players: &[&Player]) {
        for _ in 0..seconds * 2 {
            self.clock.advance(SECOND / 2).await;
            let leading = players.iter().filter(|player| player.leads()).count();
            assert!(leading <= 1, "{leading} lead at {}", self.clock.now());
        }
    }

    /// How many seconds pass until somebody leads.
    async fn until_led_by(&self, player: &Player, players: &[&Player]) -> u64 {
        for second in 0..60 {
            if player.leads() {
                return second;
            }
            self.pass(1, players).await;
        }
        panic!("never led: {:?}", player.role.borrow());
    }
}

struct Player {
    role: Arc<watch::Sender<Role>>,
    task: JoinHandle<()>,
    stop: Option<oneshot::Sender<()>>,
}

impl Player {
    fn start(client: Client, clock: Clock, name: &str, leases: &[&str], terms: Terms) -> Self {
        let leases = leases
            .iter()
            .map(|lease| (NAMESPACE.to_owned(), (*lease).to_owned()));
        let candidate = Candidate::new(&client, clock, leases, name.to_owned(), terms);
        let role = Arc::new(watch::Sender::new(Role::Unknown(String::new())));
        let (stop, stopped) = oneshot::channel();
        let told = Arc::clone(&role);
        let task = tokio::spawn(async move {
            let stopped = async {
                let _ = stopped.await;
            };
            candidate.run(&told, stopped).await;
        });
        Self {
            role,
            task,
            stop: Some(stop),
        }
    }

    fn leads(&self) -> bool {
        !self.task.is_finished() && *self.role.borrow() == Role::Leading
    }

    async fn kill(self) {
        self.task.abort();
        let _ = self.task.await;
    }

    async fn leave(mut self) {
        drop(self.stop.take());
        self.task.await.unwrap();
    }

    async fn until(&self, is: impl Fn(&Role) -> bool) -> Role {
        let mut role = self.role.subscribe();
        let seen = tokio::time::timeout(SECOND * 60, role.wait_for(is)).await;
        seen.unwrap().unwrap().clone()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_leads_and_the_next_takes_over_in_time_after_a_kill() {
    let scene = Scene::open().await;
    let first = scene.enter("first");
    first.until(|role| *role == Role::Leading).await;
    let second = scene.enter("second");
    scene.pass(60, &[&first, &second]).await;
    assert!(first.leads());
    let standby = Role::Standby {
        holder: Some("first".to_owned()),
    };
    assert_eq!(*second.role.borrow(), standby);
    assert_eq!(scene.lease(NAME).await.lease_transitions, Some(0));
    first.kill().await;
    let took = scene.until_led_by(&second, &[&second]).await;
    // it lasts 15 s from when the second saw it renewed, which is two seconds later if the watch was slow
    assert!((12..=17).contains(&took), "after {took} s");
    let lease = scene.lease(NAME).await;
    assert_eq!(lease.holder_identity.as_deref(), Some("second"));
    assert_eq!(lease.lease_transitions, Some(1));
    assert_eq!(lease.lease_duration_seconds, Some(15));
    second.leave().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_is_released_is_taken_at_once() {
    let scene = Scene::open().await;
    let first = scene.enter("first");
    first.until(|role| *role == Role::Leading).await;
    let second = scene.enter("second");
    scene.pass(5, &[&first, &second]).await;
    first.leave().await;
    // without any time passing: it watches
    second.until(|role| *role == Role::Leading).await;
    assert_eq!(scene.lease(NAME).await.lease_transitions, Some(1));
    second.leave().await;
    let lease = scene.lease(NAME).await;
    assert_eq!(lease.holder_identity.as_deref(), Some(""));
    assert_eq!(lease.lease_duration_seconds, Some(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn who_serves_two_families_takes_both_leases_or_none() {
    let scene = Scene::open().await;
    let of_two = scene.enter_with("two", &[OTHER], &Faults::none());
    of_two.until(|role| *role == Role::Leading).await;
    let both = scene.enter_with("both", &[NAME, OTHER], &Faults::none());
    scene.pass(40, &[&both]).await;
    assert!(!both.leads());
    assert_eq!(scene.holder(NAME).await, "", "kept from nobody");
    of_two.leave().await;
    both.until(|role| *role == Role::Leading).await;
    assert_eq!(
        [scene.holder(NAME).await, scene.holder(OTHER).await],
        ["both", "both"]
    );
    both.leave().await;
    assert_eq!(
        [scene.holder(NAME).await, scene.holder(OTHER).await],
        ["", ""]
    );
}

/// Whatever fails at whatever request of the first: never do two lead, in the end one does, and when that leaves, nobody
/// holds the lease.
#[tokio::test(flavor = "multi_thread")]
async fn no_single_fault_makes_two_lead_or_none() {
    let faults = [
        Fault::DieBefore,
        Fault::DieAfter,
        Fault::Refuse(Refusal::Conflict),
        Fault::Refuse(Refusal::TooManyRequests),
        Fault::Refuse(Refusal::ServerError),
        Fault::LoseAnswer,
    ];
    let report = every_point(&faults, async |faults: Faults| {
        let scene = Scene::open().await;
        let first = scene.enter_with("first", &[NAME], &faults);
        let second = scene.enter("second");
        let death = async {
            faults.stopped().await;
            first.task.abort();
            while !first.task.is_finished() {
                tokio::task::yield_now().await;
            }
        };
        let players = [&first, &second];
        let has_begun = |role: &Role| *role != Role::Unknown(String::new());
        let play = async {
            first.until(has_begun).await;
            second.until(has_begun).await;
            scene.pass(18, &players).await;
        };
        tokio::select! {
            () = play => {}
            () = death => {}
        }
        if !first.leads() {
            second.until(has_begun).await;
            scene.until_led_by(&second, &players).await;
        }
        assert!(
            first.leads() || second.leads(),
            "{:?} {:?}",
            first.role.borrow(),
            second.role.borrow()
        );
        first.leave_or_die(&faults).await;
        // what could not be released runs out
        scene.until_led_by(&second, &[&second]).await;
        second.leave().await;
        assert_eq!(scene.holder(NAME).await, "");
    })
    .await;
    let points: usize = report.struck.values().sum();
    println!("{points} faults");
    assert!(points > 50, "{:?}", report.struck);
}

impl Player {
    async fn leave_or_die(mut self, faults: &Faults) {
        drop(self.stop.take());
        tokio::select! {
            biased;
            _ = &mut self.task => {}
            () = faults.stopped() => self.kill().await,
        }
    }
}

/// A leader whose requests get no answers stops before another begins.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_without_answers_gives_up_in_time() {
    let cluster = Cluster::open(local::Options::ephemeral()).await.unwrap();
    let terms = Terms {
        lasts: SECOND * 10,
        gives_up: SECOND * 3,
        renews: Duration::from_millis(200),
    };
    // the list and the watch, a look, a creation, and one renewal; from then on it hears nothing
    let faults = Faults::at(5, Fault::DieBefore);
    let client = faults.client(cluster.client());
    let first = Player::start(client, Clock::steady(), "first", &[NAME], terms);
    first.until(|role| *role == Role::Leading).await;
    let second = Player::start(cluster.client(), Clock::steady(), "second", &[NAME], terms);
    faults.stopped().await;
    first.until(|role| *role != Role::Leading).await;
    assert!(!second.leads());
    second.until(|role| *role == Role::Leading).await;
    assert!(!first.leads());
    first.kill().await;
    second.leave().await;
}
