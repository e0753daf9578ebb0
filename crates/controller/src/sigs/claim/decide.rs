//! What is to be done next about a claim.
//!
//! A decision is one act. The two that a claim waits for come first: the sandbox becomes the claim's, and the claim says so.

use std::{
    ops::ControlFlow::{self, Break, Continue},
    sync::Arc,
    time::{Duration, SystemTime},
};

use api::{
    open::known,
    sigs::shared::{ClaimShutdownPolicy, SandboxClaimStatus},
};
use engine::{
    claim::Refusal,
    expiry::{self, ClaimEffect, ClaimPolicy, Expiry},
    member::{Policy, Time},
};
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use super::{
    find::{Sandboxes, Standing},
    ledger::Memory,
    metadata, provision,
    run::Options,
    status::{self, End, Problem},
    view::Claim,
};
use crate::{
    conditions::{self, FINISHED, READY},
    events::News,
    meta::Meta,
    queue::Next,
    sigs::{
        pool::{
            member::{target, time},
            settings::policy,
            view::Pool,
        },
        sandbox::{decide::Look, view::Sandbox},
        stock::Find,
        template::view::Template,
    },
    trace,
};

/// How long a claim waits for members that are on their way before it starts a sandbox of its own.
pub const PATIENCE: Duration = Duration::from_secs(2);
/// A claim that waits looks again after this time at the latest.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
/// Creation times are whole seconds.
const PRECISION: Duration = Duration::from_secs(1);

/// What one pass knows.
#[derive(Debug)]
pub struct World<'a> {
    pub claim: &'a Claim,
    pub sandboxes: Sandboxes,
    pub pool: Look<Pool>,
    pub template: Look<Template>,
    /// The template has been looked at past the cache.
    pub is_template_fresh: bool,
    /// The pool or the template may have been edited before the claim was made, and nobody has heard of it.
    pub is_behind: bool,
    /// A network policy of its own that an older controller made for the claim.
    pub policy: Option<Meta>,
    /// What the stock had to give.
    pub offer: Option<Result<Offer, Refusal>>,
    pub memory: Memory,
    /// What was tried in this pass and failed.
    pub trouble: Option<String>,
    pub options: &'a Options,
    pub now: Timestamp,
}

/// What the stock has for a claim.
#[derive(Clone, Debug)]
pub enum Offer {
    Member(Arc<Sandbox>),
    Nothing {
        coming: usize,
        matures: Option<Time>,
    },
}

impl Offer {
    /// What is said where nobody is there to be handed out.
    pub fn nothing(find: &Find) -> Option<Self> {
        match find {
            Find::Member(_) => None,
            Find::Nothing { coming, matures } => Some(Self::Nothing {
                coming: *coming,
                matures: *matures,
            }),
        }
    }
}

#[derive(Clone, Debug)]
pub enum Act {
    DeletePolicy(Meta),
    /// Look past the cache.
    ReadPool,
    ReadTemplate,
    /// Read both, so that every edit before the claim is known.
    CatchUp,
    ReadSandbox(String),
    /// Ask the stock.
    Choose(Option<Policy>),
    /// Make the sandbox the claim's.
    Bind(Arc<Sandbox>, Value),
    Create(Value),
    Status(Value),
    /// A status that is news.
    Announce(Value, News),
    /// A sandbox that the claim has too much.
    Drop(Meta),
    DeleteSandbox(Meta),
    DeleteClaim {
        is_last: bool,
    },
    PatchSandbox(Meta, Value),
    PatchClaim(Value),
    Tell(News),
}

#[derive(Clone, Debug)]
pub enum Step {
    Act(Act),
    Rest(Next),
}

pub fn decide(world: &World<'_>) -> Step {
    match world.next() {
        Break(act) => Step::Act(act),
        Continue(next) => Step::Rest(next),
    }
}

