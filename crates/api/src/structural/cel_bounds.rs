//! What the rules of an object may cost: the interpreter itself would never give up.

use std::{
    cell::Cell,
    sync::{Arc, LazyLock},
};

use kube_cel::{
    KubeCelExt,
    cel::{
        Context, ExecutionError, IdedExpr, Value as Cel,
        common::ast::{CallExpr, EntryExpr, Expr, operators},
        extractors::This,
    },
};

use super::{
    cel::pointed,
    cel_depth::{DEEPEST, too_deep},
};

/// What all loops over one object may cost: about as many values may be copied in a second.
const MOST_STEPS: usize = 10_000_000;
/// What a turn of a loop costs beside what it has made so far, which the interpreter copies.
const TURN: usize = 20;
/// Called before every turn of a loop, and at its end, with what it has made.
const STEP: &str = "@step";
const MADE: &str = "@made";

thread_local! {
    static STEPS_LEFT: Cell<usize> = const { Cell::new(MOST_STEPS) };
}

/// Begins with the rules of another object.
pub(super) fn begin() {
    STEPS_LEFT.set(MOST_STEPS);
}

pub(super) fn used_up() -> bool {
    STEPS_LEFT.get() == 0
}

/// Adds the functions that count, and replaces those that make much out of little.
pub(super) fn add_functions(context: &mut Context<'_>) {
    context.add_function(STEP, |so_far: Cel, goes_on: Cel| {
        spend(TURN + weight(&so_far), goes_on)
    });
    context.add_function(MADE, |made: Cel| spend(weight(&made), Cel::Bool(true)));
    context.add_function("lists.range", range);
    context.add_function("format", format_values);
}

fn spend(steps: usize, value: Cel) -> Result<Cel, ExecutionError> {
    let left = STEPS_LEFT.get().saturating_sub(steps);
    STEPS_LEFT.set(left);
    match left {
        0 => Err(ExecutionError::function_error("loop", "no steps are left")),
        _ => Ok(value),
    }
}

/// How many values there are, a longer text counting as several.
fn weight(value: &Cel) -> usize {
    match value {
        Cel::List(items) => 1 + items.iter().map(weight).sum::<usize>(),
        Cel::Map(map) => 1 + map.map.values().map(weight).sum::<usize>(),
        Cel::String(text) => 1 + text.len() / 8,
        Cel::Bytes(bytes) => 1 + bytes.len() / 8,
        _ => 1,
    }
}

fn range(length: i64) -> Result<Cel, ExecutionError> {
    let refused = |said: &str| ExecutionError::function_error("lists.range", said);
    let length =
        usize::try_from(length).map_err(|_| refused("range argument must be non-negative"))?;
    if length >= STEPS_LEFT.get() {
        STEPS_LEFT.set(0);
        return Err(refused("no steps are left"));
    }
    let items: Vec<Cel> = (0_i64..).take(length).map(Cel::Int).collect();
    spend(length, Cel::List(items.into()))
}

/// `text.format(values)`: more digits than some are no number that anybody reads, and a panic of the formatter.
fn format_values(This(text): This<Arc<String>>, values: Cel) -> Result<Cel, ExecutionError> {
    const MOST_DIGITS: usize = 3;
    static UNBOUNDED: LazyLock<Context<'static>> = LazyLock::new(|| Context::default().with_all());
    let is_long = |after: &str| {
        let digits = after.bytes().take_while(u8::is_ascii_digit);
        digits.count() > MOST_DIGITS
    };
    if text.split("%.").skip(1).any(is_long) {
        let said = "invalid precision in format string";
        return Err(ExecutionError::function_error("format", said));
    }
    let mut formatted = call("format", vec![named("values")]);
    if let Expr::Call(call) = &mut formatted.expr {
        call.target = Some(Box::new(named("text")));
    }
    let mut scope = UNBOUNDED.new_inner_scope();
    scope.add_variable_from_value("text", Cel::String(text));
    scope.add_variable_from_value("values", values);
    Cel::resolve(&formatted, &scope)
}

/// Makes the loops of an expression count their steps. Fails where it nests too deep, and where it makes a message,
/// which the interpreter does not know: no rule has types of messages.
pub(super) fn bound(expression: &mut IdedExpr, source: &str) -> Result<(), String> {
    bound_within(expression, source, DEEPEST)
}

