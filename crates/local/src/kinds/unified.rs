//! Unified diffs with three lines of context, which find the same lines equal as the API server's do.

use std::collections::HashMap;
use std::fmt::Write;

const CONTEXT: usize = 3;
/// In a long text, lines that are this common are not what a match starts from.
const LONG: usize = 200;

/// The same lines in both texts: from where in each, and how many.
#[derive(Clone, Copy, Debug)]
struct Same {
    old: usize,
    new: usize,
    length: usize,
}

/// Lines that changed: those of the old text stand for those of the new.
#[derive(Clone, Copy, Debug)]
struct Change {
    old: (usize, usize),
    new: (usize, usize),
}

/// The diff of two texts; empty if they are equal.
pub(super) fn diff(old: &str, new: &str) -> String {
    let old: Vec<&str> = old.split('\n').collect();
    let new: Vec<&str> = new.split('\n').collect();
    let mut out = String::new();
    for hunk in hunks(&changes(&old, &new)) {
        write_hunk(&mut out, &hunk, &old, &new);
    }
    out
}

fn changes(old: &[&str], new: &[&str]) -> Vec<Change> {
    let places = places(new);
    let mut same = Vec::new();
    let mut rest = vec![((0, old.len()), (0, new.len()))];
    while let Some((of_old, of_new)) = rest.pop() {
        let longest = longest(old, new, &places, of_old, of_new);
        if longest.length == 0 {
            continue;
        }
        same.push(longest);
        rest.push(((of_old.0, longest.old), (of_new.0, longest.new)));
        let (end_old, end_new) = (longest.old + longest.length, longest.new + longest.length);
        rest.push(((end_old, of_old.1), (end_new, of_new.1)));
    }
    same.sort_by_key(|same| same.old);
    same.push(Same {
        old: old.len(),
        new: new.len(),
        length: 0,
    });
    let mut changes = Vec::new();
    let (mut at_old, mut at_new) = (0, 0);
    for Same { old, new, length } in same {
        if at_old < old || at_new < new {
            changes.push(Change {
                old: (at_old, old),
                new: (at_new, new),
            });
        }
        (at_old, at_new) = (old + length, new + length);
    }
    changes
}

/// Where each line is, without lines that are everywhere.
fn places<'a>(lines: &[&'a str]) -> HashMap<&'a str, Vec<usize>> {
    let mut places: HashMap<&str, Vec<usize>> = HashMap::new();
    for (index, line) in lines.iter().enumerate() {
        places.entry(line).or_default().push(index);
    }
    if lines.len() >= LONG {
        let most = lines.len() / 100 + 1;
        places.retain(|_, places| places.len() <= most);
    }
    places
}

/// The longest run of equal lines within bounds; the first in the old text, then in the new.
fn longest(
    old: &[&str],
    new: &[&str],
    places: &HashMap<&str, Vec<usize>>,
    of_old: (usize, usize),
    of_new: (usize, usize),
) -> Same {
    let mut best = Same {
        old: of_old.0,
        new: of_new.0,
        length: 0,
    };
    let mut runs: HashMap<usize, usize> = HashMap::new();
    for (index, line) in old.iter().enumerate().take(of_old.1).skip(of_old.0) {
        let mut next = HashMap::new();
        let within = places.get(line).into_iter().flatten();
        for place in within.filter(|place| (of_new.0..of_new.1).contains(place)) {
            let before = place.checked_sub(1).and_then(|before| runs.get(&before));
            let length = before.unwrap_or(&0) + 1;
            next.insert(*place, length);
            if length > best.length {
                best = Same {
                    old: index + 1 - length,
                    new: place + 1 - length,
                    length,
                };
            }
        }
        runs = next;
    }
    while best.old > of_old.0 && best.new > of_new.0 && old[best.old - 1] == new[best.new - 1] {
        best.old -= 1;
        best.new -= 1;
        best.length += 1;
    }
    while best.old + best.length < of_old.1
        && best.new + best.length < of_new.1
        && old[best.old + best.length] == new[best.new + best.length]
    {
        best.length += 1;
    }
    best
}

/// Changes that are shown together, as they are near each other.
fn hunks(changes: &[Change]) -> Vec<Vec<Change>> {
    let mut hunks: Vec<Vec<Change>> = Vec::new();
    for change in changes {
        let last = hunks.last_mut();
        match last.filter(|hunk| {
            let before = hunk.last().map_or(0, |last| last.old.1);
            change.old.0 - before <= 2 * CONTEXT
        }) {
            Some(hunk) => hunk.push(*change),
            None => hunks.push(vec![*change]),
        }
    }
    hunks
}

fn write_hunk(out: &mut String, hunk: &[Change], old: &[&str], new: &[&str]) {
    let (Some(first), Some(last)) = (hunk.first(), hunk.last()) else {
        return;
    };
    let lead = CONTEXT.min(first.old.0).min(first.new.0);
    let trail = CONTEXT.min(old.len() - last.old.1);
    let of_old = range(first.old.0 - lead, last.old.1 + trail);
    let of_new = range(first.new.0 - lead, last.new.1 + trail);
    // writing into a string cannot fail
    _ = writeln!(out, "@@ -{of_old} +{of_new} @@");
    let mut lines = |sign: char, lines: &[&str]| {
        for line in lines {
            _ = writeln!(out, "{sign}{line}");
        }
    };
    let mut at = first.old.0 - lead;
    for change in hunk {
        lines(' ', &old[at..change.old.0]);
        lines('-', &old[change.old.0..change.old.1]);
        lines('+', &new[change.new.0..change.new.1]);
        at = change.old.1;
    }
    lines(' ', &old[at..at + trail]);
}

fn range(start: usize, end: usize) -> String {
    match end - start {
        0 => format!("{start},0"),
        1 => format!("{}", start + 1),
        length => format!("{},{length}", start + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::diff;

    #[test]
    fn equal_texts_have_no_difference() {
        assert_eq!(diff("a\nb", "a\nb"), "");
    }

    #[test]
    fn a_change_is_shown_with_its_neighbours() {
        let old = "1\n2\n3\n4\n5\n6\n7\n8\n9";
        let new = "1\n2\n3\n4\nfive\n6\n7\n8\n9";
        let shown = "@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+five\n 6\n 7\n 8\n";
        assert_eq!(diff(old, new), shown);
    }

    #[test]
    fn changes_far_from_each_other_are_shown_apart() {
        let old: Vec<String> = (1..=20).map(|n| n.to_string()).collect();
        let mut new = old.clone();
        new[0] = "x".to_owned();
        new[19] = "y".to_owned();
        let shown = diff(&old.join("\n"), &new.join("\n"));
        assert_eq!(shown.matches("@@ -").count(), 2, "{shown}");
        assert!(
            shown.starts_with("@@ -1,4 +1,4 @@\n-1\n+x\n 2\n"),
            "{shown}"
        );
    }

    #[test]
    fn lines_that_are_only_new_stand_after_those_before_them() {
        assert_eq!(diff("a\nb", "a\nx\nb"), "@@ -1,2 +1,3 @@\n a\n+x\n b\n");
    }
}
