//! Warnings to the client: as many as headers should hold, and all the same whether a write is tried once or twice.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// How many letters all warnings may have together before each is cut, and none is added any more.
const MOST: usize = 4 * 1024;
const LONGEST_OF_MANY: usize = 256;

/// What the client should know, whether the request succeeds or not.
#[derive(Default)]
pub(super) struct Warnings(Mutex<Said>);

#[derive(Default)]
struct Said {
    texts: Vec<String>,
    letters: usize,
    cut: bool,
}

impl Warnings {
    pub(super) fn add(&self, warning: &str) {
        self.said().add(warning);
    }

    pub(super) fn take(&self) -> Vec<String> {
        let said = std::mem::take(&mut *self.said());
        match said.cut {
            true => said.texts.iter().map(|text| cut(text)).collect(),
            false => said.texts,
        }
    }

    fn said(&self) -> MutexGuard<'_, Said> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Said {
    fn add(&mut self, warning: &str) {
        let is_full = self.cut && self.letters >= MOST;
        // a change that is tried again finds the same again
        if is_full || self.texts.iter().any(|known| known == warning) {
            return;
        }
        self.texts.push(warning.to_owned());
        let length = warning.chars().count();
        if self.cut {
            self.letters += length.min(LONGEST_OF_MANY);
        } else if self.letters + length <= MOST {
            self.letters += length;
        } else {
            self.cut = true;
            let lengths = self.texts.iter().map(|text| text.chars().count());
            self.letters = lengths.map(|length| length.min(LONGEST_OF_MANY)).sum();
        }
    }
}

fn cut(text: &str) -> String {
    text.chars().take(LONGEST_OF_MANY).collect()
}

#[cfg(test)]
mod tests {
    use super::{LONGEST_OF_MANY, MOST, Warnings};

    #[test]
    fn a_warning_is_given_once() {
        let warnings = Warnings::default();
        for warning in ["a", "b", "a"] {
            warnings.add(warning);
        }
        assert_eq!(warnings.take(), ["a", "b"]);
    }

    #[test]
    fn one_long_warning_is_whole_and_many_are_cut() {
        let warnings = Warnings::default();
        let long = "é".repeat(MOST);
        warnings.add(&long);
        assert_eq!(warnings.take(), [long.as_str()]);
        warnings.add(&long);
        for number in 0..100_000 {
            warnings.add(&format!("{number:0300}"));
        }
        let given = warnings.take();
        assert_eq!(given.len(), MOST / LONGEST_OF_MANY);
        assert!(
            given
                .iter()
                .all(|text| text.chars().count() == LONGEST_OF_MANY)
        );
    }
}
