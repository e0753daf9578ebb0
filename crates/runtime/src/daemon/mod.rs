//! The daemon: E2B's envd protocol on one port, and on others, if it is told so, what agent-sandbox's runtimes speak.
//!
//! A request passes `route`, which keeps strangers out and knows the paths. Remote calls are put on and off the wire by `rpc` and
//! answered by `process` and `filesystem`; plain HTTP is answered by `init`, `metrics` and `files`. What requests have in common is
//! in `settings` (what `/init` said), `users` and `paths`. `reaper` hears of every child that ends. `legacy` and `sandboxd` are
//! other ways to the same processes and files, each confined to a `root`.

mod body;
mod ca;
mod cors;
mod error;
mod files;
mod filesystem;
mod init;
mod legacy;
mod metrics;
mod mounts;
mod options;
mod paths;
mod process;
mod reaper;
mod root;
mod route;
mod rpc;
mod sandboxd;
mod serve;
mod settings;
mod sys;
mod users;

use std::ffi::OsString;
use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use rustix::fs::Mode;

use self::filesystem::Watches;
use self::metrics::Meter;
pub use self::options::Options;
use self::options::Parsed;
use self::process::Processes;
use self::root::Root;
use self::settings::Settings;
use self::users::Accounts;

/// What `X-Envd-Version` says: the newest of the protocol's features are all here.
const PROTOCOL_VERSION: &str = "0.6.7";

/// Everything that requests share.
struct Daemon {
    settings: Settings,
    /// Held while `/init` changes the machine.
    initializing: tokio::sync::Mutex<()>,
    accounts: Accounts,
    processes: Processes,
    watches: Watches,
    meter: Meter,
    legacy_root: Root,
    sandboxd_root: Root,
    started: Instant,
    /// Whether it has been told to stop, and only waits for commands to end.
    stopping: AtomicBool,
}

/// The program: reads its arguments, serves, and says what went wrong.
pub fn main(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let options = match options::parse(arguments) {
        Ok(Parsed::Run(options)) => options,
        Ok(Parsed::Help) => {
            print!("{}", options::HELP);
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("sandbar-runtime: {error}\nTry 'sandbar-runtime --help'.");
            return ExitCode::from(2);
        }
    };
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sandbar-runtime: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Serves until it is told to stop by SIGTERM or SIGINT.
pub fn run(options: &Options) -> io::Result<()> {
    // files and directories of uploads are for everyone to read, whatever started the daemon
    rustix::process::umask(Mode::from_raw_mode(0o022));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .thread_stack_size(256 << 10)
        .build()?;
    runtime.block_on(async {
        let listeners = serve::listen_all(options).await?;
        let daemon = Arc::new(Daemon::new(options)?);
        daemon.make_roots(options);
        serve::announce(&listeners)?;
        tokio::select! {
            never = serve::accept_all(listeners, &daemon) => never,
            reaped = reaper::reap(Arc::clone(&daemon)) => reaped,
            told = reaper::stopped(&daemon) => told,
        }
    })
}

impl Daemon {
    fn new(options: &Options) -> io::Result<Self> {
        let accounts = Accounts::new(options.etc.clone());
        Ok(Self {
            settings: Settings::new(options),
            initializing: tokio::sync::Mutex::default(),
            accounts,
            processes: Processes::default(),
            watches: Watches::new()?,
            meter: Meter::default(),
            legacy_root: Root::new(&options.legacy_root)?,
            sandboxd_root: Root::new(&options.sandboxd_root)?,
            started: Instant::now(),
            stopping: AtomicBool::new(false),
        })
    }

    /// Only of what is served. Without its root the rest works all the same.
    fn make_roots(&self, options: &Options) {
        let legacy = options.legacy_port.is_some().then_some(&self.legacy_root);
        let sandboxd = (!options.sandboxd_ports.is_empty()).then_some(&self.sandboxd_root);
        for root in legacy.into_iter().chain(sandboxd) {
            let made = self.user(None).map_err(|e| e.message);
            let made = made.and_then(|user| root.make(&user).map_err(|e| e.to_string()));
            if let Err(error) = made {
                let path = root.path().display();
                eprintln!("sandbar-runtime: cannot make '{path}': {error}");
            }
        }
    }
}
