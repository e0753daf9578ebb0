//! What strangers send, taken apart without a daemon. `fuzz/` and the tests `hostile` drive it.

use std::fmt::Debug;
use std::io::{self, BufRead};
use std::path::{Path, PathBuf};

use super::files::{self, Multipart};
use super::paths;
use super::root::Root;
use super::rpc::{Ask, Codec, Messages, Read};
use super::users::User;
use crate::messages::process::{StartRequest, StreamInputRequest};

/// One part of a form: its name, its file's name and its content.
pub type Part = (String, Option<String>, Vec<u8>);

/// How the messages of a client's stream are written, and what they are.
#[derive(Clone, Copy)]
pub struct Stream {
    pub json: bool,
    pub compressed: bool,
    /// Those of `StreamInput`, else of `Start`.
    pub inputs: bool,
}

impl Stream {
    /// The messages that arrive in pieces, as text. The last is why there are no more, if that is an error.
    pub fn read<'a>(self, pieces: impl Iterator<Item = &'a [u8]>) -> Vec<String> {
        if self.inputs {
            self.read_all::<StreamInputRequest>(pieces)
        } else {
            self.read_all::<StartRequest>(pieces)
        }
    }

    fn read_all<'a, Q: Ask + Debug>(self, pieces: impl Iterator<Item = &'a [u8]>) -> Vec<String> {
        let codec = if self.json { Codec::Json } else { Codec::Proto };
        let mut messages = Messages::<Q>::new(codec, self.compressed);
        let mut read = Vec::new();
        for piece in pieces {
            messages.arrived(piece);
            loop {
                match messages.next() {
                    Ok(Some(Read::Message(message))) => read.push(format!("{message:?}")),
                    Ok(Some(Read::End)) => return read,
                    Ok(None) => break,
                    Err(error) => {
                        read.push(error.message);
                        return read;
                    }
                }
            }
        }
        if let Err(error) = messages.finish() {
            read.push(error.message);
        }
        read
    }
}

/// The parts of a form. `None` if the content type names no boundary.
pub fn read_form(content_type: &str, body: impl BufRead) -> Option<io::Result<Vec<Part>>> {
    let boundary = files::boundary(content_type)?;
    let mut form = Multipart::new(body, &boundary);
    let mut parts = Vec::new();
    let mut read = || {
        while let Some(part) = form.next()? {
            let mut content = Vec::new();
            form.copy_to(&mut content)?;
            parts.push((part.name, part.filename, content));
        }
        Ok(())
    };
    let outcome = read();
    Some(outcome.map(|()| parts))
}

/// Where a path of a request is, for somebody with this home.
pub fn resolve(path: &str, home: &Path, workdir: Option<&Path>) -> Option<PathBuf> {
    let user = User {
        name: "user".into(),
        uid: 0,
        gid: 0,
        groups: Vec::new(),
        home: home.to_owned(),
    };
    paths::resolve(path, &user, workdir).ok()
}

/// Where a path of agent-sandbox's APIs is, which must not lead out of a root.
pub fn resolve_within(root: &Path, path: &str) -> Option<PathBuf> {
    Root::new(root).ok()?.resolve(path).ok()
}
