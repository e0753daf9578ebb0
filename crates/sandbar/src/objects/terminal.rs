//! The terminal that somebody sits at.

use std::io::{self, IsTerminal as _};

use anyhow::{Context as _, Result};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use serde_json::{Value, json};

pub(super) fn is_there() -> bool {
    io::stdin().is_terminal()
}

/// Passes every key on as it is pressed, as long as this lives.
pub(super) struct Raw {
    before: Termios,
}

impl Raw {
    pub(super) fn begin() -> Result<Self> {
        let stdin = io::stdin();
        let before = tcgetattr(&stdin).context("cannot ask for the settings of the terminal")?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(&stdin, OptionalActions::Now, &raw).context("cannot set the terminal")?;
        Ok(Self { before })
    }

    /// How large it is, as the API wants to be told.
    pub(super) fn size(&self) -> Option<Value> {
        let size = tcgetwinsize(io::stdin()).ok()?;
        let is_known = size.ws_col > 0 && size.ws_row > 0;
        is_known.then(|| json!({"Width": size.ws_col, "Height": size.ws_row}))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // a terminal that has gone needs no settings
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }
}