fn bound_within(expression: &mut IdedExpr, source: &str, levels: usize) -> Result<(), String> {
    let levels = levels.checked_sub(1).ok_or_else(too_deep)?;
    match &mut expression.expr {
        Expr::Comprehension(loops) => {
            let so_far = named(&loops.accu_var);
            let goes_on = std::mem::take(&mut loops.loop_cond);
            loops.loop_cond = call(STEP, vec![so_far.clone(), goes_on]);
            // not around the result: not all values come out of a function as they went in
            let result = std::mem::take(&mut loops.result);
            let counted = call(MADE, vec![so_far]);
            loops.result = call(
                operators::CONDITIONAL,
                vec![counted, result.clone(), result],
            );
        }
        Expr::Struct(message) => {
            let name = &message.type_name;
            let before = source.split('{').next().unwrap_or_default();
            let line = before.lines().count().max(1);
            let column = before
                .lines()
                .last()
                .map_or(1, |last| last.chars().count() + 1);
            let said = format!("undeclared reference to '{name}' (in container '')");
            return Err(pointed(
                source,
                (line.cast_signed(), column.cast_signed()),
                &said,
            ));
        }
        Expr::Unspecified => return Err(pointed(source, (1, 1), "unspecified expression")),
        _ => {}
    }
    parts(expression)
        .into_iter()
        .try_for_each(|part| bound_within(part, source, levels))
}

fn named(name: &str) -> IdedExpr {
    IdedExpr {
        id: 0,
        expr: Expr::Ident(name.to_owned()),
    }
}

fn call(function: &str, args: Vec<IdedExpr>) -> IdedExpr {
    let call = CallExpr {
        func_name: function.to_owned(),
        target: None,
        args,
    };
    IdedExpr {
        id: 0,
        expr: Expr::Call(call),
    }
}

/// The expressions that one is made of.
pub(super) fn parts(expression: &mut IdedExpr) -> Vec<&mut IdedExpr> {
    match &mut expression.expr {
        Expr::Call(call) => call
            .target
            .as_deref_mut()
            .into_iter()
            .chain(&mut call.args)
            .collect(),
        Expr::Select(select) => vec![&mut select.operand],
        Expr::Comprehension(loops) => vec![
            &mut loops.iter_range,
            &mut loops.accu_init,
            &mut loops.loop_cond,
            &mut loops.loop_step,
            &mut loops.result,
        ],
        Expr::List(list) => list.elements.iter_mut().collect(),
        Expr::Map(map) => {
            let entries = map.entries.iter_mut();
            entries
                .flat_map(|entry| match &mut entry.expr {
                    EntryExpr::MapEntry(entry) => vec![&mut entry.key, &mut entry.value],
                    EntryExpr::StructField(field) => vec![&mut field.value],
                })
                .collect()
        }
        Expr::Ident(_) | Expr::Literal(_) | Expr::Struct(_) | Expr::Unspecified => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::{Schema, cel::Expression};

    fn problems(rule: &str) -> Vec<String> {
        let rules = json!([{"rule": rule}]);
        let schema = json!({"type": "object", "x-kubernetes-validations": rules});
        let errors = Schema::compile(&schema).unwrap().validate(&json!({}));
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn rules_that_go_on_and_on_are_given_up() {
        let digits = "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]";
        let all =
            |levels| format!("{digits}.all(x, ").repeat(levels) + "true" + &")".repeat(levels);
        assert_eq!(problems(&all(3)), [""; 0]);
        for rule in [
            all(8),
            "lists.range(9223372036854775807).size() > 0".to_owned(),
        ] {
            let said = problems(&rule).concat();
            assert!(said.contains("running out of cost budget"), "{said}");
        }
    }

    #[test]
    fn loops_and_formats_make_what_they_made() {
        for rule in [
            "[1, 2].map(x, x * 2) == [2, 4] && [1, 2].filter(x, x > 1) == [2]",
            "[1, 2].exists_one(x, x == 2) && [1, 2].map(x, optional.of(x)).size() == 2",
            "'%s is %.2f'.format(['pi', 3.14159]) == 'pi is 3.14' && lists.range(3) == [0, 1, 2]",
        ] {
            assert_eq!(problems(rule), [""; 0], "{rule}");
        }
        assert_eq!(problems("'%.99999f'.format([1.0]) == ''").len(), 1);
    }

    #[test]
    fn a_message_is_of_no_known_type() {
        let said = Expression::parse("self == A{x: 1}").unwrap_err();
        let marked = "ERROR: <input>:1:10: undeclared reference to 'A' (in container '')\n | self == A{x: 1}\n | .........^";
        assert_eq!(said, marked);
    }
}
