//! A walk through all panes of one screen.

use end_to_end::tmux::Tmux;

use crate::Scenario;

/// The panes by the titles of their tabs.
pub(crate) const PANES: [&str; 9] = ["Overview", "Port", "QPs", "QP", "Findings", "ECN", "PCIe", "Failover", "Self"];

/// The size at which every fact is in sight.
pub(crate) const USUAL: (u16, u16) = (120, 40);
/// Sizes the screen is given on the way, the last one too small for anything.
const OTHERS: [(u16, u16); 3] = [(80, 24), (60, 16), (200, 60)];
const TOO_SMALL: (u16, u16) = (40, 8);

/// Through all panes, with the mouse over their lists, and at every size.
pub(crate) fn walk(tmux: &Tmux, index: usize, scenario: &Scenario) {
    for (pane, title) in (1..).zip(PANES) {
        // Each pane is reached by its key in one scenario and by a click on its tab in the next.
        if (pane + index).is_multiple_of(2) {
            tmux.press(&[&pane.to_string()]);
        } else {
            tmux.click_on(&format!("{pane} {title}"), 1);
        }
        tmux.shows(&scenario.facts(pane));
    }
    lists(tmux);
    keys(tmux, scenario);
    sizes(tmux, scenario);
}

/// The row of the screen that is selected (►), if one is.
fn selected(screen: &str) -> Option<usize> {
    screen.lines().position(|line| line.starts_with('►'))
}

/// In every pane with a list a click selects a row and the wheel moves from it.
fn lists(tmux: &Tmux) {
    // Pane, the row that is clicked, and whether the wheel has three rows to go from there.
    for (pane, row, rows) in [("1", 4, 3), ("3", 7, 3), ("6", 6, 3), ("7", 8, 3)] {
        tmux.press(&[pane]);
        let title = format!("{pane} {}", PANES[pane.parse::<usize>().expect("a number") - 1]);
        // The pane's list is there, and the row is not selected yet, or the click would open it.
        let there =
            |screen: &str| screen.contains(&title) && screen.lines().nth(row).is_some_and(|l| l.starts_with(' '));
        assert!(tmux.until(there).is_ok(), "{title}: {}", tmux.screen());
        let at = |wanted: usize| {
            let moved = tmux.until(|screen| selected(screen) == Some(wanted));
            moved.unwrap_or_else(|screen| panic!("{title}: row {wanted} is not selected:\n{screen}"));
        };
        tmux.click((10, row));
        at(row);
        tmux.wheel(true, (10, row));
        at(row + rows);
        tmux.wheel(false, (10, row));
        at(row);
    }
    // A selected port is opened by a click.
    tmux.press(&["1"]);
    tmux.shows(&["►mlx5_1 "]);
    tmux.click_on("►mlx5_1 ", 2);
    tmux.shows(&[" mlx5_1/1 ", " COUNTER "]);
    // The counters of a port, and what is told of a QP on a small screen, are scrolled by the wheel.
    let first = |screen: &str| {
        let title = screen.lines().position(|line| line.starts_with(" COUNTER "))?;
        screen.lines().nth(title + 1).map(str::to_owned)
    };
    let before = first(&tmux.screen()).expect("counters");
    tmux.wheel(true, (10, 30));
    assert!(tmux.until(|screen| first(screen).is_some_and(|now| now != before)).is_ok(), "the counters do not move");
    tmux.wheel(false, (10, 30));
    assert!(
        tmux.until(|screen| first(screen).is_some_and(|now| now == before)).is_ok(),
        "the counters do not come back"
    );
}

/// Help, back again, a filter, a cursor, a theme.
fn keys(tmux: &Tmux, scenario: &Scenario) {
    tmux.press(&["5", "?"]);
    tmux.shows(&["5 Findings   Down Up scroll, any other key closes", "What rules concluded"]);
    tmux.press(&["Escape"]);
    tmux.shows(&scenario.facts(5));
    if scenario.name != "healthy" {
        tmux.press(&["Enter", "h", "h", "h"]);
        tmux.shows(&[" at    14:0", "◆"]);
        // Two of them at once would be another key to a terminal.
        tmux.press(&["Escape"]);
        tmux.shows(&[" until 14:0"]);
        tmux.press(&["Escape"]);
        tmux.shows(&scenario.facts(5));
    }
    tmux.press(&["3", "/"]);
    tmux.type_text("comm=ko2 qpn>1");
    tmux.press(&["Enter"]);
    // The storage port's.
    tmux.shows(&[if scenario.qps_per_port.is_some() { " 64 of 98,368 QPs" } else { " 16 of 528 QPs" }]);
    tmux.press(&["Escape"]);
    tmux.shows(&scenario.facts(3));
    tmux.press(&["t"]);
    tmux.shows(&["theme light"]);
}

/// Everything is where it belongs after each change of the size.
fn sizes(tmux: &Tmux, scenario: &Scenario) {
    for size in OTHERS {
        tmux.press(&["1"]);
        tmux.resize(TOO_SMALL);
        tmux.shows(&["rdmascope needs 60×16, this is 40×8"]);
        tmux.resize(size);
        tmux.shows(&[&scenario.told, "1 Overview", "q quit"]);
        for (pane, title) in (1..).zip(PANES) {
            tmux.press(&[&pane.to_string()]);
            // On narrow screens only the open tab has its whole name.
            let screen = tmux.shows(&[&format!("{pane} {title}"), "14:0", "? help  q quit"]);
            let lines: Vec<&str> = screen.lines().collect();
            assert_eq!(lines.len(), usize::from(size.1), "{size:?} {title}:\n{screen}");
            assert!(lines[lines.len() - 1].contains("q quit"), "{size:?} {title}:\n{screen}");
            assert!(
                lines.iter().all(|line| line.chars().count() <= usize::from(size.0)),
                "{size:?} {title}:\n{screen}"
            );
        }
    }
    tmux.resize(USUAL);
    for pane in [1, 5, 8] {
        tmux.press(&[&pane.to_string()]);
        tmux.shows(&scenario.facts(pane));
    }
}
