//! A pod that an earlier process has started: what is left of it, and what is known of it by its status.

use std::{path::Path, sync::Arc, time::Duration};

use container::ContainerState;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use tokio::time::{sleep, timeout};

use super::{
    acts::{Home, moment},
    end,
    facts::{Health, Inmate, Made, Run, Shell},
    place::container_id,
    record,
    worker::{Care, container_of},
};
use crate::kubelet::resize::wanted;

const SIGTERM: i32 = 15;
/// A shim answers in moments, also while it starts a container; one that does not is ended.
const PATIENCE: Duration = Duration::from_secs(30);
/// Until it is asked again by who could not.
const PAUSE: Duration = Duration::from_millis(50);

impl Care {
    /// Takes up a pod where it is: its shim lives, or was ended, or never was.
    pub(super) async fn recover(&mut self, pod: &Pod) {
        let place = self.lodging.place.clone();
        if !place.shim().is_dir() {
            return;
        }
        let Ok(shim) = reach(&place.shim()).await else {
            return self.bury(pod).await;
        };
        let shim = Arc::new(shim);
        let record = record::shell(&place);
        let address = match self.lodging.site.ways.known(pod).await {
            Some(address) => Ok(Some(address)),
            None => {
                let namespace = shim.network_namespace();
                self.lodging.site.ways.attach(pod, &namespace).await
            }
        };
        // whoever made it did not come to an end with it, or made what is not made any more
        let is_fit = record.is_whole && record.is_plain != self.lodging.site.is_isolated;
        let Some(address) = address.ok().filter(|_| is_fit) else {
            let _ = shim.stop(&[], Duration::ZERO).await;
            return self.bury(pod).await;
        };
        // listened to before the containers are asked for, so that nothing is missed
        self.move_in(Home {
            shim: Arc::clone(&shim),
            address: self.lodging.site.address(address),
            number: record.number,
        });
        let Ok(Ok(states)) = timeout(PATIENCE, shim.containers()).await else {
            return self.bury(pod).await;
        };
        for state in states {
            self.remember(&state, pod);
            if state.exit.is_none() {
                self.runs(&state);
                self.watch(&state.name, pod);
            }
        }
        self.remember_unstarted(pod);
    }

    /// Nothing lives there any more.
    async fn bury(&mut self, pod: &Pod) {
        for state in end::settle(&self.lodging.place.shim()).await {
            self.remember(&state, pod);
        }
        self.remember_unstarted(pod);
        self.lodging.detach().await;
        self.vacate(Shell::Absent);
    }

    /// Runs that could not be started are known to nobody else.
    fn remember_unstarted(&mut self, pod: &Pod) {
        let spec = pod.spec.iter();
        let all = spec.flat_map(|spec| {
            spec.init_containers
                .iter()
                .flatten()
                .chain(&spec.containers)
        });
        for container in all {
            let Some(run) = record::unstarted(&self.lodging.place, &container.name) else {
                continue;
            };
            let inmate = self.facts.containers.entry(container.name.clone());
            let inmate = inmate.or_default();
            let last = inmate.run.as_ref().map(|last| last.made.attempt);
            if last.is_some_and(|last| last >= run.made.attempt) {
                continue;
            }
            let told = status_of(pod, &container.name).and_then(|told| told.last_state.clone());
            inmate.before = told.and_then(|last| last.terminated);
            inmate.run = Some(run);
        }
    }

    fn remember(&mut self, state: &ContainerState, pod: &Pod) {
        self.warn_of_refusals(state, pod);
        let told = status_of(pod, &state.name);
        let is_alive = state.exit.is_none() && self.home.is_some();
        let container = container_of(pod, &state.name);
        let run = Run {
            made: self.made(state, pod),
            started_at: moment(state.started_at),
            end: (!is_alive).then(|| end::of(state, container.as_ref(), &self.lodging.place)),
        };
        let id = container_id(&self.lodging.uid, &state.name, state.attempt);
        let is_told = told.is_some_and(|told| told.container_id.as_ref() == Some(&id));
        let health = told.filter(|_| is_told && is_alive).map(|told| Health {
            started: told.started == Some(true),
            ready: told.ready,
            lost: None,
        });
        let before = told.and_then(|told| {
            let state = if is_told {
                &told.last_state
            } else {
                &told.state
            };
            state.as_ref()?.terminated.clone()
        });
        // of several runs the last one comes last
        let inmate = Inmate {
            run: Some(run),
            before,
            health: health.unwrap_or_default(),
            ..Inmate::default()
        };
        self.facts.containers.insert(state.name.clone(), inmate);
    }

    fn made(&self, state: &ContainerState, pod: &Pod) -> Made {
        let recorded = record::run(&self.lodging.place, &state.name, state.attempt);
        recorded.unwrap_or_else(|| {
            let container = container_of(pod, &state.name).unwrap_or_default();
            let told = status_of(pod, &state.name);
            Made {
                attempt: state.attempt,
                shell: record::shell(&self.lodging.place).number,
                image: container.image.clone().unwrap_or_default(),
                image_id: told.map(|told| told.image_id.clone()).unwrap_or_default(),
                resources: wanted(&container),
                stop_signal: SIGTERM,
                crashes: 0,
            }
        })
    }
}

/// Asks for the shim until it answers or is known to be gone: that nobody could ask says nothing about the pod.
pub(super) async fn reach(dir: &Path) -> Result<container::Pod, container::Error> {
    let asked = async {
        loop {
            match container::Pod::connect(dir).await {
                Err(container::Error::Connection(_)) => sleep(PAUSE).await,
                answer => return answer,
            }
        }
    };
    let answer = timeout(PATIENCE, asked).await;
    answer.unwrap_or_else(|_| Err(container::Error::NobodyHome(dir.to_owned())))
}

fn status_of<'a>(pod: &'a Pod, name: &str) -> Option<&'a ContainerStatus> {
    let status = pod.status.as_ref()?;
    let inits = status.init_container_statuses.iter().flatten();
    let mut all = inits.chain(status.container_statuses.iter().flatten());
    all.find(|status| status.name == name)
}
