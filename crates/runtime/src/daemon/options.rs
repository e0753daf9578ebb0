//! What the program is told when it starts. Parsed by hand: a parser would be a fifth of the whole program.

use std::ffi::OsString;
use std::net::{IpAddr, Ipv6Addr};
use std::path::PathBuf;

use rustix::process::geteuid;

use super::upgrade::{CAN_TAKE_OVER, TAKE_OVER};
use super::users;

pub(super) const HELP: &str = "\
The daemon inside a sandbox: runs commands and moves files for E2B clients.

usage: sandbar-runtime [options]

  --host ADDRESS         where to listen (default: all addresses)
  --port PORT            port to listen on, 0 for any that is free (default: 49983)
  --default-user NAME    user of requests that name none (default: 'user' if there is one, else who runs the daemon)
  --default-workdir DIR  directory of requests that name none (default: the user's home)
  --etc DIR              where passwd and group are (default: /etc)
  --strict               work on files with the rights of the user that a request names (default: with the daemon's own, as E2B)
  --no-forwarding        leave servers on loopback addresses alone (default: they are reached at the sandbox's address, too)
  --legacy-port PORT     port for the API of agent-sandbox's older runtime, whose clients expect 8888 (default: none)
  --legacy-root DIR      directory of its commands and files (default: $SANDBOX_BASE_DIR, else /app)
  --sandboxd-port PORT   port for the API of agent-sandbox's sandboxd, REST and gRPC; may be given more than once: clients
                         expect files on 8080 and processes on 9090 (default: none)
  --sandboxd-root DIR    directory of its commands and files (default: /workspace)
  -isnotfc               accepted and ignored: this never runs in a Firecracker machine
  -h, --help             this text

The addresses that it listens on are printed, each on a line. SIGTERM is passed on to all commands, and ends the daemon after them.
";

/// How the daemon is run.
#[derive(Clone, Debug)]
pub struct Options {
    pub host: IpAddr,
    pub port: u16,
    pub default_user: Option<String>,
    pub default_workdir: Option<PathBuf>,
    /// Holds `passwd` and `group`.
    pub etc: PathBuf,
    /// What the program was told, to be said again to one that takes over.
    pub(super) arguments: Vec<OsString>,
    /// What goes before them if it is the same program.
    pub(super) words: Vec<OsString>,
    /// Where it stands what the program before this one left.
    pub(super) take_over: Option<i32>,
    /// Whether servers on loopback addresses are published.
    pub forwarding: bool,
    /// Whether files are worked on with the rights of whom a request names.
    pub strict: bool,
    /// Where agent-sandbox's older runtime API is served, if it is.
    pub legacy_port: Option<u16>,
    pub legacy_root: PathBuf,
    /// Where sandboxd's API is served; each answers all of it.
    pub sandboxd_ports: Vec<u16>,
    pub sandboxd_root: PathBuf,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            host: Ipv6Addr::UNSPECIFIED.into(),
            port: 49983,
            default_user: None,
            default_workdir: None,
            etc: "/etc".into(),
            arguments: Vec::new(),
            words: Vec::new(),
            take_over: None,
            forwarding: true,
            strict: false,
            legacy_port: None,
            legacy_root: std::env::var_os("SANDBOX_BASE_DIR")
                .filter(|directory| !directory.is_empty())
                .map_or_else(|| "/app".into(), PathBuf::from),
            sandboxd_ports: Vec::new(),
            sandboxd_root: "/workspace".into(),
        }
    }
}

#[derive(Debug)]
pub(super) enum Parsed {
    Run(Box<Options>),
    /// Say what can be taken over.
    Introduce,
    Help,
}

pub(super) fn parse(
    words: &[&str],
    arguments: impl Iterator<Item = OsString>,
) -> Result<Parsed, String> {
    let arguments: Vec<OsString> = arguments.collect();
    // what is for one start only comes last
    let lasting = |argument: &&OsString| *argument != TAKE_OVER && *argument != CAN_TAKE_OVER;
    let mut options = Options {
        words: words.iter().map(OsString::from).collect(),
        arguments: arguments.iter().take_while(lasting).cloned().collect(),
        ..Options::default()
    };
    let mut arguments = arguments.into_iter().map(|argument| {
        argument
            .into_string()
            .map_err(|argument| format!("argument {} is not UTF-8", argument.display()))
    });
    while let Some(argument) = arguments.next() {
        let argument = argument?;
        let (name, value) = match argument.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (argument.as_str(), None),
        };
        let value = || match value {
            Some(value) => Ok(value),
            None => arguments
                .next()
                .unwrap_or_else(|| Err(format!("{name} needs a value"))),
        };
        match name {
            "-h" | "--help" => return Ok(Parsed::Help),
            "-isnotfc" => {}
            CAN_TAKE_OVER => return Ok(Parsed::Introduce),
            TAKE_OVER => options.take_over = Some(parsed(name, &value()?)?),
            "--strict" => options.strict = can_be_strict()?,
            "--no-forwarding" => options.forwarding = false,
            "--host" => options.host = parsed(name, &value()?)?,
            "--port" => options.port = parsed(name, &value()?)?,
            "--default-user" => options.default_user = Some(value()?),
            "--default-workdir" => options.default_workdir = Some(value()?.into()),
            "--etc" => options.etc = value()?.into(),
            "--legacy-port" => options.legacy_port = Some(parsed(name, &value()?)?),
            "--legacy-root" => options.legacy_root = value()?.into(),
            "--sandboxd-port" => options.sandboxd_ports.push(parsed(name, &value()?)?),
            "--sandboxd-root" => options.sandboxd_root = value()?.into(),
            _ => return Err(format!("unknown argument '{argument}'")),
        }
    }
    Ok(Parsed::Run(Box::new(options)))
}

/// Who cannot become another has the rights of one user anyway.
fn can_be_strict() -> Result<bool, String> {
    let may_change = users::may_change();
    if may_change && !geteuid().is_root() {
        // capabilities of one who is not root stay with a thread that takes on another's rights
        return Err("--strict is for a daemon that is root, or has no capabilities".to_owned());
    }
    Ok(may_change)
}

fn parsed<T: std::str::FromStr>(name: &str, value: &str) -> Result<T, String> {
    value
        .parse()
        .map_err(|_| format!("{name} cannot be '{value}'"))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::{Parsed, parse};

    fn parse_all(arguments: &[&str]) -> Result<Parsed, String> {
        parse(&[], arguments.iter().map(OsString::from))
    }

    #[test]
    fn values_follow_a_space_or_an_equals_sign() {
        for arguments in [
            &["--port", "5"][..],
            &["--port=5"],
            &["-isnotfc", "--port=5"],
        ] {
            let Ok(Parsed::Run(options)) = parse_all(arguments) else {
                panic!("{arguments:?} is refused");
            };
            assert_eq!(options.port, 5);
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (arguments, says) in [
            (&["--port", "70000"][..], "--port cannot be '70000'"),
            (&["--port"], "--port needs a value"),
            (&["--prot=1"], "unknown argument '--prot=1'"),
        ] {
            assert_eq!(parse_all(arguments).unwrap_err(), says);
        }
    }
}
