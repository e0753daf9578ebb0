//! What happens in directories, told by the kernel.
//!
//! All watches share one inotify descriptor: the kernel allows a user no more than a hundred or so. It is read when it has something,
//! and at once when a client asks for events, so that whoever writes a file and then asks is told. Other threads read it, a little
//! at a time: there may be more to tell than can be told in any time.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::fs::statfs;
use rustix::io::Errno;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;
use tokio::task::spawn_blocking;

use super::entry::Described;
use super::interest::{Descriptor, Interests, WatchId};
use super::queue::{BUDGET, Event, Queue, Total};
use super::tree;
use crate::code::Code;
use crate::daemon::error::Error;
use crate::daemon::handover::Handover;
use crate::daemon::rights::{Assumed, Rights};
use crate::daemon::sys;
use crate::daemon::upgrade::{Inherit, state};
use crate::daemon::users::Accounts;
use crate::messages::filesystem::{EventType, FilesystemEvent, WatchRequest};

/// Watches that clients may have asked for and never removed.
const MOST_KEPT: usize = 10_000;

/// How long a watch that was not removed is kept for one who does not ask for its events.
const UNASKED: Duration = Duration::from_secs(3600);

/// How often those are looked for.
const LOOK_FOR_UNASKED: Duration = Duration::from_secs(60);

/// What is read of the kernel at once: a few hundred events.
const READ_AT_ONCE: usize = 8 << 10;

/// The longest event of the kernel: less than this is left free in what was read when there is more.
const LONGEST_EVENT: usize = 16 + 256;

/// How much later the kernel may tell of what can be seen already. It is microseconds.
const A_MOMENT: Duration = Duration::from_secs(1);

/// File systems that change without the kernel knowing: NFS, CIFS, SMB, SMB2 and FUSE.
const NETWORK: [i64; 5] = [0x6969, 0xff53_4d42, 0x517b, 0xfe53_4d42, 0x6573_5546];

#[derive(Clone)]
pub(in crate::daemon) struct Watches(Arc<Shared>);

struct Shared {
    kernel: OwnedFd,
    state: Mutex<State>,
    /// Held from reading events to having told them, so that they are told in their order. The second event of a move may come
    /// with the next ones that are read.
    reading: Mutex<Moved>,
    handover: Arc<Handover>,
    /// What waits for all watches.
    total: Total,
}

#[derive(Default)]
struct State {
    interests: Interests,
    watches: HashMap<WatchId, Arc<Watched>>,
    /// Those of `CreateWatcher`, by the names that clients know.
    kept: HashMap<String, Kept>,
    started: WatchId,
    /// Found while a new directory was added, and therefore told already if the kernel tells it, too.
    told: HashMap<(WatchId, PathBuf), Instant>,
}

struct Kept {
    watch: Watch,
    /// When it was last asked for events.
    asked: Instant,
}

struct Watched {
    root: PathBuf,
    recursive: bool,
    /// Whom to ask for names of owners, when entries are to be told with events.
    entries: Option<Arc<Accounts>>,
    /// What is looked at later is looked at with these, too.
    rights: Option<Rights>,
    waiting: Queue,
    arrived: Notify,
}

/// Directories of recursive watches that one event of the kernel told to be elsewhere. If that is in the watch, the next event tells.
#[derive(Default)]
struct Moved {
    /// What the two events have in common.
    cookie: u32,
    from: HashMap<WatchId, PathBuf>,
}

/// One client's watch; ends when dropped.
pub(super) struct Watch {
    id: WatchId,
    watched: Arc<Watched>,
    watches: Watches,
}

impl Watches {
    /// Must be called within the runtime that reads what the kernel tells.
    pub(in crate::daemon) fn new(handover: &Arc<Handover>) -> io::Result<Self> {
        let kernel = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        Self::listening_to(kernel, handover)
    }

    fn listening_to(kernel: OwnedFd, handover: &Arc<Handover>) -> io::Result<Self> {
        let listening = sys::watch(kernel.try_clone()?, Interest::READABLE)?;
        let watches = Self(Arc::new(Shared {
            kernel,
            state: Mutex::default(),
            reading: Mutex::default(),
            handover: Arc::clone(handover),
            total: Total::default(),
        }));
        tokio::spawn(watches.clone().listen(listening));
        Ok(watches)
    }

