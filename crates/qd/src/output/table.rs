//! Text in columns.

use crate::output::Style;

/// One line of a table.
pub(crate) struct TableRow {
    pub(crate) cells: Vec<String>,
    /// Something here wants a person's eye.
    pub(crate) is_marked: bool,
    /// Lines that stand below the row, as they are.
    pub(crate) below: String,
}

impl TableRow {
    pub(crate) fn new(cells: Vec<String>) -> TableRow {
        TableRow { cells, is_marked: false, below: String::new() }
    }
}

/// The columns as wide as they need to be, the titles first.
pub(crate) fn table(head: &[&str], rows: impl IntoIterator<Item = TableRow>, style: Style) -> String {
    let rows: Vec<TableRow> = rows.into_iter().collect();
    let mut widths: Vec<usize> = head.iter().map(|title| title.chars().count()).collect();
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(&row.cells) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let head: Vec<String> = head.iter().map(|title| (*title).to_owned()).collect();
    let mut text = style.bold(&line(&head, &widths)) + "\n";
    for row in &rows {
        let line = line(&row.cells, &widths);
        text.push_str(&if row.is_marked { style.yellow(&line) } else { line });
        text.push('\n');
        text.push_str(&row.below);
    }
    text
}

fn line(cells: &[String], widths: &[usize]) -> String {
    let padded: Vec<String> =
        cells.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
    padded.join("  ").trim_end().to_owned()
}
