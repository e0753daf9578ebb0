//! Whether the machine forwards packets: without, no pod reaches anything. It is one switch for the whole machine, so
//! an instance that turns it on notes that it was off; instances that come later take the note over; the last one of
//! them to go turns it off.
//!
//! While it is on, the machine forwards between its other networks, too. No rule here forbids that: it would cut off
//! every other engine that is started later and forwards as well.

use std::fs;
use std::path::Path;

use super::error::NetworkError;
use super::wire::{self, Instance, Seen};

const SWITCH: &str = "/proc/sys/net/ipv4/ip_forward";
const WAS_ON: &str = "sandbar";
const WAS_OFF: &str = "sandbar; forwarding was off before";

/// What became of forwarding when an instance was closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forwarding {
    /// It was on before.
    Untouched,
    /// Turned off again.
    Restored,
    /// It was off before, but another instance is there that needs it.
    LeftToOthers,
}

/// Turns it on. The note comes first: dying in between, an instance at worst turns off later what was off before.
pub(super) fn take(instance: &Instance, seen: &Seen) -> Result<(), NetworkError> {
    let is_on = is_on()?;
    let own = seen.anchor(instance).map(|link| link.alias.as_str());
    let others = seen.others(instance).map(|link| link.alias.as_str());
    wire::note(instance, note(is_on, own, others))?;
    match is_on {
        true => Ok(()),
        false => turn("1"),
    }
}

/// Turns it off if an instance is to do so. Its anchor must still be there.
pub(super) fn give_back(instance: &Instance, seen: &Seen) -> Result<Forwarding, NetworkError> {
    let own = seen.anchor(instance).map(|link| link.alias.as_str());
    let outcome = outcome(own, seen.others(instance).count());
    if outcome == Forwarding::Restored {
        turn("0")?;
    }
    Ok(outcome)
}

fn note<'a>(
    is_on: bool,
    own: Option<&'a str>,
    mut others: impl Iterator<Item = &'a str>,
) -> &'static str {
    let was_off = !is_on || own == Some(WAS_OFF) || others.any(|note| note == WAS_OFF);
    match was_off {
        true => WAS_OFF,
        false => WAS_ON,
    }
}

fn outcome(own: Option<&str>, others: usize) -> Forwarding {
    match (own, others) {
        (Some(WAS_OFF), 0) => Forwarding::Restored,
        (Some(WAS_OFF), _) => Forwarding::LeftToOthers,
        _ => Forwarding::Untouched,
    }
}

fn is_on() -> Result<bool, NetworkError> {
    let path = Path::new(SWITCH);
    let text = fs::read_to_string(path).map_err(|source| NetworkError::Read {
        path: path.to_owned(),
        source,
    })?;
    Ok(text.trim() != "0")
}

fn turn(value: &str) -> Result<(), NetworkError> {
    let path = Path::new(SWITCH);
    fs::write(path, value).map_err(|source| NetworkError::Write {
        path: path.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::{Forwarding, WAS_OFF, WAS_ON, note, outcome};

    #[test]
    fn the_last_instance_turns_off_what_the_first_turned_on() {
        let first = note(false, None, [].into_iter());
        let second = note(true, Some(""), [first].into_iter());
        assert_eq!((first, second), (WAS_OFF, WAS_OFF));
        assert_eq!(outcome(Some(first), 1), Forwarding::LeftToOthers);
        assert_eq!(outcome(Some(second), 0), Forwarding::Restored);
    }

    #[test]
    fn what_was_on_before_stays_on() {
        let own = note(true, Some(""), [WAS_ON, ""].into_iter());
        assert_eq!(outcome(Some(own), 0), Forwarding::Untouched);
        assert_eq!(outcome(None, 0), Forwarding::Untouched);
    }

    #[test]
    fn an_instance_that_comes_back_keeps_its_note() {
        assert_eq!(note(true, Some(WAS_OFF), [].into_iter()), WAS_OFF);
    }
}
