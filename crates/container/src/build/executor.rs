//! The last step in a container's first process: find the program, confine it, become it.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::convert::Infallible;
use std::ffi::CString;
use std::fmt::Display;
use std::io;
use std::os::fd::RawFd;
use std::path::PathBuf;

use libcontainer::oci_spec::runtime::Spec;
use libcontainer::workload::{
    Executor, ExecutorError, ExecutorSetEnvsError, ExecutorValidationError,
};
use rustix::fs::Access;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};

use crate::seccomp::Filters;
use crate::sys;

/// Runs the program under the filters. What goes wrong is also written to a pipe that closes on success.
#[derive(Clone)]
pub(super) struct Confined {
    failure: RawFd,
    filters: Filters,
    /// The home directory that the container's own files name for its user.
    home: OnceCell<String>,
}

impl Confined {
    pub(super) fn new(failure: RawFd, filters: Filters) -> Self {
        Self {
            failure,
            filters,
            home: OnceCell::new(),
        }
    }

    pub(super) fn report(&self, obstacle: Obstacle) -> String {
        sys::write_raw(self.failure, &obstacle.to_bytes());
        obstacle.reason
    }

    /// Returns only why not.
    pub(super) fn become_program(&self, args: &[String], env: &[String]) -> Obstacle {
        match self.attempt(args, env) {
            Ok(never) => match never {},
            Err(obstacle) => obstacle,
        }
    }

    fn attempt(&self, args: &[String], env: &[String]) -> Result<Infallible, Obstacle> {
        let program = find(args, env)?;
        let home = self.home.get().map(|home| format!("HOME={home}"));
        let home = home.filter(|_| !env.iter().any(|e| e.starts_with("HOME=")));
        let strings = |list: Vec<&String>| -> Result<Vec<CString>, Obstacle> {
            let each = list.into_iter().map(|s| CString::new(s.as_str()));
            each.collect::<Result<_, _>>()
                .map_err(|error| Obstacle::lasting(error.to_string()))
        };
        let path = CString::new(program.into_os_string().into_encoded_bytes());
        let path = path.map_err(|error| Obstacle::lasting(error.to_string()))?;
        let argv = strings(args.iter().collect())?;
        let envp = strings(env.iter().chain(&home).collect())?;
        self.filters.install().map_err(|error| {
            let doing = "confining the program by a system call filter";
            Obstacle::passing(format!("{doing}: {error}"))
        })?;
        let error = sys::execve(&path, &argv, &envp);
        let doing = format!("exec {}", path.to_string_lossy());
        Err(Obstacle::met(doing, &error))
    }
}

impl Executor for Confined {
    fn exec(&self, spec: &Spec) -> Result<(), ExecutorError> {
        let process = spec.process().as_ref().ok_or(ExecutorError::InvalidArg)?;
        let args = process.args().as_deref().unwrap_or_default();
        let env = process.env().as_deref().unwrap_or_default();
        let obstacle = self.become_program(args, env);
        Err(ExecutorError::Other(self.report(obstacle)))
    }

    fn validate(&self, spec: &Spec) -> Result<(), ExecutorValidationError> {
        let Some(process) = spec.process() else {
            return Err(ExecutorValidationError::CantHandle("confined"));
        };
        let args = process.args().as_deref().unwrap_or_default();
        let env = process.env().as_deref().unwrap_or_default();
        stay_out_of_reach()
            .and_then(|()| find(args, env))
            .map(|_| ())
            .map_err(|obstacle| ExecutorValidationError::ArgValidationError(self.report(obstacle)))
    }

    /// The environment is given to the program when it is run; this process needs none.
    fn setup_envs(&self, mut envs: HashMap<String, String>) -> Result<(), ExecutorSetEnvsError> {
        if let Some(home) = envs.remove("HOME") {
            // called once per process; a second time would say the same
            let _ = self.home.set(home);
        }
        Ok(())
    }
}

/// Keeps this process from being looked into by its like, until it is the program. The library has seen to that; but where
/// `fs.suid_dumpable` is 1, whoever has become another user can be looked into again.
fn stay_out_of_reach() -> Result<(), Obstacle> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(|error| Obstacle::met("keeping the process out of reach", &error.into()))
}

/// What a program cannot be run for: something about itself, or something that passes without anybody changing the program.
#[derive(Debug)]
pub(super) struct Obstacle {
    pub(super) reason: String,
    pub(super) passes: bool,
}

impl Obstacle {
    /// Before a reason that is written down.
    const MARKS: [(u8, bool); 2] = [(b'+', true), (b'-', false)];

    pub(super) fn passing(reason: String) -> Self {
        let passes = true;
        Self { reason, passes }
    }

    fn lasting(reason: String) -> Self {
        let passes = false;
        Self { reason, passes }
    }

    pub(super) fn met(doing: impl Display, error: &io::Error) -> Self {
        Self {
            reason: format!("{doing}: {}", reason(error)),
            passes: passes(error),
        }
    }

    fn to_bytes(&self) -> Vec<u8> {
        let marks = Self::MARKS.iter();
        let mark = marks.filter(|(_, passes)| *passes == self.passes);
        mark.map(|(mark, _)| *mark)
            .chain(self.reason.bytes())
            .collect()
    }

