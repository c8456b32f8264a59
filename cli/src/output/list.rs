//! Plain columns without borders.

use comfy_table::{CellAlignment, ContentArrangement, Table, presets::NOTHING};

/// A table of plain columns, blanks between.
pub(crate) struct Columns {
    table: Table,
    gap: u16,
}

impl Columns {
    /// A table without rows; `gap` blanks will stand between its columns.
    pub(crate) fn new(gap: u16) -> Self {
        let mut table = Table::new();
        table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Disabled);
        Columns { table, gap }
    }

    /// Sets the line of titles.
    pub(crate) fn titles<'a>(&mut self, titles: impl Iterator<Item = &'a str>) {
        self.table.set_header(titles.collect::<Vec<_>>());
    }

    /// Adds a row.
    pub(crate) fn row(&mut self, cells: impl Iterator<Item = String>) {
        self.table.add_row(cells.collect::<Vec<_>>());
    }

    /// The text; a column whose place in `right` is true stands on the right.
    pub(crate) fn render(mut self, right: &[bool]) -> String {
        for (column, right) in self.table.column_iter_mut().zip(right) {
            column.set_padding((0, self.gap));
            if *right {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        self.table.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
    }
}
