//! `$(NAME)` in commands, arguments, values of variables and sub-paths.

/// Puts in what `value` knows. `$$` is a dollar sign; a name that is not known stays as it is written.
pub(super) fn expand(text: &str, mut value: impl FnMut(&str) -> Option<String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        out.push_str(before);
        rest = after;
        if let Some(after) = after.strip_prefix('$') {
            out.push('$');
            rest = after;
            continue;
        }
        let reference = after
            .strip_prefix('(')
            .and_then(|inner| inner.split_once(')'));
        match reference {
            Some((name, after)) => {
                match value(name) {
                    Some(value) => out.push_str(&value),
                    None => out.push_str(&format!("$({name})")),
                }
                rest = after;
            }
            None => out.push('$'),
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::expand;

    #[test]
    fn known_names_are_replaced_and_all_else_stays() {
        let value = |name: &str| match name {
            "A" => Some("1".to_owned()),
            "B" => Some("$(A)".to_owned()),
            "EMPTY" | "" => Some(String::new()),
            _ => None,
        };
        for (text, expanded) in [
            ("", ""),
            ("plain", "plain"),
            ("$(A)", "1"),
            ("x$(A)y$(A)z", "x1y1z"),
            ("$(B)", "$(A)"),
            ("[$(EMPTY)]", "[]"),
            ("[$()]", "[]"),
            ("$(NONE)", "$(NONE)"),
            ("$$(A)", "$(A)"),
            ("$$$(A)", "$1"),
            ("$$$$(A)", "$$(A)"),
            ("$A ${A}", "$A ${A}"),
            ("$(A", "$(A"),
            ("$(A$(A)", "$(A$(A)"),
            ("cost: 5$", "cost: 5$"),
            ("é$(A)é", "é1é"),
            ("$(N $$ $(A)", "$(N $$ $(A)"),
        ] {
            assert_eq!(expand(text, value), expanded, "{text}");
        }
    }
}