    async fn listen(self, listening: AsyncFd<OwnedFd>) {
        let mut looked = Instant::now();
        while let Ok(mut ready) = listening.readable().await {
            // before it is read: what comes after that is heard of again
            ready.clear_ready();
            loop {
                let reading = self.0.handover.reading().await;
                let watches = self.clone();
                let read = spawn_blocking(move || {
                    let _reading = reading;
                    watches.read(1)
                });
                if !read.await.unwrap_or(false) {
                    break;
                }
            }
            if looked.elapsed() > LOOK_FOR_UNASKED {
                looked = Instant::now();
                self.forget_unasked(looked);
            }
        }
    }

    /// Those of streams end with their connections; those that clients ask again and again are left to the next daemon, and the
    /// kernel's queue with them.
    pub(in crate::daemon) fn hand_over(&self, inherit: Inherit) -> io::Result<state::Watches> {
        let own = self.state();
        let kept = own.kept.iter().map(|(name, Kept { watch, .. })| {
            let watched = &watch.watched;
            let directories = own.interests.in_watch(watch.id).into_iter();
            state::Watch {
                name: name.clone(),
                id: watch.id,
                root: watched.root.as_os_str().as_bytes().to_vec(),
                recursive: watched.recursive,
                with_entries: watched.entries.is_some(),
                rights: watched.rights.clone(),
                waiting: watched.waiting.all(),
                directories: directories
                    .map(|(descriptor, below)| state::Directory {
                        descriptor,
                        below: below.as_os_str().as_bytes().to_vec(),
                    })
                    .collect(),
            }
        });
        Ok(state::Watches {
            kernel: inherit(self.0.kernel.as_fd())?,
            started: own.started,
            kept: kept.collect(),
        })
    }

    pub(in crate::daemon) fn take_over(
        told: state::Watches,
        accounts: &Arc<Accounts>,
        handover: &Arc<Handover>,
    ) -> io::Result<Self> {
        let watches = Self::listening_to(sys::inherited(told.kernel)?, handover)?;
        let mut own = watches.state();
        own.started = told.started;
        for one in told.kept {
            let path = |bytes: Vec<u8>| PathBuf::from(OsString::from_vec(bytes));
            let watched = Arc::new(Watched {
                root: path(one.root),
                recursive: one.recursive,
                entries: one.with_entries.then(|| Arc::clone(accounts)),
                rights: one.rights,
                waiting: Queue::new(&watches.0.total, one.waiting),
                arrived: Notify::new(),
            });
            own.watches.insert(one.id, Arc::clone(&watched));
            for directory in one.directories {
                let below = path(directory.below);
                own.interests.add(directory.descriptor, one.id, below);
            }
            let watch = Watch {
                id: one.id,
                watched,
                watches: watches.clone(),
            };
            let asked = Instant::now();
            own.kept.insert(one.name, Kept { watch, asked });
        }
        drop(own);
        Ok(watches)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn begin(
        &self,
        root: &Path,
        request: &WatchRequest,
        entries: Option<Arc<Accounts>>,
        rights: Option<Rights>,
    ) -> Result<Watch, Error> {
        tree::check_directory(root)?;
        if !request.allow_network_mounts && is_network(root) {
            return Err(Error::invalid(format!(
                "path '{}' is on a network file system, where changes are not seen",
                root.display()
            )));
        }
        let watched = Arc::new(Watched {
            root: root.to_owned(),
            recursive: request.recursive,
            entries,
            rights,
            waiting: Queue::new(&self.0.total, Vec::new()),
            arrived: Notify::new(),
        });
        let mut state = self.state();
        state.started += 1;
        let id = state.started;
        state.watches.insert(id, Arc::clone(&watched));
        drop(state);
        let watch = Watch {
            id,
            watched,
            watches: self.clone(),
        };
        self.add(&watch.watched, id, PathBuf::new())
            .map_err(|e| refused(root, e))?;
        Ok(watch)
    }

    /// Watches a directory of a watch and, if it is recursive, all beneath it. Returns what was found there.
    ///
    /// Each is watched before it is read: what is created meanwhile is found, heard of, or both.
    fn add(&self, watched: &Watched, id: WatchId, top: PathBuf) -> Result<Vec<PathBuf>, Errno> {
        let mut found = Vec::new();
        let mut ahead = vec![top];
        while let Some(below) = ahead.pop() {
            let is_root = below.as_os_str().is_empty();
            match self.add_one(watched, id, &below) {
                Ok(()) => {}
                Err(error) if is_root || error == Errno::NOSPC => return Err(error),
                // gone, or not a directory any more
                Err(_) => continue,
            }
            if !watched.recursive {
                break;
            }
            for child in tree::children(&watched.root.join(&below)).unwrap_or_default() {
                let Some(name) = child.file_name() else {
                    continue;
                };
                let below = below.join(name);
                if child.is_dir() && !child.is_symlink() {
                    ahead.push(below.clone());
                }
                found.push(below);
            }
        }
        Ok(found)
    }

    fn add_one(&self, watched: &Watched, id: WatchId, below: &Path) -> Result<(), Errno> {
        let mut flags = WatchFlags::CREATE
            | WatchFlags::MODIFY
            | WatchFlags::ATTRIB
            | WatchFlags::DELETE
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE
            | WatchFlags::ONLYDIR;
        let path = if below.as_os_str().is_empty() {
            watched.root.clone()
        } else {
            flags |= WatchFlags::DONT_FOLLOW;
            watched.root.join(below)
        };
        let mut state = self.state();
        let descriptor = inotify::add_watch(&self.0.kernel, path, flags)?;
        state.interests.add(descriptor, id, below.to_owned());
        Ok(())
    }

    pub(super) fn keep(&self, watch: Watch) -> Result<String, Error> {
        let mut random = [0; 16];
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())
            .map_err(|e| Error::internal(format!("no random number: {e}")))?;
        let name = format!("w{:032x}", u128::from_ne_bytes(random));
        let asked = Instant::now();
        self.forget_unasked(asked);
        let mut state = self.state();
        if state.kept.len() >= MOST_KEPT {
            drop(state);
            let message = format!("there are {MOST_KEPT} watchers already");
            return Err(Error::new(Code::ResourceExhausted, message));
        }
        state.kept.insert(name.clone(), Kept { watch, asked });
        Ok(name)
    }

