//! The limits of one value: bounds, lengths, counts, choices.

use serde_json::{Map, Value, json};

use super::{
    check::{Kind, Outcome, Problem},
    golang::{self, Num},
    node::{Node, Type},
    path::Path,
};

/// Whether a value is a choice; numbers are converted to the type of the choice, as the API server does.
pub(super) fn same(value: &Value, choice: &Value) -> bool {
    match (value, choice) {
        (_, Value::Null) => false,
        (Value::Number(value), Value::Number(choice)) => match (Num::of(value), Num::of(choice)) {
            (value, Num::Float(choice)) => value.float() == choice,
            (Num::Int(value), Num::Int(choice)) => value == choice,
            (Num::Float(value), choice @ Num::Int(_)) => value.trunc() == choice.float(),
        },
        (value, choice) => value == choice,
    }
}

pub(super) fn string(node: &Node, text: &str, path: &Path<'_>, outcome: &mut Outcome) {
    let Some(limits) = &node.limits else {
        return;
    };
    let problem = |kind, said: &str| Problem::at(path, kind, json!(text), said);
    let length = || count(text.chars().count());
    if let Some(most) = limits.max_length.filter(|most| length() > *most) {
        let said = format!("should be at most {most} chars long");
        outcome.add(problem(Kind::TooLong(most), &said));
    } else if let Some(least) = limits.min_length.filter(|least| length() < *least) {
        let said = format!("should be at least {least} chars long");
        outcome.add(problem(Kind::Other, &said));
    } else if let Some(pattern) = &limits.pattern
        && pattern.compiled().is_ok_and(|regex| !regex.is_match(text))
    {
        let said = format!("should match '{}'", pattern.text);
        outcome.add(problem(Kind::Other, &said));
    }
}

pub(super) fn items(node: &Node, list: &[Value], path: &Path<'_>, outcome: &mut Outcome) {
    let Some(limits) = &node.limits else {
        return;
    };
    let size = count(list.len());
    if let Some(least) = limits.min_items.filter(|least| size < *least) {
        let said = format!("should have at least {least} items");
        outcome.add(Problem::at(path, Kind::Other, json!(size), &said));
    }
    if let Some(most) = limits.max_items.filter(|most| size > *most) {
        let said = format!("should have at most {most} items");
        outcome.add(Problem::at(
            path,
            Kind::TooMany(size, most),
            json!(size),
            &said,
        ));
    }
    let twice = |index: usize| list[..index].contains(&list[index]);
    if limits.unique_items && (1..list.len()).any(twice) {
        let said = "shouldn't contain duplicates";
        outcome.add(Problem::at(path, Kind::Other, json!(""), said));
    }
}

pub(super) fn properties(
    node: &Node,
    fields: &Map<String, Value>,
    path: &Path<'_>,
    outcome: &mut Outcome,
) {
    let Some(limits) = &node.limits else {
        return;
    };
    let size = count(fields.len());
    if let Some(least) = limits.min_properties.filter(|least| size < *least) {
        let said = format!("should have at least {least} properties");
        outcome.add(Problem::at(path, Kind::Other, json!(size), &said));
    }
    if let Some(most) = limits.max_properties.filter(|most| size > *most) {
        let said = format!("should have at most {most} properties");
        outcome.add(Problem::at(
            path,
            Kind::TooMany(size, most),
            json!(size),
            &said,
        ));
    }
}

fn count(length: usize) -> i64 {
    i64::try_from(length).unwrap_or(i64::MAX)
}

/// The range that a type and its format have.
struct Range<'a> {
    kind: Option<Type>,
    format: &'a str,
}

impl<'a> Range<'a> {
    fn of(node: &'a Node) -> Self {
        let kind = match node.types.as_slice() {
            [one @ (Type::Integer | Type::Number)] => Some(*one),
            _ => None,
        };
        Self {
            kind,
            format: node.format.as_ref().map_or("", |(name, _)| name),
        }
    }

