//! The daemon: E2B's envd protocol on one port.
//!
//! A request passes `route`, which keeps strangers out and knows the paths. Remote calls are put on and off the wire by `rpc` and
//! answered by `process` and `filesystem`; plain HTTP is answered by `init`, `metrics`, `files` and `storage`. What requests have in common is
//! in `settings` (what `/init` said), `users` and `paths`. `reaper` hears of every child that ends.
//! `forward` publishes servers on loopback addresses.

mod body;
mod ca;
mod cors;
mod error;
mod files;
mod filesystem;
mod forward;
mod init;
mod metrics;
mod mounts;
mod options;
mod paths;
mod process;
mod reaper;
mod route;
mod rpc;
mod serve;
mod settings;
mod storage;
mod sys;
mod users;

use std::ffi::OsString;
use std::io;
use std::process::ExitCode;
use std::sync::Arc;

use rustix::fs::Mode;

use self::filesystem::Watches;
use self::metrics::Meter;
pub use self::options::Options;
use self::options::Parsed;
use self::process::Processes;
use self::settings::Settings;
pub use self::storage::main as mount_storage;
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
        let listener = serve::listen(options).await?;
        let daemon = Arc::new(Daemon::new(options)?);
        serve::announce(&listener)?;
        if options.forwarding {
            tokio::spawn(forward::follow(options.host));
        }
        tokio::select! {
            never = serve::accept(listener, Arc::clone(&daemon)) => never,
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
        })
    }
}