    fn forget_unasked(&self, now: Instant) {
        let mut state = self.state();
        let unasked = state.kept.extract_if(|_, kept| {
            let since = now.saturating_duration_since(kept.asked);
            since > UNASKED
        });
        let unasked: Vec<_> = unasked.collect();
        // dropped when the state is free again, which their end needs
        drop(state);
        drop(unasked);
    }

    pub(super) async fn events_of(&self, name: &str) -> Result<Vec<FilesystemEvent>, Error> {
        // another daemon is about to read it otherwise
        if let Some(reading) = self.0.handover.reading_now() {
            let watches = self.clone();
            let read = spawn_blocking(move || {
                let _reading = reading;
                watches.read_waiting();
            });
            read.await.map_err(Error::broken)?;
        }
        let mut state = self.state();
        let kept = state.kept.get_mut(name).ok_or_else(|| unknown(name))?;
        kept.asked = Instant::now();
        let watched = Arc::clone(&kept.watch.watched);
        drop(state);
        Ok(watched.waiting.take())
    }

    pub(super) fn remove(&self, name: &str) -> Result<(), Error> {
        // dropped when the state is free again, which its end needs
        let removed = self.state().kept.remove(name);
        removed.map(drop).ok_or_else(|| unknown(name))
    }

    /// Tells every watch what the kernel has told until now, and not what it tells meanwhile.
    fn read_waiting(&self) {
        let waiting = rustix::io::ioctl_fionread(&self.0.kernel).unwrap_or_default();
        let waiting = usize::try_from(waiting).unwrap_or(usize::MAX);
        self.read(waiting / (READ_AT_ONCE - LONGEST_EVENT) + 1);
    }

    /// Reads so often and tells every watch. Whether there may be more.
    fn read(&self, times: usize) -> bool {
        let moved = self.0.reading.lock();
        let mut moved = moved.unwrap_or_else(PoisonError::into_inner);
        let more = (0..times).all(|_| self.read_once(&mut moved));
        let mut state = self.state();
        state.told.retain(|_, at| at.elapsed() < A_MOMENT);
        more
    }

