//! What becomes known of a pod: by what was done about it, by its shim, by its probes.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use container::{ContainerState, Event};
use k8s_openapi::api::core::v1::Pod;

use super::{Care, Done, HUSH, MEASURE, REFRESH, RESPITE, container_of};
use crate::{
    clock::after,
    node::{
        acts::Home,
        end,
        facts::{End, Health, Inmate, Run, Setback, Shell},
        greed,
        probes::{self, Finding},
        storage,
        tenants::Tenant,
        trouble::Trouble,
        volumes,
    },
};

impl Care {
    pub(super) fn fold(&mut self, done: Done, pod: &Pod) {
        match done {
            Done::Made(Ok(home)) => {
                self.move_in(home);
                self.warn_of_no_isolation(pod);
                self.hush_until = Some(after(self.lodging.site.clock.now(), HUSH));
            }
            Done::Made(Err(trouble)) => {
                self.failures += 1;
                self.warn(pod, &trouble);
                self.facts.shell = Shell::Broken(self.setback(trouble, self.failures));
            }
            Done::Started(name, Ok((run, hook))) => {
                self.started(&name, run, pod);
                if let Some(trouble) = hook {
                    self.warn(pod, &trouble);
                }
            }
            Done::Started(name, Err(trouble)) => self.set_back(&name, trouble, pod),
            Done::Stopped(name) => self.busy(&name, None),
            Done::Resized(name, Ok(made)) => {
                self.busy(&name, None);
                if let Some(inmate) = self.facts.containers.get_mut(&name)
                    && let Some(run) = &mut inmate.run
                {
                    run.made = made;
                    inmate.setback = None;
                }
            }
            Done::Resized(name, Err(trouble)) => {
                let inmate = self.facts.containers.get(&name);
                match inmate.and_then(Inmate::alive) {
                    Some(_) => self.set_back(&name, trouble, pod),
                    None => self.busy(&name, None),
                }
            }
            Done::Ended(states) => {
                for state in states {
                    self.ended(&state, pod);
                }
                self.vacate(Shell::Ended);
            }
            Done::Measured(exceeded, took) => self.measured(exceeded, took, pod),
            Done::Refreshed(refreshed) => {
                if let Err(trouble) = refreshed {
                    self.warn(pod, &trouble);
                }
            }
        }
    }

    fn measured(&mut self, exceeded: Option<String>, took: Duration, pod: &Pod) {
        // one that ends anyway ends as it is
        if self.home.is_none() || self.by.borrow().is_some() {
            return;
        }
        match exceeded {
            Some(message) => {
                let events = &self.lodging.site.events;
                events.warn(pod, "Evicted", message.clone());
                self.facts.evicted = Some(message);
            }
            None => {
                let now = self.lodging.site.clock.now();
                let pause = took.saturating_mul(RESPITE).max(MEASURE);
                self.measure_at = Some(after(now, pause));
            }
        }
    }

    /// There is something to live in.
    pub(in crate::node) fn move_in(&mut self, home: Home) {
        self.failures = 0;
        self.facts.shell = Shell::Whole {
            number: home.number,
            ip: home.address.map(|address| address.to_string()),
        };
        self.events = Some(home.shim.events());
        self.lodging.site.tenants.set(
            &self.lodging.uid,
            Tenant {
                place: self.lodging.place.clone(),
                pod: Some(Arc::clone(&home.shim)),
                running: self.running.subscribe(),
            },
        );
        self.home = Some(home);
        let pod = &self.wishes.borrow().pod;
        let now = self.lodging.site.clock.now();
        self.refresh_at = volumes::is_refreshable(pod).then(|| after(now, REFRESH));
        let memory = self.lodging.site.memory(&self.lodging.uid);
        let is_limited = !storage::allowances(pod, &self.lodging.place, &memory).is_empty();
        self.measure_at = is_limited.then(|| after(now, MEASURE));
    }