    fn holds(&self, number: Num) -> bool {
        match (self.kind, number) {
            (Some(Type::Integer), Num::Int(int)) => {
                self.format != "int32" || i32::try_from(int).is_ok()
            }
            (Some(Type::Integer), Num::Float(float)) => {
                let most = match self.format {
                    "int32" => 2_147_483_648.0,
                    _ => 9_223_372_036_854_775_808.0,
                };
                float.fract() == 0.0 && (-most..most).contains(&float)
            }
            (Some(Type::Number), number) if self.format == "float" => {
                number.float().abs() <= f64::from(f32::MAX)
            }
            _ => true,
        }
    }

    fn problem(&self, what: &str, path: &Path<'_>) -> Problem {
        let kind = self.kind.map_or("", Type::name);
        let format = match self.format {
            "" => "(default format)".to_owned(),
            format => format!("with format {format}"),
        };
        Problem::nameless(format!(
            "{what} value must be of type {kind} {format} in {}",
            path.dotted()
        ))
    }
}

pub(super) fn number(node: &Node, number: Num, path: &Path<'_>, outcome: &mut Outcome) {
    let range = Range::of(node);
    if !range.holds(number) {
        outcome.add(range.problem("Checked", path));
    }
    let Some(limits) = &node.limits else {
        return;
    };
    let value = match number {
        Num::Int(int) => json!(int),
        Num::Float(float) => json!(float),
    };
    if let (Some(factor), Num::Int(_)) = (limits.multiple_of, number)
        && range.holds(Num::Float(factor))
        && whole(factor) == 0
    {
        outcome.add(Problem::bad_factor(path, value.clone(), 0));
    }
    let mut limit = |limit: Option<f64>, what: &str, said: &dyn Fn(Num, Num) -> Option<String>| {
        let Some(limit) = limit else {
            return;
        };
        // an integer is compared with the whole part of a limit, unless the limit cannot be an integer at all
        let (left, right) = match (range.holds(Num::Float(limit)), number) {
            (false, number) => {
                outcome.add(range.problem(what, path));
                (Num::Float(number.float()), Num::Float(limit))
            }
            (true, Num::Int(_)) => (number, Num::Int(whole(limit))),
            (true, Num::Float(_)) => (number, Num::Float(limit)),
        };
        if let Some(said) = said(left, right) {
            outcome.add(Problem::at(path, Kind::Other, value.clone(), &said));
        }
    };
    limit(limits.multiple_of, "MultipleOf", &|value, factor| {
        let exact = match (value, factor) {
            (Num::Int(_), Num::Int(0)) => true,
            (Num::Int(value), Num::Int(factor)) => value % factor == 0,
            (value, factor) if factor.float() < 1.0 => {
                golang::is_whole(1.0 / factor.float() * value.float())
            }
            (value, factor) => golang::is_whole(value.float() / factor.float()),
        };
        (!exact).then(|| format!("should be a multiple of {factor}"))
    });
    limit(
        limits.minimum,
        "Minimum boundary",
        &|value, least| match limits.exclusive_minimum {
            true => (!less(least, value)).then(|| format!("should be greater than {least}")),
            false => {
                less(value, least).then(|| format!("should be greater than or equal to {least}"))
            }
        },
    );
    limit(
        limits.maximum,
        "Maximum boundary",
        &|value, most| match limits.exclusive_maximum {
            true => (!less(value, most)).then(|| format!("should be less than {most}")),
            false => less(most, value).then(|| format!("should be less than or equal to {most}")),
        },
    );
}

fn less(left: Num, right: Num) -> bool {
    match (left, right) {
        (Num::Int(left), Num::Int(right)) => left < right,
        (left, right) => left.float() < right.float(),
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "a limit beyond 64 bits is the largest there is"
)]
fn whole(limit: f64) -> i64 {
    limit as i64
}
