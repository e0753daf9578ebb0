//! Who acts: whoever holds the leases of all the families it serves.
//!
//! The leases are those of the controllers that served these families before, so that during an image swap never both
//! act. A holder writes its lease anew every so often and stops acting when it has not managed to for a while; others wait
//! longer than that from when *they* saw the last change, because nobody knows how clocks elsewhere go.

use std::{pin::pin, sync::Arc, time::Duration};

use futures::{
    StreamExt as _,
    future::{Either, pending},
};
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
    jiff::Timestamp,
};
use kube::{
    Api, Client,
    api::PostParams,
    runtime::watcher::{self, watcher},
};
use tokio::{
    sync::{Notify, watch},
    task::JoinSet,
};

use crate::{
    clock::{Clock, after},
    queue::retry_after,
    write::Failure,
};

/// The lease of a family, and where it is if nobody says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    pub name: &'static str,
    pub namespace: &'static str,
}

pub const SIGS: Known = Known {
    name: "a3317529.agent-sandbox.x-k8s.io",
    namespace: "agent-sandbox-system",
};

pub const KRUISE: Known = Known {
    name: "f57b9a68.kruise.io",
    namespace: "sandbox-system",
};

/// How long things take. All holders of a lease must agree on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Others take the lease when they have seen no change of it for so long.
    pub lasts: Duration,
    /// A holder that has not renewed for so long acts no more. Shorter than the lease lasts.
    pub gives_up: Duration,
    /// How often a holder renews and others look.
    pub renews: Duration,
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            lasts: Duration::from_secs(15),
            gives_up: Duration::from_secs(10),
            renews: Duration::from_secs(2),
        }
    }
}

/// What a candidate is at the moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// The leases cannot be read or written, and why.
    Unknown(String),
    /// Somebody else leads, if anybody does.
    Standby {
        holder: Option<String>,
    },
    Leading,
}

/// How a lease stands to a candidate.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Standing {
    Free,
    Mine,
    Taken { holder: String, until: Timestamp },
}

/// A lease as it was read or written last.
struct Seen {
    lease: Lease,
    /// When this candidate first saw what it says.
    since: Timestamp,
}

/// How the lease stands now. What it says of times is its holder's; only its own eyes count.
fn evaluate(seen: Option<&Seen>, me: &str, now: Timestamp) -> Standing {
    let Some(Seen { lease, since }) = seen else {
        return Standing::Free;
    };
    let spec = lease.spec.clone().unwrap_or_default();
    let holder = spec.holder_identity.unwrap_or_default();
    let seconds = u64::try_from(spec.lease_duration_seconds.unwrap_or_default());
    let until = after(*since, Duration::from_secs(seconds.unwrap_or_default()));
    match holder.as_str() {
        "" => Standing::Free,
        holder if holder == me => Standing::Mine,
        _ if until <= now => Standing::Free,
        _ => Standing::Taken { holder, until },
    }
}

/// What to do about all leases.
#[derive(Debug, PartialEq, Eq)]
enum Act {
    /// Take or renew each.
    Take,
    /// Some are somebody else's: give back the others, so that nobody waits for who waits itself.
    StepBack,
    Wait {
        holder: String,
        until: Timestamp,
    },
}

fn decide(standings: &[Standing]) -> Act {
    let taken = standings.iter().find_map(|standing| match standing {
        Standing::Taken { holder, until } => Some((holder.clone(), *until)),
        Standing::Free | Standing::Mine => None,
    });
    match taken {
        None => Act::Take,
        Some(_) if standings.contains(&Standing::Mine) => Act::StepBack,
        Some((holder, until)) => Act::Wait { holder, until },
    }
}

/// The lease as its holder writes it.
fn held(old: Option<&Lease>, me: &str, terms: &Terms, now: Timestamp) -> LeaseSpec {
    let old = old.and_then(|lease| lease.spec.clone());
    let is_new = old.is_none();
    let mut spec = old.unwrap_or_default();
    let is_mine = spec.holder_identity.as_deref() == Some(me);
    if !is_mine {
        let transitions = spec.lease_transitions.unwrap_or_default();
        let moves = i32::from(!is_new);
        spec.lease_transitions = Some(transitions.saturating_add(moves));
        spec.acquire_time = Some(MicroTime(now));
    }
    spec.holder_identity = Some(me.to_owned());
    spec.lease_duration_seconds = i32::try_from(terms.lasts.as_secs().max(1)).ok();
    spec.renew_time = Some(MicroTime(now));
    spec
}

