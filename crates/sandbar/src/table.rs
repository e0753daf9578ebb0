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

/// How long ago something was, in the largest unit that says enough.
pub(crate) fn age(seconds: i64) -> String {
    match seconds.max(0) {
        seconds @ 0..=119 => format!("{seconds}s"),
        seconds @ 120..=7_199 => format!("{}m", seconds / 60),
        seconds @ 7_200..=172_799 => format!("{}h", seconds / 3_600),
        seconds => format!("{}d", seconds / 86_400),
    }
}
