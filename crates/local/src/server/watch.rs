//! Watches: what happens to the objects of a scope, as a stream of JSON lines.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream;
use serde_json::{Value, json};
use tokio::sync::watch as watch_channel;
use tokio::time::Instant;

use super::Server;
use super::answer::{Answer, Events};
use super::encode;
use super::options::ListOptions;
use super::registry::Registry;
use super::resource::Resource;
use super::route::Target;
use super::select::Selection;
use crate::clock::Clock;
use crate::status::Failure;
use crate::store::{Entry, Event, EventKind, Watch, WatchError};

/// How often a watch that asked for bookmarks gets one.
const BOOKMARKS: Duration = Duration::from_secs(60);
/// How long a watch lasts that does not say. Clients begin again by themselves.
const DURATION: Duration = Duration::from_secs(45 * 60);

impl Server {
    pub(super) fn watch(
        &self,
        target: &Target,
        options: ListOptions,
        events: Events,
    ) -> Result<Answer, Failure> {
        let ListOptions {
            labels, mut fields, ..
        } = options;
        if let Some(name) = &target.name {
            fields.require("metadata.name", name);
        }
        let selection = Selection::new(&target.resource, labels, fields)?;
        if let Some(version) = options.version {
            self.reached(version)?;
        }
        let snapshot = self.store.snapshot();
        let everything = options.version.is_none_or(|version| version == 0);
        let initial = options.initial_events.unwrap_or(everything);
        let after = match options.version {
            Some(version) if !everything && options.initial_events != Some(true) => version,
            _ => snapshot.revision(),
        };
        let scope = target.scope();
        let mut present = Vec::new();
        if initial {
            let selected = snapshot.list(&scope);
            let selected = selected.filter(|entry| selection.selects(&target.resource, entry));
            present.extend(selected.map(|entry| (EventKind::Added, Arc::clone(entry))));
        }
        let bookmark = options.bookmarks && options.initial_events == Some(true);
        let ends = Instant::now() + options.timeout.map_or(DURATION, Duration::from_secs);
        let watch = match after < self.started {
            true => Err(WatchError::Gone {
                requested: after,
                oldest: self.started,
            }),
            false => self.store.watch(scope, after),
        };
        let source = match watch {
            Ok(watch) => Source::Events(watch),
            Err(WatchError::Gone { requested, oldest }) => Source::Gone { requested, oldest },
            // a version from the future: there is nothing to tell yet
            Err(WatchError::Ahead { requested, current }) => {
                return Err(Failure::version_ahead(requested, current));
            }
        };
        let state = State {
            resource: Arc::clone(&target.resource),
            selection,
            initial: present.into_iter(),
            initial_end: bookmark.then_some(snapshot.revision()),
            source,
            bookmarks: options.bookmarks,
            next_bookmark: Instant::now() + BOOKMARKS,
            ends,
            events,
            clock: self.clock.clone(),
            served: self.registry.subscribe(),
        };
        let lines = stream::unfold(state, |mut state| async move {
            let line = state.next().await?;
            Some((line, state))
        });
        Ok(Answer::Watch(Box::pin(lines)))
    }
}

enum Source {
    Events(Watch),
    Gone { requested: u64, oldest: u64 },
    Ended,
}

struct State {
    resource: Arc<Resource>,
    selection: Selection,
    initial: std::vec::IntoIter<(EventKind, Arc<Entry>)>,
    /// The revision of the bookmark that ends the initial events.
    initial_end: Option<u64>,
    source: Source,
    bookmarks: bool,
    next_bookmark: Instant,
    ends: Instant,
    events: Events,
    clock: Clock,
    /// A watch ends when what it shows is not served any more as it was.
    served: watch_channel::Receiver<Arc<Registry>>,
}

