//! A line diff: the longest common subsequence, with a few unchanged lines around each change.

use std::fmt::Write as _;

const CONTEXT: usize = 4;

enum Line<'a> {
    Same(&'a str),
    Expected(&'a str),
    Got(&'a str),
}

pub(crate) fn lines(expected: &str, got: &str) -> String {
    let (a, b): (Vec<&str>, Vec<&str>) = (expected.lines().collect(), got.lines().collect());
    let lines = align(&a, &b);
    let changed: Vec<bool> = lines
        .iter()
        .map(|line| !matches!(line, Line::Same(_)))
        .collect();
    let near = |index: usize| {
        let from = index.saturating_sub(CONTEXT);
        let to = (index + CONTEXT + 1).min(changed.len());
        changed[from..to].contains(&true)
    };
    let mut text = String::new();
    let mut skipped = false;
    for (index, line) in lines.iter().enumerate() {
        let (sign, line) = match line {
            Line::Same(line) => (' ', line),
            Line::Expected(line) => ('-', line),
            Line::Got(line) => ('+', line),
        };
        // a request stays, so that each change says what was asked
        if near(index) || line.starts_with("> ") {
            let _ = writeln!(text, "{sign}{line}");
            skipped = false;
        } else if !skipped {
            text.push_str(" …\n");
            skipped = true;
        }
    }
    text
}

fn align<'a>(a: &[&'a str], b: &[&'a str]) -> Vec<Line<'a>> {
    // common[i][j]: length of the longest common subsequence of a[i..] and b[j..]
    let mut common = vec![vec![0_u32; b.len() + 1]; a.len() + 1];
    for i in (0..a.len()).rev() {
        for j in (0..b.len()).rev() {
            common[i][j] = if a[i] == b[j] {
                common[i + 1][j + 1] + 1
            } else {
                common[i + 1][j].max(common[i][j + 1])
            };
        }
    }
    let (mut i, mut j, mut lines) = (0, 0, Vec::new());
    while i < a.len() || j < b.len() {
        if i < a.len() && j < b.len() && a[i] == b[j] {
            lines.push(Line::Same(a[i]));
            (i, j) = (i + 1, j + 1);
        } else if j == b.len() || (i < a.len() && common[i + 1][j] >= common[i][j + 1]) {
            lines.push(Line::Expected(a[i]));
            i += 1;
        } else {
            lines.push(Line::Got(b[j]));
            j += 1;
        }
    }
    lines
}
