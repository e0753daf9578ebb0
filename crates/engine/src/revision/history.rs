//! The revisions that an object has had: where a template belongs among them, and which may go.
//!
//! Going back copies nothing: the old revision gets the highest number again.

use serde_json::Value;

use super::{Form, canonical_form};

/// How many revisions that nothing uses are kept unless the object says otherwise.
pub const DEFAULT_LIMIT: usize = 10;

/// A revision that is stored.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stored<'a> {
    pub name: &'a str,
    /// The highest one is the wanted one.
    pub number: i64,
    pub template: &'a Value,
    /// Something still refers to it: the object itself, a member, a claimed sandbox, a checkpoint or a paused snapshot.
    pub is_used: bool,
}

/// Where a template belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place<'a> {
    /// It is the latest one already.
    Latest { name: &'a str },
    /// It is an earlier one, which gets this number.
    Raise { name: &'a str, to: i64 },
    /// It is new and gets this number.
    Create { number: i64 },
}

/// Finds the place of a template by its canonical form, metadata included.
pub fn place<'a>(form: Form, template: &Value, stored: &[Stored<'a>]) -> Place<'a> {
    let wanted = canonical_form(form, template);
    let latest = stored.iter().map(|it| it.number).max();
    let next = latest.map_or(1, |latest| latest.saturating_add(1));
    let same = stored
        .iter()
        .filter(|it| canonical_form(form, it.template) == wanted);
    match same.max_by_key(|it| it.number) {
        Some(it) if Some(it.number) == latest => Place::Latest { name: it.name },
        Some(it) => Place::Raise {
            name: it.name,
            to: next,
        },
        None => Place::Create { number: next },
    }
}

/// The names of revisions that may be deleted, oldest first: of those that nothing uses, all beyond the newest `limit`.
pub fn surplus<'a>(stored: &[Stored<'a>], limit: usize) -> Vec<&'a str> {
    let mut unused: Vec<&Stored<'a>> = stored.iter().filter(|it| !it.is_used).collect();
    unused.sort_by_key(|it| it.number);
    let beyond = unused.len().saturating_sub(limit);
    unused.iter().take(beyond).map(|it| it.name).collect()
}

/// Why there is nothing to go back to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoWayBack {
    #[error("there is no earlier revision to go back to")]
    NoEarlier,
    #[error("there is no revision {0}")]
    NoSuch(i64),
    #[error("revision {0} is the current one")]
    IsCurrent(i64),
}

/// The revision to go back to: the one asked for, or the one before the latest.
pub fn undo<'s, 'a>(
    stored: &'s [Stored<'a>],
    to: Option<i64>,
) -> Result<&'s Stored<'a>, NoWayBack> {
    let latest = stored.iter().map(|it| it.number).max();
    match to {
        Some(number) if Some(number) == latest => Err(NoWayBack::IsCurrent(number)),
        Some(number) => {
            let found = stored.iter().find(|it| it.number == number);
            found.ok_or(NoWayBack::NoSuch(number))
        }
        None => {
            let earlier = stored.iter().filter(|it| Some(it.number) != latest);
            earlier
                .max_by_key(|it| it.number)
                .ok_or(NoWayBack::NoEarlier)
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Form, NoWayBack, Place, Stored, place, surplus, undo};

    fn template(image: &str) -> Value {
        json!({"spec": {"containers": [{"name": "c", "image": image}]}})
    }

    #[test]
    fn a_known_template_is_raised_and_never_copied() {
        let (one, two) = (template("i:1"), template("i:2"));
        let stored = |name, number, template| Stored {
            name,
            number,
            template,
            is_used: true,
        };
        let history = [stored("a", 1, &one), stored("b", 2, &two)];
        let of = |template: &Value| place(Form::PodTemplate, template, &history);
        let mut spelled = template("i:2");
        spelled["spec"]["restartPolicy"] = json!("Always");
        assert_eq!(of(&spelled), Place::Latest { name: "b" });
        assert_eq!(of(&template("i:1")), Place::Raise { name: "a", to: 3 });
        assert_eq!(of(&template("i:3")), Place::Create { number: 3 });
        let labelled = json!({"metadata": {"labels": {"a": "b"}}, "spec": two["spec"]});
        assert_eq!(of(&labelled), Place::Create { number: 3 });
        let first = place(Form::PodTemplate, &one, &[]);
        assert_eq!(first, Place::Create { number: 1 });
    }

    #[test]
    fn only_what_nothing_uses_goes_and_the_oldest_first() {
        let any = Value::Null;
        let stored = |name, number, is_used| Stored {
            name,
            number,
            template: &any,
            is_used,
        };
        let history = [
            stored("d", 4, false),
            stored("a", 1, true),
            stored("c", 3, false),
            stored("b", 2, false),
            stored("e", 5, true),
        ];
        assert_eq!(surplus(&history, 1), ["b", "c"]);
        assert_eq!(surplus(&history, 0), ["b", "c", "d"]);
        assert!(surplus(&history, 3).is_empty());
        assert_eq!(undo(&history, None).map(|it| it.name), Ok("d"));
        assert_eq!(undo(&history, Some(1)).map(|it| it.name), Ok("a"));
        assert_eq!(undo(&history, Some(5)), Err(NoWayBack::IsCurrent(5)));
        assert_eq!(undo(&history, Some(9)), Err(NoWayBack::NoSuch(9)));
        assert_eq!(undo(&history[1..2], None), Err(NoWayBack::NoEarlier));
    }
}