    /// None if nothing was written.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (first, reason) = bytes.split_first()?;
        let mut marks = Self::MARKS.iter();
        Some(Self {
            reason: String::from_utf8_lossy(reason).into_owned(),
            passes: marks.any(|(mark, passes)| mark == first && *passes),
        })
    }
}

/// Whether there may be enough of what there is too little of now, or a file may be in nobody's hands again.
fn passes(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(
            libc::EAGAIN
                | libc::EBUSY
                | libc::EDQUOT
                | libc::EINTR
                | libc::EIO
                | libc::EMFILE
                | libc::ENFILE
                | libc::ENOBUFS
                | libc::ENOMEM
                | libc::ENOSPC
                | libc::ESTALE
                | libc::ETIMEDOUT
                | libc::ETXTBSY
        )
    )
}

/// The file to run, as a shell finds it, and the errors that people know.
fn find(args: &[String], env: &[String]) -> Result<PathBuf, Obstacle> {
    let program = args.first().map_or("", String::as_str);
    if program.contains('/') {
        let path = PathBuf::from(program);
        return match runnable(&path) {
            Ok(()) => Ok(path),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(Obstacle::met(
                format!("exec: {program:?}: stat {program}"),
                &error,
            )),
            Err(error) => Err(Obstacle::met(format!("exec: {program:?}"), &error)),
        };
    }
    let path = env.iter().find_map(|e| e.strip_prefix("PATH="));
    let mut met: Option<io::Error> = None;
    for dir in path.unwrap_or_default().split(':') {
        let candidate = PathBuf::from(if dir.is_empty() { "." } else { dir }).join(program);
        let is_denied = |error: &io::Error| error.kind() == io::ErrorKind::PermissionDenied;
        match runnable(&candidate) {
            Ok(()) => return Ok(candidate),
            Err(error) if passes(&error) || (met.is_none() && is_denied(&error)) => {
                met = Some(error);
            }
            Err(_) => {}
        }
    }
    Err(match met {
        Some(error) => Obstacle::met(format!("exec: {program:?}"), &error),
        None => {
            let text = format!("exec: {program:?}: executable file not found in $PATH");
            Obstacle::lasting(text)
        }
    })
}

fn runnable(path: &PathBuf) -> io::Result<()> {
    if std::fs::metadata(path)?.is_dir() {
        return Err(io::Error::from_raw_os_error(libc::EISDIR));
    }
    Ok(rustix::fs::access(path, Access::EXEC_OK)?)
}

fn reason(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::ENOENT) => "no such file or directory".to_owned(),
        Some(libc::EACCES) => "permission denied".to_owned(),
        Some(libc::ENOEXEC) => "exec format error".to_owned(),
        Some(libc::EISDIR) => "is a directory".to_owned(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::os::unix::fs::PermissionsExt;

    use super::{Obstacle, find};

    fn look(program: &str, path: &str) -> Result<String, String> {
        let found = find(&[program.to_owned()], &[format!("PATH={path}")]);
        let found = found.map(|p| p.display().to_string());
        found.map_err(|obstacle| {
            assert!(!obstacle.passes, "{obstacle:?}");
            obstacle.reason
        })
    }

    #[test]
    fn what_passes_is_told_from_what_is_wrong_with_the_program() {
        for (number, expected) in [
            (libc::EAGAIN, true),
            (libc::ENOMEM, true),
            (libc::ETXTBSY, true),
            (libc::ENOENT, false),
            (libc::EACCES, false),
            (libc::ENOEXEC, false),
            (libc::ELOOP, false),
            (libc::ENOTDIR, false),
            (libc::E2BIG, false),
        ] {
            let error = io::Error::from_raw_os_error(number);
            let said = Obstacle::met("exec a", &error).to_bytes();
            let heard = Obstacle::from_bytes(&said).unwrap();
            assert_eq!(heard.passes, expected, "{error}");
            assert!(heard.reason.starts_with("exec a: "), "{heard:?}");
        }
        assert!(Obstacle::from_bytes(&[]).is_none());
    }

    #[test]
    fn programs_are_found_as_a_shell_finds_them() {
        assert_eq!(look("sh", "/nowhere:/bin").unwrap(), "/bin/sh");
        assert_eq!(look("/bin/sh", "").unwrap(), "/bin/sh");
    }

    #[test]
    fn what_cannot_be_run_is_said_in_known_words() {
        let missing = look("no-such", "/bin").unwrap_err();
        assert_eq!(
            missing,
            "exec: \"no-such\": executable file not found in $PATH"
        );
        let missing = look("/no/such", "/bin").unwrap_err();
        assert_eq!(
            missing,
            "exec: \"/no/such\": stat /no/such: no such file or directory"
        );
        assert_eq!(
            look("/bin", "").unwrap_err(),
            "exec: \"/bin\": is a directory"
        );
    }

    #[test]
    fn a_file_that_nobody_may_run_is_not_run() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("tool");
        std::fs::write(&file, "#!/bin/sh\n").unwrap();
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o644)).unwrap();
        let refused = look("tool", &dir.path().display().to_string()).unwrap_err();
        assert_eq!(refused, "exec: \"tool\": permission denied");
    }
}
