//! The selected row of a list, and which rows are in sight.

use crate::key::Action;

/// The selected row of a list, and the first row in sight.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Selection {
    /// The selected row.
    pub(crate) row: usize,
    /// The first row in sight.
    pub(crate) top: usize,
    /// Rows in sight when last drawn.
    pub(crate) height: usize,
}

impl Selection {
    /// Brings selection and view into a list of `len` rows of which `height` are in sight.
    pub(crate) fn fit(&mut self, len: usize, height: usize) {
        self.height = height;
        self.row = self.row.min(len.saturating_sub(1));
        if self.row < self.top {
            self.top = self.row;
        } else if height > 0 && self.row >= self.top + height {
            self.top = self.row + 1 - height;
        }
        self.top = self.top.min(len.saturating_sub(height));
    }

    /// Moves the selection; says whether the action was one.
    pub(crate) fn act(&mut self, action: Action, len: usize) -> bool {
        let last = len.saturating_sub(1);
        let page = self.height.saturating_sub(1).max(1);
        self.row = match action {
            Action::Up => self.row.saturating_sub(1),
            Action::Down => self.row + 1,
            Action::PageUp => self.row.saturating_sub(page),
            Action::PageDown => self.row + page,
            Action::Top => 0,
            Action::Bottom => last,
            _ => return false,
        }
        .min(last);
        true
    }

    /// Scrolls text that has no selected row; says whether the action was one.
    pub(crate) fn scroll(&mut self, action: Action, len: usize) -> bool {
        let last = len.saturating_sub(self.height);
        let page = self.height.saturating_sub(1).max(1);
        self.top = match action {
            Action::Up => self.top.saturating_sub(1),
            Action::Down => self.top + 1,
            Action::PageUp => self.top.saturating_sub(page),
            Action::PageDown => self.top + page,
            Action::Top => 0,
            Action::Bottom => last,
            _ => return false,
        }
        .min(last);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_selected_row_is_always_in_sight() {
        let mut selection = Selection::default();
        selection.fit(100, 10);
        selection.act(Action::Bottom, 100);
        selection.fit(100, 10);
        assert_eq!((selection.row, selection.top), (99, 90));
        selection.fit(5, 10);
        assert_eq!((selection.row, selection.top), (4, 0));
        selection.fit(0, 10);
        assert_eq!((selection.row, selection.top), (0, 0));
    }
}