/// The lease as its holder leaves it.
fn released(lease: &Lease, now: Timestamp) -> LeaseSpec {
    LeaseSpec {
        holder_identity: Some(String::new()),
        lease_duration_seconds: Some(1),
        acquire_time: Some(MicroTime(now)),
        renew_time: Some(MicroTime(now)),
        ..lease.spec.clone().unwrap_or_default()
    }
}

/// One lease, and what is known of it.
struct Place {
    api: Api<Lease>,
    namespace: String,
    name: String,
    seen: Option<Seen>,
    /// What is known need not be so any more.
    is_doubtful: bool,
}

impl Place {
    async fn read(&mut self, now: Timestamp) -> Result<(), Failure> {
        let lease = match self.api.get_opt(&self.name).await {
            Ok(lease) => lease,
            Err(error) => return Err(error.into()),
        };
        self.seen = lease.map(|lease| {
            let old = self.seen.take();
            let says_the_same = |old: &Seen| old.lease.spec == lease.spec;
            let since = old.filter(says_the_same).map_or(now, |old| old.since);
            Seen { lease, since }
        });
        self.is_doubtful = false;
        Ok(())
    }

    /// Replaces exactly what was seen, or makes what was not there.
    async fn write(&mut self, spec: LeaseSpec, now: Timestamp) -> Result<(), Failure> {
        self.is_doubtful = true;
        let params = PostParams::default();
        let lease = match &self.seen {
            Some(Seen { lease, .. }) => {
                let mut lease = lease.clone();
                lease.spec = Some(spec);
                self.api.replace(&self.name, &params, &lease).await?
            }
            None => {
                let metadata = ObjectMeta {
                    name: Some(self.name.clone()),
                    namespace: Some(self.namespace.clone()),
                    ..ObjectMeta::default()
                };
                let spec = Some(spec);
                self.api.create(&params, &Lease { metadata, spec }).await?
            }
        };
        self.seen = Some(Seen { lease, since: now });
        self.is_doubtful = false;
        Ok(())
    }
}

/// A candidate for all of some leases together.
pub struct Candidate {
    places: Vec<Place>,
    me: String,
    terms: Terms,
    clock: Clock,
    /// Until when it leads if it cannot renew.
    leads_until: Option<Timestamp>,
    /// When it last did what was to be done about the leases.
    looked: Option<Timestamp>,
    holder: Option<(String, Timestamp)>,
}

impl Candidate {
    /// For the leases of these namespaces and names, under an identity that nobody else has.
    pub fn new(
        client: &Client,
        clock: Clock,
        leases: impl IntoIterator<Item = (String, String)>,
        identity: String,
        terms: Terms,
    ) -> Self {
        let place = |(namespace, name): (String, String)| Place {
            api: Api::namespaced(client.clone(), &namespace),
            namespace,
            name,
            seen: None,
            is_doubtful: true,
        };
        Self {
            places: leases.into_iter().map(place).collect(),
            me: identity,
            terms,
            clock,
            leads_until: None,
            looked: None,
            holder: None,
        }
    }

    /// Leads whenever it can, until told to stop, and then lets go of what it holds. Whoever acts for it must have
    /// stopped before that.
    pub async fn run(mut self, role: &watch::Sender<Role>, stop: impl Future<Output = ()>) {
        let mut stop = pin!(stop);
        let changed = Arc::new(Notify::new());
        let mut watches = JoinSet::new();
        for place in &self.places {
            let (api, name) = (place.api.clone(), place.name.clone());
            watches.spawn(follow(api, name, self.clock.clone(), Arc::clone(&changed)));
        }
        let mut awake = None;
        loop {
            let held = self.clock.hold();
            drop(awake.take());
            if self.is_over(self.clock.now()) {
                tell(role, Role::Standby { holder: None });
            }
            let answer = tokio::select! {
                biased;
                () = &mut stop => break,
                answer = self.round() => answer,
            };
            let now = self.clock.now();
            tell(role, self.role(answer.err(), now));
            let soon = after(now, self.terms.renews);
            let end = self.holder.as_ref().map(|(_, until)| *until);
            let end = self.leads_until.or(end);
            let turn = end.map_or(soon, |end| soon.min(end));
            let sleep = self.clock.sleep_until(turn);
            let news = match self.leads_until {
                Some(_) => Either::Left(pending()),
                None => Either::Right(changed.notified()),
            };
            // only now that the next sleep has begun may time go on
            drop(held);
            tokio::select! {
                biased;
                () = &mut stop => break,
                token = sleep => awake = Some(token),
                () = news => awake = Some(self.clock.hold()),
            }
        }
        drop(awake);
        self.release().await;
    }