    fn read_once(&self, moved: &mut Moved) -> bool {
        let mut described = Described::default();
        let mut buffer = [MaybeUninit::uninit(); READ_AT_ONCE];
        let mut reader = inotify::Reader::new(self.0.kernel.as_fd(), &mut buffer);
        // fails when there is nothing more to read
        while let Ok(event) = reader.next() {
            let name = event.file_name().map(|name| name.to_bytes().to_owned());
            let (descriptor, flags) = (event.wd(), event.events());
            if event.cookie() != moved.cookie {
                self.let_moved_go(moved);
                moved.cookie = event.cookie();
            }
            self.tell(descriptor, flags, name.as_deref(), moved, &mut described);
            if self.0.total.is_over() {
                self.shrink();
            }
            if reader.is_buffer_empty() {
                return true;
            }
        }
        self.let_moved_go(moved);
        false
    }

    /// Takes from those for whom the most waits. Less than half of all waits for those who have no more than half a share.
    fn shrink(&self) {
        let state = self.state();
        let share = BUDGET / state.watches.len().max(1) / 2;
        for watched in state.watches.values() {
            watched.waiting.shrink(share);
        }
    }

    fn tell(
        &self,
        descriptor: Descriptor,
        flags: ReadFlags,
        name: Option<&[u8]>,
        moved: &mut Moved,
        described: &mut Described,
    ) {
        described.forget();
        let interested = self.state().interests.of(descriptor);
        for (id, directory) in interested {
            let watched = self.state().watches.get(&id).cloned();
            let Some(watched) = watched else {
                continue;
            };
            let is_root = directory.as_os_str().is_empty();
            let path = match name {
                Some(name) => directory.join(std::ffi::OsStr::from_bytes(name)),
                None if is_root => PathBuf::from("."),
                // its parent tells the same with its name
                None => continue,
            };
            // whatever else is the first to be heard of it: its creation was not to be heard any more
            let was_told = self.state().told.remove(&(id, path.clone())).is_some();
            // whoever cannot have them hears nothing more
            let Ok(_rights) = watched.assume() else {
                continue;
            };
            if !(flags.contains(ReadFlags::CREATE) && was_told) {
                watched.push_all(&path, flags, described);
            }
            if watched.recursive && flags.contains(ReadFlags::ISDIR) {
                self.follow(&watched, id, &path, flags, moved, described);
            }
        }
        if flags.contains(ReadFlags::IGNORED) {
            self.state().interests.forget(descriptor);
        }
        if flags.contains(ReadFlags::QUEUE_OVERFLOW) {
            self.look_again();
        }
    }

    /// A directory within a recursive watch came or went.
    fn follow(
        &self,
        watched: &Watched,
        id: WatchId,
        path: &Path,
        flags: ReadFlags,
        moved: &mut Moved,
        described: &mut Described,
    ) {
        if flags.contains(ReadFlags::MOVED_FROM) {
            moved.from.insert(id, path.to_owned());
        }
        let created = flags.contains(ReadFlags::CREATE);
        if !created && !flags.contains(ReadFlags::MOVED_TO) {
            return;
        }
        // what has happened in it since then is told of the directory that it was
        if let Some(from) = moved.from.remove(&id) {
            self.state().interests.rename(id, &from, path);
        }
        // without room for more watches the rest is not seen, which only `begin` could say
        let found = self.add(watched, id, path.to_owned()).unwrap_or_default();
        for below in found.into_iter().filter(|_| created) {
            // found before, when the directory above it was added
            let key = (id, below.clone());
            if self.state().told.insert(key, Instant::now()).is_some() {
                continue;
            }
            watched.push(&below, EventType::Create, described);
            if has_content(&watched.root.join(&below)) {
                watched.push(&below, EventType::Write, described);
            }
        }
    }

    fn let_moved_go(&self, moved: &mut Moved) {
        for (id, path) in moved.from.drain() {
            self.let_go(id, &path);
        }
    }

    /// The kernel had more to tell than it could keep. What happened is lost; which directories there are must not be.
    fn look_again(&self) {
        let all: Vec<_> = self.state().watches.clone().into_iter().collect();
        for (id, watched) in all.into_iter().filter(|(_, watched)| watched.recursive) {
            let Ok(_rights) = watched.assume() else {
                continue;
            };
            let mut state = self.state();
            let before = state.interests.in_watch(id).into_iter();
            let before: Vec<_> = before.map(|(d, below)| (d, below.to_owned())).collect();
            let idle = state.interests.remove(id, Path::new(""));
            drop(state);
            // a root that is not where it was is still watched
            if self.add(&watched, id, PathBuf::new()).is_err() {
                for (descriptor, below) in before {
                    self.state().interests.add(descriptor, id, below);
                }
            }
            self.release(idle);
        }
    }