    /// There is nothing to live in any more.
    pub(in crate::node) fn vacate(&mut self, shell: Shell) {
        self.facts.shell = shell;
        self.home = None;
        self.events = None;
        self.refresh_at = None;
        self.measure_at = None;
        self.watched.clear();
        self.running.send_replace(BTreeMap::new());
        let now = self.lodging.site.clock.now();
        for inmate in self.facts.containers.values_mut() {
            if let Some(run) = &mut inmate.run {
                run.end.get_or_insert_with(|| end::unseen(now));
            }
            inmate
                .setback
                .take_if(|setback| is_of_shell(&setback.trouble));
        }
        self.lodging.site.tenants.set(
            &self.lodging.uid,
            Tenant {
                place: self.lodging.place.clone(),
                pod: None,
                running: self.running.subscribe(),
            },
        );
    }

    fn started(&mut self, name: &str, run: Run, pod: &Pod) {
        let attempt = run.made.attempt;
        let inmate = self.facts.containers.entry(name.to_owned()).or_default();
        inmate.busy = None;
        inmate.setback = None;
        inmate.health = Health::default();
        if let Some(last) = inmate.run.replace(run) {
            let before = last.terminated(&self.lodging.uid, name);
            inmate.before = before.or(inmate.before.take());
        }
        let early = self.early.remove(&(name.to_owned(), attempt));
        self.early.retain(|(other, _), _| other != name);
        match early {
            Some(state) => self.ended(&state, pod),
            None if self.home.is_none() => self.lost(name),
            None => self.watch(name, pod),
        }
    }

    /// What the container lived in was gone before its start was told.
    fn lost(&mut self, name: &str) {
        let now = self.lodging.site.clock.now();
        let inmate = self.facts.containers.get_mut(name);
        if let Some(run) = inmate.and_then(|inmate| inmate.run.as_mut()) {
            run.end.get_or_insert_with(|| end::unseen(now));
        }
    }

    /// Begins to ask a container how it is.
    pub(in crate::node) fn watch(&mut self, name: &str, pod: &Pod) {
        let (Some(container), Some(home)) = (container_of(pod, name), self.home.clone()) else {
            return;
        };
        let target = self.target(pod, name, &home);
        let Some(inmate) = self.facts.containers.get_mut(name) else {
            return;
        };
        let Some(run) = inmate.alive() else { return };
        let (attempt, started_at) = (run.made.attempt, run.started_at);
        inmate.health.started |= container.startup_probe.is_none();
        inmate.health.ready |= inmate.health.started && container.readiness_probe.is_none();
        let (find, name) = (self.find.clone(), name.to_owned());
        let has_probes = [
            &container.startup_probe,
            &container.readiness_probe,
            &container.liveness_probe,
        ];
        if has_probes.iter().any(|probe| probe.is_some()) {
            let told = name.clone();
            let say = move |finding| {
                let _ = find.send((told.clone(), attempt, finding));
            };
            let watching = probes::watch(&container, target, started_at, say);
            self.watched.insert(name, watching);
        }
    }

    pub(super) fn found(&mut self, name: &str, attempt: u32, finding: Finding, pod: &Pod) {
        let Some(inmate) = self.facts.containers.get_mut(name) else {
            return;
        };
        if inmate.alive().is_none_or(|run| run.made.attempt != attempt) {
            return;
        }
        match finding {
            Finding::Started => {
                let container = container_of(pod, name);
                inmate.health.started = true;
                inmate.health.ready |= container.is_some_and(|one| one.readiness_probe.is_none());
            }
            Finding::Ready(ready) => inmate.health.ready = ready,
            Finding::Unhealthy {
                message,
                kill,
                grace,
                ..
            } => {
                if kill {
                    inmate.health.lost = Some(grace);
                    inmate.health.ready = false;
                }
                self.lodging.site.events.warn(pod, "Unhealthy", message);
            }
        }
    }

    fn setback(&self, trouble: Trouble, times: u32) -> Setback {
        Setback {
            trouble,
            at: self.lodging.site.clock.now(),
            times,
        }
    }

