//! Tables as kubectl prints them.

/// Columns as wide as their widest cell.
pub(crate) fn render<const COLUMNS: usize>(rows: &[[String; COLUMNS]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..COLUMNS)
        .map(|column| width(column).unwrap_or(0))
        .collect();
    let mut text = String::new();
    for row in rows {
        let cells = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:<width$}"));
        let line = cells.collect::<Vec<_>>().join("   ");
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Columns as kubectl sets them for any kind: at least six wide with the space behind them, and never narrower than they once were.
#[derive(Default)]
pub(crate) struct Columns {
    widths: Vec<usize>,
}

impl Columns {
    const LEAST: usize = 6;
    const SPACE: usize = 3;

    /// The lines of rows that are printed together. The last cell of a row has nothing behind it.
    pub(crate) fn render(&mut self, rows: &[Vec<String>]) -> String {
        for row in rows {
            let columns = row.len().saturating_sub(1);
            self.widths
                .resize(self.widths.len().max(columns), Self::LEAST);
            for (cell, width) in row.iter().take(columns).zip(&mut self.widths) {
                *width = (*width).max(cell.chars().count() + Self::SPACE);
            }
        }
        let mut text = String::new();
        for row in rows {
            let Some((last, cells)) = row.split_last() else {
                continue;
            };
            for (cell, width) in cells.iter().zip(&self.widths) {
                text.push_str(&format!("{cell:<width$}"));
            }
            text.push_str(last);
            text.push('\n');
        }
        text
    }
}

/// How long ago something was, in the largest unit that says enough.
pub(crate) fn age(seconds: i64) -> String {
    match seconds.max(0) {
        seconds @ 0..=119 => format!("{seconds}s"),
        seconds @ 120..=7_199 => format!("{}m", seconds / 60),
        seconds @ 7_200..=172_799 => format!("{}h", seconds / 3_600),
        seconds => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::Columns;

    fn rows<const COLUMNS: usize>(rows: &[[&str; COLUMNS]]) -> Vec<Vec<String>> {
        let owned = |row: &[&str; COLUMNS]| row.map(str::to_owned).to_vec();
        rows.iter().map(owned).collect()
    }

    #[test]
    fn columns_are_six_wide_or_three_more_than_their_widest_cell() {
        let mut columns = Columns::default();
        let text = columns.render(&rows(&[["NAME", "A", "AGE"], ["longer", "x", "5s"]]));
        assert_eq!(text, "NAME     A     AGE\nlonger   x     5s\n");
    }

    #[test]
    fn columns_do_not_shrink_while_one_watches() {
        let mut columns = Columns::default();
        columns.render(&rows(&[["longer-name", "1"]]));
        assert_eq!(columns.render(&rows(&[["a", "2"]])), "a             2\n");
        columns.render(&rows(&[["a-much-longer-name", "3"]]));
        assert_eq!(
            columns.render(&rows(&[["b", "4"]])),
            "b                    4\n"
        );
    }
}