impl World<'_> {
    fn next(&self) -> ControlFlow<Act, Next> {
        if let Some(policy) = self.policy.as_ref().filter(|policy| !policy.is_deleting) {
            return Break(Act::DeletePolicy(policy.clone()));
        }
        if self.claim.meta.is_deleting {
            return Continue(Next::Never);
        }
        let expiry = self.expiry();
        if let Expiry::Expired(effect) = expiry {
            return self.end(effect);
        }
        let next = self.answer()?;
        Continue(sooner(next, expiry.next_look()))
    }

    fn expiry(&self) -> Expiry<ClaimEffect> {
        let Some(lifecycle) = &self.claim.spec.request.lifecycle else {
            return Expiry::Never;
        };
        let finished = conditions::find(self.claim.status.conditions.as_ref(), FINISHED);
        let finished = finished.filter(|finished| finished.status == "True");
        let ttl = lifecycle.ttl_seconds_after_finished;
        let claim = expiry::Claim {
            shutdown_time: lifecycle
                .shutdown_time
                .as_ref()
                .map(|at| SystemTime::from(at.0)),
            ttl_after_finished: ttl
                .map(|seconds| Duration::from_secs(u64::try_from(seconds).unwrap_or_default())),
            policy: match known(&lifecycle.shutdown_policy) {
                Some(ClaimShutdownPolicy::Delete) => ClaimPolicy::Delete,
                Some(ClaimShutdownPolicy::DeleteForeground) => ClaimPolicy::DeleteForeground,
                Some(ClaimShutdownPolicy::Retain) | None => ClaimPolicy::Retain,
            },
            finished_at: finished.map(|finished| SystemTime::from(finished.last_transition_time.0)),
            is_marked: status::is_expired(self.claim),
        };
        claim.expiry(SystemTime::from(self.now))
    }

    /// First the word, then the deed.
    fn end(&self, effect: ClaimEffect) -> ControlFlow<Act, Next> {
        match effect {
            ClaimEffect::Mark => self.expire(End::Begun)?,
            ClaimEffect::Delete => return Break(Act::DeleteClaim { is_last: false }),
            ClaimEffect::DeleteForeground => return Break(Act::DeleteClaim { is_last: true }),
            ClaimEffect::DeleteSandbox => self.end_sandboxes()?,
        }
        Continue(Next::Never)
    }

    fn end_sandboxes(&self) -> ControlFlow<Act> {
        let owned = &self.sandboxes.owned;
        let staying = owned.iter().find(|sandbox| !sandbox.meta.is_deleting);
        if let Some(sandbox) = staying {
            return Break(Act::DeleteSandbox(sandbox.meta.clone()));
        }
        if !owned.is_empty() {
            return Continue(());
        }
        let Some(name) = self.claim.sandbox() else {
            return Continue(());
        };
        match self.sandboxes.look(name) {
            Look::Unknown => Break(Act::ReadSandbox(name.to_owned())),
            Look::Found(other) if !other.meta.is_controlled_by(&self.claim.meta.uid) => {
                self.expire(End::NotOurs(name))
            }
            Look::Found(_) | Look::Missing | Look::Failed => self.expire(End::Done),
        }
    }

    fn expire(&self, end: End<'_>) -> ControlFlow<Act> {
        let new = status::expired(self.claim, end, self.now);
        match status::patch(&self.claim.status, &new) {
            Some(patch) if end == End::Begun => Break(Act::Announce(
                patch,
                status::news_of_end(self.claim, "Claim Expired"),
            )),
            Some(patch) => Break(Act::Status(patch)),
            None => Continue(()),
        }
    }

    /// The life of a claim that is not over.
    fn answer(&self) -> ControlFlow<Act, Next> {
        if let Err(problem) = metadata::check(self.claim, &self.options.label_domains) {
            return self.fail(&problem);
        }
        let standing = self.sandboxes.standing(self.claim);
        if let Standing::Bound(sandbox) = standing {
            return self.keep(sandbox);
        }
        if let Some(trouble) = &self.trouble {
            return self.fail(&Problem::error(trouble));
        }
        match standing {
            Standing::Bound(sandbox) => self.keep(sandbox),
            Standing::Promised(sandbox) => self.bind(sandbox, self.template.found()),
            Standing::Unseen(name) => Break(Act::ReadSandbox(name.to_owned())),
            Standing::Barred(why) => self.fail(&Problem::error(why)),
            Standing::Unbound => self.provide(),
        }
    }

    fn fail(&self, problem: &Problem) -> ControlFlow<Act, Next> {
        let named = self.claim.sandbox();
        let has_lost = named.is_some_and(|name| matches!(self.sandboxes.look(name), Look::Missing));
        self.refuse(
            problem,
            &status::troubled(self.claim, problem, has_lost, self.now),
        )
    }

    /// Who fails fast reads the status, so that the event comes after it.
    fn refuse(&self, problem: &Problem, status: &SandboxClaimStatus) -> ControlFlow<Act, Next> {
        match status::patch(&self.claim.status, status) {
            Some(patch) if problem.is_news(self.claim) => {
                Break(Act::Announce(patch, problem.news(self.claim)))
            }
            Some(patch) => Break(Act::Status(patch)),
            None => Continue(problem.next),
        }
    }

    fn write(&self, status: &SandboxClaimStatus) -> ControlFlow<Act> {
        match status::patch(&self.claim.status, status) {
            Some(patch) => Break(Act::Status(patch)),
            None => Continue(()),
        }
    }

    /// The answer first; whatever else there is to write, nobody waits for.
    fn keep(&self, sandbox: &Sandbox) -> ControlFlow<Act, Next> {
        let in_step = match self.template.found() {
            None if metadata::is_asked_for(self.claim) => Err(self.lost_template()?),
            template => metadata::in_step(self.claim, sandbox, template),
        };
        let patch = match in_step {
            Ok(patch) => patch,
            Err(problem) => {
                let status = status::out_of_step(self.claim, sandbox, &problem, self.now);
                return self.refuse(&problem, &status);
            }
        };
        self.write(&status::bound(self.claim, sandbox, self.now))?;
        if let Some(surplus) = self.sandboxes.surplus(sandbox).next() {
            return Break(Act::Drop(surplus.meta.clone()));
        }
        if let Some(patch) = patch.filter(|_| !sandbox.meta.is_deleting) {
            return Break(Act::PatchSandbox(sandbox.meta.clone(), patch));
        }
        let without_stamps = self.options.without_stamps;
        let books = metadata::bookkeeping(self.claim, sandbox.name(), &self.memory, without_stamps);
        if let Some(patch) = books {
            return Break(Act::PatchClaim(patch));
        }
        match &self.memory.news {
            Some(news) => Break(Act::Tell(news.clone())),
            None => Continue(Next::Never),
        }
    }

    /// Why the metadata that the claim asks for cannot be kept in step, which a cache is not believed.
    fn lost_template(&self) -> ControlFlow<Act, Problem> {
        if let Some(trouble) = &self.trouble {
            return Continue(Problem::error(trouble));
        }
        let (missing, is_unknown, read) = match self.pool.found() {
            None => (
                Problem::no_pool(self.claim),
                matches!(self.pool, Look::Unknown),
                Act::ReadPool,
            ),
            Some(pool) => (
                Problem::no_template(&pool.spec.sandbox_template_ref.name),
                matches!(self.template, Look::Unknown),
                Act::ReadTemplate,
            ),
        };
        let problem = Problem::out_of_step(&missing);
        match is_unknown && !problem.is_told(self.claim) {
            true => Break(read),
            false => Continue(problem),
        }
    }

    /// What a sandbox is told of the trace of the claim that has it.
    fn trace(&self) -> Option<&str> {
        trace::of(&self.claim.meta.annotations).or(self.memory.trace.as_deref())
    }

    fn bind(&self, sandbox: &Sandbox, template: Option<&Template>) -> ControlFlow<Act, Next> {
        match metadata::transfer(self.claim, sandbox, template, self.trace()) {
            Ok(patch) => Break(Act::Bind(Arc::new(sandbox.clone()), patch)),
            Err(problem) => self.fail(&problem),
        }
    }

    /// From stock, or newly made.
    fn provide(&self) -> ControlFlow<Act, Next> {
        let Some(pool) = self.pool.found() else {
            let problem = Problem::no_pool(self.claim);
            return self.miss(&self.pool, Act::ReadPool, &problem);
        };
        if self.is_behind && self.must_be_newest(pool) {
            return Break(Act::CatchUp);
        }
        let Some(template) = self.template.found() else {
            let problem = Problem::no_template(&pool.spec.sandbox_template_ref.name);
            return self.miss(&self.template, Act::ReadTemplate, &problem);
        };
        if provision::is_needed(self.claim) {
            return self.start(template);
        }
        // nothing is promised to a claim that could not take it
        let wish = metadata::pod(self.claim, template).and_then(|_| metadata::wish(self.claim));
        let wish = match wish {
            Ok(wish) => wish,
            Err(problem) => return self.fail(&problem),
        };
        match &self.offer {
            None => Break(Act::Choose(wish)),
            Some(Err(refusal)) => self.fail(&refused(*refusal)),
            Some(Ok(Offer::Member(sandbox))) => self.bind(sandbox, Some(template)),
            Some(Ok(Offer::Nothing { coming, matures })) => {
                if let Some(wait) = self.wait(*coming, *matures) {
                    return Continue(Next::In(wait));
                }
                match wish {
                    Some(Policy::Pinned(pinned)) if pinned != target(template) => {
                        let message = format!("no member of revision {pinned} is in stock");
                        self.fail(&Problem::waiting("RevisionUnavailable", message))
                    }
                    _ => self.start(template),
                }
            }
        }
    }

    /// Whether nobody may be given what an edit before the claim has made old.
    fn must_be_newest(&self, pool: &Pool) -> bool {
        let wish = || metadata::wish(self.claim).ok().flatten();
        pool.recreates()
            || policy(pool) == Policy::RequireNewest
            || wish() == Some(Policy::RequireNewest)
    }

    /// Clients give up when they read that something does not exist, so that a cache is not believed.
    fn miss<T>(&self, look: &Look<T>, read: Act, problem: &Problem) -> ControlFlow<Act, Next> {
        match look {
            Look::Unknown if !problem.is_told(self.claim) => Break(read),
            _ => self.fail(problem),
        }
    }

    fn start(&self, template: &Template) -> ControlFlow<Act, Next> {
        match provision::sandbox(self.claim, template, self.trace()) {
            Ok(body) => Break(Act::Create(body)),
            // clients give up on it, and the template may have been mended
            Err(problem) if !self.is_template_fresh && !problem.is_told(self.claim) => {
                Break(Act::ReadTemplate)
            }
            Err(problem) => self.fail(&problem),
        }
    }

    /// How long to wait for members that are on their way, if at all.
    fn wait(&self, coming: usize, matures: Option<Time>) -> Option<Duration> {
        let since = |at: Timestamp| Duration::try_from(self.now.duration_since(at)).ok();
        let observed = self.memory.observed.and_then(since).unwrap_or_default();
        // whoever restarts has seen it late
        let age = since(self.claim.meta.created).unwrap_or_default();
        let waited = observed.max(age.saturating_sub(PRECISION));
        let left = PATIENCE
            .checked_sub(waited)
            .filter(|left| !left.is_zero())?;
        let matures = matures.map(|at| at.since(time(self.now)));
        let matures = matures.filter(|wait| *wait <= left);
        let soonest = LOOK_AGAIN.min(left);
        match (coming, matures) {
            (0, None) => None,
            (_, None) => Some(soonest),
            (_, Some(wait)) => Some(soonest.min(wait.max(Duration::from_millis(1)))),
        }
    }
}

fn refused(refusal: Refusal) -> Problem {
    let why = match refusal {
        Refusal::OverrideForbidden => "the pool does not let claims choose a revision",
        Refusal::Excluded => "the claim asks for a revision that the pool's claimPolicy excludes",
        Refusal::Retired => "the claim asks for a revision that was rolled back",
    };
    Problem::waiting("ClaimPolicyRefused", why.to_owned())
}

/// The earlier of two looks. What failed is tried again as soon as a failure is, whatever else there is to wait for.
fn sooner(next: Next, limit: Option<Duration>) -> Next {
    match (next, limit) {
        (Next::Never, Some(limit)) => Next::In(limit),
        (Next::In(wait), Some(limit)) => Next::In(wait.min(limit)),
        (next, _) => next,
    }
}

/// Whether the patch makes a claim Ready that was not.
pub fn becomes_ready(claim: &Claim, patch: &Value) -> bool {
    let conditions = patch["conditions"].as_array().into_iter().flatten();
    let is_ready = |one: &Value| one["type"] == READY && one["status"] == "True";
    let was_ready = conditions::is_true(claim.status.conditions.as_ref(), READY);
    !was_ready && conditions.into_iter().any(is_ready)
}
