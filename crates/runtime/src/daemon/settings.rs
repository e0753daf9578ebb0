//! What `/init` told the daemon: variables, token, defaults. In memory only.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use chrono::{DateTime, Utc};
use http::HeaderValue;
use subtle::ConstantTimeEq;

use super::options::Options;
use super::upgrade::state;

/// Variables that the daemon passes on from its own environment: a pod's template says who the sandbox is.
const IDENTITY: [&str; 2] = ["E2B_SANDBOX_ID", "E2B_TEMPLATE_ID"];

pub(super) struct Settings {
    internal: BTreeMap<String, String>,
    state: Mutex<State>,
}

struct State {
    variables: BTreeMap<String, String>,
    token: Option<String>,
    default_user: Option<String>,
    default_workdir: Option<PathBuf>,
    accepted: Option<DateTime<Utc>>,
    is_initialized: bool,
}

/// What one `/init` asks for.
pub(super) struct Change {
    pub(super) variables: Option<BTreeMap<String, String>>,
    pub(super) token: Option<String>,
    pub(super) default_user: Option<String>,
    pub(super) default_workdir: Option<PathBuf>,
    pub(super) timestamp: Option<DateTime<Utc>>,
}

impl Settings {
    pub(super) fn new(options: &Options) -> Self {
        let known = IDENTITY.iter().filter_map(|name| {
            let value = std::env::var(name).ok()?;
            Some(((*name).to_owned(), value))
        });
        let sandbox = ("E2B_SANDBOX".to_owned(), "true".to_owned());
        Self {
            internal: known.chain([sandbox]).collect(),
            state: Mutex::new(State {
                variables: BTreeMap::new(),
                token: None,
                default_user: options.default_user.clone(),
                default_workdir: options.default_workdir.clone(),
                accepted: None,
                is_initialized: false,
            }),
        }
    }

    pub(super) fn hand_over(&self) -> state::Settings {
        let own = self.state();
        let workdir = own.default_workdir.as_ref();
        state::Settings {
            variables: own.variables.clone(),
            token: own.token.clone(),
            default_user: own.default_user.clone(),
            default_workdir: workdir.map(|dir| dir.as_os_str().as_bytes().to_vec()),
            accepted: own.accepted.and_then(|at| at.timestamp_nanos_opt()),
        }
    }

    pub(super) fn take_over(self, told: state::Settings) -> Self {
        let workdir = told.default_workdir.map(OsString::from_vec);
        *self.state() = State {
            variables: told.variables,
            token: told.token,
            default_user: told.default_user,
            default_workdir: workdir.map(PathBuf::from),
            accepted: told.accepted.map(DateTime::from_timestamp_nanos),
            is_initialized: true,
        };
        self
    }

    /// Whether there was an `/init`.
    pub(super) fn is_initialized(&self) -> bool {
        self.state().is_initialized
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The variables of every process that does not set them itself.
    pub(super) fn environment(&self) -> BTreeMap<String, String> {
        let mut all = self.internal.clone();
        all.extend(self.state().variables.clone());
        all
    }

    pub(super) fn token(&self) -> Option<String> {
        self.state().token.clone()
    }

    pub(super) fn default_user(&self) -> Option<String> {
        self.state().default_user.clone()
    }

    pub(super) fn default_workdir(&self) -> Option<PathBuf> {
        self.state().default_workdir.clone()
    }

    /// Whether this is the token, or none is needed.
    pub(super) fn admits(&self, given: Option<&HeaderValue>) -> bool {
        match &self.state().token {
            None => true,
            Some(token) => given.is_some_and(|given| same(given.as_bytes(), token.as_bytes())),
        }
    }

    /// A token, once set, can only be repeated.
    pub(super) fn may_init(&self, token: Option<&str>) -> bool {
        match &self.state().token {
            None => true,
            Some(set) => token.is_some_and(|token| same(token.as_bytes(), set.as_bytes())),
        }
    }

    /// Whether something older or equal was asked before than what is asked now.
    pub(super) fn is_news(&self, timestamp: Option<DateTime<Utc>>) -> bool {
        match (timestamp, self.state().accepted) {
            (Some(now), Some(before)) => now > before,
            _ => true,
        }
    }

    pub(super) fn apply(&self, change: Change) {
        let mut state = self.state();
        state.is_initialized = true;
        if let Some(variables) = change.variables {
            state.variables = variables;
        }
        state.token = change.token;
        if change.default_user.is_some() {
            state.default_user = change.default_user;
        }
        if change.default_workdir.is_some() {
            state.default_workdir = change.default_workdir;
        }
        if change.timestamp.is_some() {
            state.accepted = change.timestamp;
        }
    }
}

/// Takes the same time wherever the first difference is.
pub(super) fn same(one: &[u8], other: &[u8]) -> bool {
    one.ct_eq(other).into()
}
