//! The last step in a container's first process: find the program, confine it, become it.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::convert::Infallible;
use std::ffi::CString;
use std::io;
use std::os::fd::RawFd;
use std::path::PathBuf;

use libcontainer::oci_spec::runtime::Spec;
use libcontainer::workload::{
    Executor, ExecutorError, ExecutorSetEnvsError, ExecutorValidationError,
};
use rustix::fs::Access;

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

    pub(super) fn report(&self, text: String) -> String {
        sys::write_raw(self.failure, text.as_bytes());
        text
    }

    /// Returns only why not.
    pub(super) fn become_program(&self, args: &[String], env: &[String]) -> String {
        match self.attempt(args, env) {
            Ok(never) => match never {},
            Err(reason) => reason,
        }
    }

    fn attempt(&self, args: &[String], env: &[String]) -> Result<Infallible, String> {
        let program = find(args, env)?;
        let home = self.home.get().map(|home| format!("HOME={home}"));
        let home = home.filter(|_| !env.iter().any(|e| e.starts_with("HOME=")));
        let strings = |list: Vec<&String>| -> Result<Vec<CString>, String> {
            let each = list.into_iter().map(|s| CString::new(s.as_str()));
            each.collect::<Result<_, _>>()
                .map_err(|error| error.to_string())
        };
        let path = CString::new(program.into_os_string().into_encoded_bytes());
        let path = path.map_err(|error| error.to_string())?;
        let argv = strings(args.iter().collect())?;
        let envp = strings(env.iter().chain(&home).collect())?;
        let confine = |error| format!("confining the program by a system call filter: {error}");
        self.filters.install().map_err(confine)?;
        let error = sys::execve(&path, &argv, &envp);
        Err(format!(
            "exec {}: {}",
            path.to_string_lossy(),
            reason(&error)
        ))
    }
}

impl Executor for Confined {
    fn exec(&self, spec: &Spec) -> Result<(), ExecutorError> {
        let process = spec.process().as_ref().ok_or(ExecutorError::InvalidArg)?;
        let args = process.args().as_deref().unwrap_or_default();
        let env = process.env().as_deref().unwrap_or_default();
        let reason = self.become_program(args, env);
        Err(ExecutorError::Other(self.report(reason)))
    }

    fn validate(&self, spec: &Spec) -> Result<(), ExecutorValidationError> {
        let Some(process) = spec.process() else {
            return Err(ExecutorValidationError::CantHandle("confined"));
        };
        let args = process.args().as_deref().unwrap_or_default();
        let env = process.env().as_deref().unwrap_or_default();
        find(args, env)
            .map(|_| ())
            .map_err(|error| ExecutorValidationError::ArgValidationError(self.report(error)))
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

/// The file to run, as a shell finds it, and the errors that people know.
fn find(args: &[String], env: &[String]) -> Result<PathBuf, String> {
    let program = args.first().map_or("", String::as_str);
    if program.contains('/') {
        let path = PathBuf::from(program);
        return match runnable(&path) {
            Ok(()) => Ok(path),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(format!(
                "exec: {program:?}: stat {program}: no such file or directory"
            )),
            Err(error) => Err(format!("exec: {program:?}: {}", reason(&error))),
        };
    }
    let path = env.iter().find_map(|e| e.strip_prefix("PATH="));
    let mut denied = false;
    for dir in path.unwrap_or_default().split(':') {
        let candidate = PathBuf::from(if dir.is_empty() { "." } else { dir }).join(program);
        match runnable(&candidate) {
            Ok(()) => return Ok(candidate),
            Err(error) => denied |= error.kind() == io::ErrorKind::PermissionDenied,
        }
    }
    Err(if denied {
        format!("exec: {program:?}: permission denied")
    } else {
        format!("exec: {program:?}: executable file not found in $PATH")
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
    use std::os::unix::fs::PermissionsExt;

    use super::find;

    fn look(program: &str, path: &str) -> Result<String, String> {
        let found = find(&[program.to_owned()], &[format!("PATH={path}")]);
        found.map(|p| p.display().to_string())
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
