//! The daemon: E2B's envd protocol on one port, and on others, if it is told so, what agent-sandbox's runtimes speak.
//!
//! A request passes `route`, which keeps strangers out and knows the paths. Remote calls are put on and off the wire by `rpc` and
//! answered by `process` and `filesystem`; plain HTTP is answered by `init`, `metrics`, `files` and `storage`. What requests have in
//! common is in `settings` (what `/init` said), `users` and `paths`. `reaper` hears of every child that ends, `forward` publishes
//! servers on loopback addresses. `legacy` and `sandboxd` are other ways to the same processes and files, each confined to a `root`.
//! `upgrade` has another program take over all of it, for which `handover` brings it to rest.

mod body;
mod ca;
mod channel;
mod cors;
mod descriptors;
mod error;
mod files;
mod filesystem;
mod forward;
#[cfg(feature = "fuzz")]
pub mod fuzz;
mod handover;
mod init;
mod legacy;
mod metrics;
mod mounts;
mod nothing;
mod options;
mod paths;
mod process;
mod reaper;
mod rights;
mod root;
mod route;
mod rpc;
mod sandboxd;
mod scope;
mod serve;
mod settings;
mod storage;
mod sys;
mod upgrade;
mod users;

use std::ffi::OsString;
use std::fmt::Display;
use std::io::{self, Write as _};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use rustix::fs::Mode;

use self::filesystem::Watches;
use self::forward::Published;
use self::handover::Handover;
use self::metrics::Meter;
pub use self::options::Options;
use self::options::Parsed;
use self::process::Processes;
use self::root::Root;
use self::serve::Listener;
use self::settings::Settings;
pub use self::storage::{NAME as STORAGE_PROGRAM, main as mount_storage};
use self::upgrade::state::State;
use self::users::Accounts;

/// What `X-Envd-Version` says: the newest of the protocol's features are all here.
const PROTOCOL_VERSION: &str = "0.6.7";

/// Everything that requests share.
struct Daemon {
    settings: Settings,
    /// Held while `/init` changes the machine.
    initializing: tokio::sync::Mutex<()>,
    accounts: Arc<Accounts>,
    processes: Processes,
    watches: Watches,
    meter: Meter,
    published: Published,
    legacy_root: Root,
    sandboxd_root: Root,
    started: Instant,
    /// Whether it has been told to stop, and only waits for commands to end.
    stopping: AtomicBool,
    handover: Arc<Handover>,
    listeners: Vec<Arc<Listener>>,
    /// To be said to a program that takes over.
    options: Options,
}

/// The program: reads its arguments, serves, and says what went wrong.
///
/// `words` are those before the arguments, if the program is more than the daemon.
pub fn main(words: &[&str], arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let options = match options::parse(words, arguments) {
        Ok(Parsed::Run(options)) => *options,
        Ok(Parsed::Introduce) => {
            print!("{}", upgrade::introduction());
            return ExitCode::SUCCESS;
        }
        Ok(Parsed::Help) => {
            print!("{}", options::HELP);
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            log(format_args!("{error}\nTry 'sandbar-runtime --help'."));
            return ExitCode::from(2);
        }
    };
    match run(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log(error);
            ExitCode::FAILURE
        }
    }
}

/// Says something to whoever reads what the daemon writes. That nobody does is no reason to stop.
fn log(what: impl Display) {
    let _ = writeln!(io::stderr(), "sandbar-runtime: {what}");
}

/// Serves until it is told to stop by SIGTERM or SIGINT.
pub fn run(options: Options) -> io::Result<()> {
    // files and directories of uploads are for everyone to read, whatever started the daemon
    rustix::process::umask(Mode::from_raw_mode(0o022));
    descriptors::raise();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .thread_stack_size(256 << 10)
        // whoever may become another program at any moment hears of them alone
        .on_thread_start(sys::hold_stop_signals)
        .build()?;
    runtime.block_on(async {
        let daemon = match options.take_over {
            None => {
                let daemon = Daemon::afresh(options).await?;
                daemon.make_roots();
                serve::announce(&daemon.listeners)?;
                daemon
            }
            Some(fd) => Daemon::take_over(options, upgrade::read(fd)?)?,
        };
        let daemon = Arc::new(daemon);
        if daemon.options.forwarding {
            let published = daemon.published.clone();
            tokio::spawn(forward::follow(daemon.options.host, published));
        }
        tokio::select! {
            never = serve::accept_all(&daemon) => never,
            reaped = reaper::reap(Arc::clone(&daemon)) => reaped,
            told = reaper::stopped(&daemon) => told,
        }
    })
}

impl Daemon {
    async fn afresh(options: Options) -> io::Result<Self> {
        let listeners = serve::listen_all(&options).await?;
        let handover = Arc::default();
        Ok(Self {
            settings: Settings::new(&options),
            initializing: tokio::sync::Mutex::default(),
            accounts: Arc::new(Accounts::new(options.etc.clone())),
            processes: Processes::default(),
            watches: Watches::new(&handover)?,
            meter: Meter::default(),
            published: Published::default(),
            legacy_root: Root::new(&options.legacy_root)?,
            sandboxd_root: Root::new(&options.sandboxd_root)?,
            started: Instant::now(),
            stopping: AtomicBool::new(false),
            handover,
            listeners,
            options,
        })
    }

    fn take_over(options: Options, state: State) -> io::Result<Self> {
        let accounts = Arc::new(Accounts::new(options.etc.clone()));
        let handover = Arc::default();
        Ok(Self {
            settings: Settings::new(&options).take_over(state.settings),
            initializing: tokio::sync::Mutex::default(),
            processes: Processes::take_over(state.processes, &handover),
            watches: Watches::take_over(state.watches, &accounts, &handover)?,
            accounts,
            meter: Meter::default(),
            published: Published::take_over(state.published),
            legacy_root: Root::new(&options.legacy_root)?,
            sandboxd_root: Root::new(&options.sandboxd_root)?,
            started: Instant::now(),
            stopping: AtomicBool::new(false),
            handover,
            listeners: serve::take_over(state.listeners)?,
            options,
        })
    }

    /// Only of what is served. Without its root the rest works all the same.
    fn make_roots(&self) {
        let options = &self.options;
        let legacy = options.legacy_port.is_some().then_some(&self.legacy_root);
        let sandboxd = (!options.sandboxd_ports.is_empty()).then_some(&self.sandboxd_root);
        for root in legacy.into_iter().chain(sandboxd) {
            let made = self.user(None).map_err(|e| e.message);
            let made = made.and_then(|user| root.make(&user).map_err(|e| e.to_string()));
            if let Err(error) = made {
                let path = root.path().display();
                log(format_args!("cannot make '{path}': {error}"));
            }
        }
    }
}
