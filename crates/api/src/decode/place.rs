//! Where a value stands, as a chain on the stack: written out only when there is something to say about it.

use super::types::{Field, Struct};

#[derive(Clone, Copy)]
enum Step<'a> {
    Field(&'a Struct, &'a Field, &'a str),
    Key(&'a str),
    Index(usize),
}

/// A place in an object.
#[derive(Clone, Copy)]
pub(super) struct Place<'a>(Option<(&'a Place<'a>, Step<'a>)>);

impl<'a> Place<'a> {
    pub(super) const ROOT: Self = Self(None);

    pub(super) fn field(&'a self, of: &'a Struct, field: &'a Field, name: &'a str) -> Self {
        Self(Some((self, Step::Field(of, field, name))))
    }

    pub(super) fn key(&'a self, key: &'a str) -> Self {
        Self(Some((self, Step::Key(key))))
    }

    pub(super) fn index(&'a self, index: usize) -> Self {
        Self(Some((self, Step::Index(index))))
    }

    /// The path of a field below, as in `spec.containers[0].name`.
    pub(super) fn below(&self, name: &str) -> String {
        let mut out = String::new();
        self.write(&mut out);
        if !out.is_empty() {
            out.push('.');
        }
        out.push_str(name);
        out
    }

    fn write(&self, out: &mut String) {
        let Some((parent, step)) = self.0 else {
            return;
        };
        parent.write(out);
        match step {
            Step::Field(_, _, name) | Step::Key(name) => {
                if !out.is_empty() {
                    out.push('.');
                }
                out.push_str(name);
            }
            Step::Index(index) => out.push_str(&format!("[{index}]")),
        }
    }

    /// What Go says about a value of the wrong type: it names fields only, and the struct that has the innermost.
    pub(super) fn mismatch(&self, found: &str, wanted: &str) -> String {
        let mut path = String::new();
        match self.fields(&mut path) {
            Some(of) => format!(
                "json: cannot unmarshal {found} into Go struct field {}.{path} of type {wanted}",
                of.name
            ),
            None => format!("json: cannot unmarshal {found} into Go value of type {wanted}"),
        }
    }

    fn fields(&self, out: &mut String) -> Option<&'a Struct> {
        let (parent, step) = self.0?;
        let outer = parent.fields(out);
        let Step::Field(of, field, name) = step else {
            return outer;
        };
        for part in field.embedded.iter().map(String::as_str).chain([name]) {
            if !out.is_empty() {
                out.push('.');
            }
            out.push_str(part);
        }
        Some(of)
    }
}
