//! What programs are given to read or to write to that is nothing. Images without `/dev` have something else than `/dev/null`.

use std::fs::File;
use std::io;
use std::process::Stdio;

use rustix::pipe::{PipeFlags, pipe_with};

/// An input that is at its end.
pub(super) fn input() -> io::Result<Stdio> {
    if let Ok(null) = File::open("/dev/null") {
        return Ok(null.into());
    }
    let (end, _closed) = pipe_with(PipeFlags::CLOEXEC)?;
    Ok(end.into())
}

/// An output that nobody reads.
pub(super) fn output() -> io::Result<Stdio> {
    if let Ok(null) = File::options().write(true).open("/dev/null") {
        return Ok(null.into());
    }
    let (_closed, end) = pipe_with(PipeFlags::CLOEXEC)?;
    Ok(end.into())
}