    /// Whether it led and its time has run out, after which it does not lead.
    fn is_over(&mut self, now: Timestamp) -> bool {
        self.leads_until.take_if(|end| *end <= now).is_some()
    }

    fn role(&mut self, failure: Option<Failure>, now: Timestamp) -> Role {
        self.is_over(now);
        let is_told = |looked: Timestamp| now < after(looked, self.terms.gives_up);
        match failure {
            _ if self.leads_until.is_some() => Role::Leading,
            Some(failure) if !self.looked.is_some_and(is_told) => {
                Role::Unknown(failure.to_string())
            }
            _ => Role::Standby {
                holder: self.holder.as_ref().map(|(holder, _)| holder.clone()),
            },
        }
    }

    /// Looks and acts once. A leader that gets no answer in its time is none any more.
    async fn round(&mut self) -> Result<(), Failure> {
        let end = self
            .leads_until
            .unwrap_or_else(|| after(self.clock.now(), self.terms.gives_up));
        let end = self.clock.sleep_until(end);
        let twice = async {
            match self.attempt().await {
                // what it knew was not so; it may still be its turn
                Err(Failure::Changed(_) | Failure::Exists(_)) => self.attempt().await,
                other => other,
            }
        };
        tokio::select! {
            biased;
            tried = twice => tried,
            _ = end => Err(Failure::Unknown("no answer in time".to_owned())),
        }
    }

    async fn attempt(&mut self) -> Result<(), Failure> {
        let now = self.clock.now();
        let is_leading = self.leads_until.is_some();
        for place in &mut self.places {
            if place.is_doubtful || !is_leading {
                place.read(now).await?;
            }
        }
        self.holder = None;
        let standing = |place: &Place| evaluate(place.seen.as_ref(), &self.me, now);
        let standings: Vec<Standing> = self.places.iter().map(standing).collect();
        match decide(&standings) {
            Act::Wait { holder, until } => {
                self.leads_until = None;
                self.holder = Some((holder, until));
            }
            Act::StepBack => {
                self.leads_until = None;
                self.let_go().await?;
            }
            Act::Take => {
                // others count from a moment after this
                let sent = self.clock.now();
                for place in &mut self.places {
                    let old = place.seen.as_ref().map(|seen| &seen.lease);
                    let spec = held(old, &self.me, &self.terms, sent);
                    place.write(spec, sent).await?;
                }
                self.leads_until = Some(after(sent, self.terms.gives_up));
            }
        }
        self.looked = Some(now);
        Ok(())
    }

    async fn let_go(&mut self) -> Result<(), Failure> {
        let now = self.clock.now();
        for place in &mut self.places {
            if let Some(seen) = &place.seen
                && evaluate(Some(seen), &self.me, now) == Standing::Mine
            {
                let spec = released(&seen.lease, now);
                place.write(spec, now).await?;
            }
        }
        Ok(())
    }

    /// A lease that cannot be released runs out by itself.
    async fn release(&mut self) {
        let _held = self.clock.hold();
        let now = self.clock.now();
        for place in &mut self.places {
            if place.is_doubtful && place.read(now).await.is_err() {
                return;
            }
        }
        let _ = self.let_go().await;
    }
}

/// Tells what is new only.
fn tell(role: &watch::Sender<Role>, new: Role) {
    role.send_if_modified(|old| {
        let is_news = *old != new;
        *old = new;
        is_news
    });
}

/// Tells of every change of a lease. Who may not watch still looks every so often.
async fn follow(api: Api<Lease>, name: String, clock: Clock, changed: Arc<Notify>) {
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let mut events = pin!(watcher(api, config));
    let mut failures = 0;
    while let Some(event) = events.next().await {
        match event {
            // a list may come after a change that the last look came before
            Ok(watcher::Event::Apply(_) | watcher::Event::Delete(_) | watcher::Event::InitDone) => {
                failures = 0;
                changed.notify_one();
            }
            Ok(_) => failures = 0,
            Err(_) => {
                clock.sleep(retry_after(failures)).await;
                failures = failures.saturating_add(1);
            }
        }
    }
}

#[cfg(test)]
mod tests;