    fn set_back(&mut self, name: &str, trouble: Trouble, pod: &Pod) {
        let is_ending = self.by.borrow().is_some();
        if !is_ending {
            self.warn(pod, &trouble);
        }
        let is_past = self.home.is_none() && is_of_shell(&trouble);
        let inmate = self.facts.containers.entry(name.to_owned()).or_default();
        inmate.busy = None;
        let times = inmate.setback.as_ref().map_or(1, |before| before.times + 1);
        let setback = self.setback(trouble, times);
        if !is_ending
            && !is_past
            && let Some(inmate) = self.facts.containers.get_mut(name)
        {
            inmate.setback = Some(setback);
        }
    }

    fn warn(&self, pod: &Pod, trouble: &Trouble) {
        let reason = match trouble.reason {
            "ContainerCreating" => "FailedMount",
            "FailedCreatePodSandBox" => "FailedCreatePodSandBox",
            "PostStartHookError" => "FailedPostStartHook",
            _ => "Failed",
        };
        let message = trouble.message.clone();
        self.lodging.site.events.warn(pod, reason, message);
    }

    fn warn_of_no_isolation(&self, pod: &Pod) {
        let site = &self.lodging.site;
        if !site.is_isolated {
            let message = "The pod is not isolated: its containers are plain processes of the user that sandbar runs as, \
                with the files, the network and the rights of that user";
            site.events.warn(pod, "NoIsolation", message.to_owned());
        }
    }

    pub(in crate::node) fn warn_of_refusals(&self, ended: &ContainerState, pod: &Pod) {
        if ended
            .exit
            .as_ref()
            .is_some_and(|exit| exit.processes_refused)
        {
            greed::warn_of_processes(&self.lodging.site.events, pod, &ended.name);
        }
    }

    pub(super) async fn happened(&mut self, event: Option<Event>, pod: &Pod) {
        match event {
            Some(Event::Started(state)) => self.runs(&state),
            Some(Event::Exited(state)) => self.ended(&state, pod),
            Some(Event::Missed) => self.catch_up(pod).await,
            // a pod that ends takes its shim along
            None if matches!(self.facts.shell, Shell::Ending) => self.events = None,
            None => {
                for state in end::settle(&self.lodging.place.shim()).await {
                    self.ended(&state, pod);
                }
                self.lodging.detach().await;
                self.vacate(Shell::Absent);
            }
        }
    }

    async fn catch_up(&mut self, pod: &Pod) {
        let Some(home) = self.home.clone() else {
            return;
        };
        for state in home.shim.containers().await.unwrap_or_default() {
            match state.exit {
                Some(_) => self.ended(&state, pod),
                None => self.runs(&state),
            }
        }
    }

    pub(in crate::node) fn runs(&self, state: &ContainerState) {
        let (name, attempt) = (state.name.clone(), state.attempt);
        self.running.send_modify(|running| {
            running.insert(name, attempt);
        });
    }

    fn ended(&mut self, state: &ContainerState, pod: &Pod) {
        let (name, attempt) = (&state.name, state.attempt);
        self.running.send_if_modified(|running| {
            let is_it = running.get(name) == Some(&attempt);
            if is_it {
                running.remove(name);
            }
            is_it
        });
        let container = container_of(pod, name);
        let end: End = end::of(state, container.as_ref(), &self.lodging.place);
        self.warn_of_refusals(state, pod);
        let inmate = self.facts.containers.entry(name.clone()).or_default();
        match &mut inmate.run {
            Some(run) if run.made.attempt == attempt => {
                run.end.get_or_insert(end);
                inmate.health = Health::default();
                inmate.setback = None;
                self.watched.remove(name);
            }
            Some(run) if run.made.attempt > attempt => {}
            _ => drop(self.early.insert((name.clone(), attempt), state.clone())),
        }
    }
}

/// Whether it happened to what the container lives in, or within it: what comes after that has nothing to do with it.
fn is_of_shell(trouble: &Trouble) -> bool {
    trouble.reason == "RunContainerError"
}