    fn let_go(&self, id: WatchId, below: &Path) {
        let idle = self.state().interests.remove(id, below);
        self.release(idle);
    }

    /// Has the kernel forget directories, unless somebody is interested again.
    fn release(&self, idle: Vec<Descriptor>) {
        // held meanwhile: whoever becomes interested is given the same descriptor
        let state = self.state();
        for descriptor in idle {
            if state.interests.of(descriptor).is_empty() {
                // the kernel may have given it up already
                let _ = inotify::remove_watch(&self.0.kernel, descriptor);
            }
        }
    }
}

impl Watched {
    fn assume(&self) -> io::Result<Option<Assumed>> {
        self.rights.as_ref().map(Rights::assume).transpose()
    }

    /// One event of the kernel may be several to clients.
    fn push_all(&self, path: &Path, flags: ReadFlags, described: &mut Described) {
        let kinds = [
            (ReadFlags::CREATE | ReadFlags::MOVED_TO, EventType::Create),
            (ReadFlags::MOVED_FROM, EventType::Rename),
            (ReadFlags::ATTRIB, EventType::Chmod),
            (ReadFlags::MODIFY, EventType::Write),
            (
                ReadFlags::DELETE | ReadFlags::DELETE_SELF,
                EventType::Remove,
            ),
        ];
        for (any_of, kind) in kinds {
            if flags.intersects(any_of) {
                self.push(path, kind, described);
            }
        }
    }

    fn push(&self, path: &Path, kind: EventType, described: &mut Described) {
        let still_there = matches!(
            kind,
            EventType::Create | EventType::Write | EventType::Chmod
        );
        let entries = self.entries.as_ref().filter(|_| still_there);
        let entry = entries.and_then(|accounts| {
            let path = self.root.join(path);
            described.entry(path, self.rights.as_ref(), accounts)
        });
        self.waiting
            .push(Event::new(&path.to_string_lossy(), kind, entry));
        self.arrived.notify_one();
    }
}

impl Watch {
    /// At least one, in the order in which they happened.
    pub(super) async fn next_events(&self) -> Vec<FilesystemEvent> {
        loop {
            let events = self.watched.waiting.take();
            if !events.is_empty() {
                return events;
            }
            self.watched.arrived.notified().await;
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.watches.state().watches.remove(&self.id);
        self.watches.let_go(self.id, Path::new(""));
    }
}

fn has_content(path: &Path) -> bool {
    let found = std::fs::symlink_metadata(path);
    found.is_ok_and(|found| found.is_file() && found.len() > 0)
}

fn is_network(path: &Path) -> bool {
    statfs(path).is_ok_and(|found| NETWORK.contains(&found.f_type))
}

fn refused(root: &Path, error: Errno) -> Error {
    if error == Errno::NOSPC {
        let message = format!("no room to watch '{}': inotify's limit", root.display());
        return Error::new(Code::ResourceExhausted, message);
    }
    Error::of_path("watching", root, &error.into())
}

fn unknown(name: &str) -> Error {
    Error::not_found(format!("watcher with id {name} not found"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use super::{UNASKED, WatchRequest, Watches};
    use crate::code::Code;
    use crate::daemon::handover::Handover;

    #[tokio::test]
    async fn a_watch_that_nobody_has_asked_for_an_hour_is_forgotten() {
        let watches = Watches::new(&Arc::new(Handover::default())).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let begin = || watches.begin(dir.path(), &WatchRequest::default(), None, None);
        let before = Instant::now();
        let name = watches.keep(begin().unwrap()).unwrap();
        watches.forget_unasked(before + UNASKED);
        assert_eq!(watches.events_of(&name).await.unwrap(), []);
        watches.forget_unasked(Instant::now() + UNASKED + Duration::from_secs(1));
        let gone = watches.events_of(&name).await.unwrap_err();
        assert_eq!(gone.code, Code::NotFound);
        assert!(watches.state().watches.is_empty());
    }
}
