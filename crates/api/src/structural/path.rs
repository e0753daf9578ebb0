//! Where a value stands, as a chain on the stack: a path is written out only when there is an error to report.

use std::fmt::Write;

/// One step towards a value.
#[derive(Clone, Copy)]
pub(super) enum Step<'a> {
    /// A property.
    Field(&'a str),
    /// An entry of a map.
    Key(&'a str),
    /// An item of a list.
    Index(usize),
}

/// A place in an object.
#[derive(Clone, Copy, Default)]
pub(super) struct Path<'a>(Option<(&'a Path<'a>, Step<'a>)>);

impl<'a> Path<'a> {
    pub(super) const ROOT: Self = Self(None);

    pub(super) fn is_root(&self) -> bool {
        self.0.is_none()
    }

    pub(super) fn field(&'a self, name: &'a str) -> Self {
        Self(Some((self, Step::Field(name))))
    }

    pub(super) fn key(&'a self, name: &'a str) -> Self {
        Self(Some((self, Step::Key(name))))
    }

    pub(super) fn index(&'a self, index: usize) -> Self {
        Self(Some((self, Step::Index(index))))
    }

    fn write(&self, out: &mut String, brackets: bool) {
        let Some((parent, step)) = &self.0 else {
            return;
        };
        parent.write(out, brackets);
        match step {
            Step::Field(name) => {
                if !out.is_empty() {
                    out.push('.');
                }
                out.push_str(name);
            }
            Step::Key(name) if brackets => _ = write!(out, "[{name}]"),
            // an entry has its dot even at the root
            Step::Key(name) => _ = write!(out, ".{name}"),
            Step::Index(index) => _ = write!(out, "[{index}]"),
        }
    }

    /// `spec.map.key[0]`: the way of schema validation and of unknown fields.
    pub(super) fn dotted(&self) -> String {
        let mut out = String::new();
        self.write(&mut out, false);
        out
    }

    /// `spec.map[key][0]` below a prefix: the way of every other check. A place without a name is `<nil>`.
    pub(super) fn bracketed(&self, prefix: &str) -> String {
        let mut out = prefix.to_owned();
        self.write(&mut out, true);
        if out.is_empty() {
            out.push_str("<nil>");
        }
        out
    }
}