impl State {
    async fn next(&mut self) -> Option<Bytes> {
        if let Some((kind, entry)) = self.initial.next() {
            return Some(self.line(kind, &entry));
        }
        if let Some(revision) = self.initial_end.take() {
            return Some(self.bookmark(revision, true));
        }
        loop {
            let watch = match &mut self.source {
                Source::Events(watch) => watch,
                Source::Gone { requested, oldest } => {
                    let line = gone(*requested, *oldest);
                    self.source = Source::Ended;
                    return Some(line);
                }
                Source::Ended => return None,
            };
            tokio::select! {
                event = watch.next() => match event? {
                    Ok(event) => {
                        if let Some(line) = self.told(&event) {
                            return Some(line);
                        }
                    }
                    Err(WatchError::Gone { requested, oldest }
                        | WatchError::Ahead { requested, current: oldest }) => {
                        self.source = Source::Gone { requested, oldest };
                    }
                },
                () = tokio::time::sleep_until(self.ends) => return None,
                changed = self.served.changed() => {
                    if changed.is_err() || !is_served(&self.served.borrow(), &self.resource) {
                        return None;
                    }
                }
                () = tokio::time::sleep_until(self.next_bookmark), if self.bookmarks => {
                    self.next_bookmark = Instant::now() + BOOKMARKS;
                    let revision = watch.progress();
                    return Some(self.bookmark(revision, false));
                }
            }
        }
    }

    /// What a change is to whoever watches this selection.
    fn told(&mut self, event: &Event) -> Option<Bytes> {
        let selects = |entry: &Arc<Entry>| self.selection.selects(&self.resource, entry);
        let before = event.previous.as_ref().is_some_and(selects);
        let now = event.kind != EventKind::Deleted && selects(&event.entry);
        match (before, now) {
            (false, false) => None,
            (false, true) => Some(self.line(EventKind::Added, &event.entry)),
            (true, true) => Some(self.line(EventKind::Modified, &event.entry)),
            (true, false) if event.kind == EventKind::Deleted => {
                Some(self.line(EventKind::Deleted, &event.entry))
            }
            // it left the selection: shown as it last was in it, at the version of the change
            (true, false) => {
                let last = event.previous.as_ref()?;
                let value = encode::at_version(&last.value, event.entry.revision);
                let last = last.changed(value, event.entry.revision);
                Some(self.line(EventKind::Deleted, &last))
            }
        }
    }

    fn line(&mut self, kind: EventKind, entry: &Entry) -> Bytes {
        let kind = match kind {
            EventKind::Added => "ADDED",
            EventKind::Modified => "MODIFIED",
            EventKind::Deleted => "DELETED",
        };
        let now = self.clock.now();
        let mut out = Vec::with_capacity(entry.value.len() + 64);
        let written = line(kind, &mut out, |out| {
            self.events.write_stored(entry, now, out)
        });
        match written {
            Ok(()) => out.into(),
            Err(failure) => error_line(&failure),
        }
    }

    fn bookmark(&mut self, revision: u64, initial_end: bool) -> Bytes {
        let resource = &self.resource;
        let mut object = resource.empty_object();
        object["metadata"] = json!({"resourceVersion": revision.to_string()});
        if initial_end {
            object["metadata"]["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let object = self.events.object(&object, self.clock.now());
        whole_line("BOOKMARK", &object)
    }
}

fn is_served(registry: &Registry, resource: &Arc<Resource>) -> bool {
    let now = registry.find(&resource.group, &resource.version, &resource.plural);
    resource.custom().is_none() || now.is_some_and(|now| Arc::ptr_eq(now, resource))
}

fn gone(requested: u64, oldest: u64) -> Bytes {
    let failure = Failure::expired(format!("too old resource version: {requested} ({oldest})"));
    error_line(&failure)
}

fn error_line(failure: &Failure) -> Bytes {
    whole_line("ERROR", failure.body().to_string().as_bytes())
}

fn whole_line(kind: &str, object: &[u8]) -> Bytes {
    let mut out = Vec::with_capacity(object.len() + 32);
    let write = |out: &mut Vec<u8>| {
        out.extend_from_slice(object);
        Ok::<_, Infallible>(())
    };
    let Ok(()) = line(kind, &mut out, write);
    out.into()
}

fn line<E>(
    kind: &str,
    out: &mut Vec<u8>,
    object: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
) -> Result<(), E> {
    out.extend_from_slice(b"{\"type\":\"");
    out.extend_from_slice(kind.as_bytes());
    out.extend_from_slice(b"\",\"object\":");
    object(out)?;
    out.extend_from_slice(b"}\n");
    Ok(())
}

impl Resource {
    /// An object in which only the kind is set; built-in kinds show the fields that are always there.
    fn empty_object(&self) -> Value {
        let mut empty = match self.strategic_type() {
            Some(kind) => kind.empty(),
            None => json!({}),
        };
        empty["apiVersion"] = json!(self.api_version);
        empty["kind"] = json!(self.kind);
        empty
    }
}
