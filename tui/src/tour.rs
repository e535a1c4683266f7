//! The captures in docs/tour.md and README.md are what the screen shows: each block behind a line
//! `<!-- screen: SCENARIO SECOND COLUMNSxROWS [KEY…] -->` is held against it.

use std::path::Path;

use crate::scenarios::{Play, SECOND, screen};

/// The pages, and how many captures each has at least: of a healthy node and of each fault; of one.
const PAGES: [(&str, usize); 2] = [
    (concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/tour.md"), 9),
    (concat!(env!("CARGO_MANIFEST_DIR"), "/../README.md"), 1),
];
const BEGIN: &str = "<!-- screen: ";

/// The page with its captures made anew.
fn made_anew(page: &str) -> String {
    let mut made = String::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        made += line;
        made.push('\n');
        let Some(asked) = line.strip_prefix(BEGIN).and_then(|rest| rest.strip_suffix(" -->")) else { continue };
        assert_eq!(lines.next(), Some("```text"), "behind {line}");
        // What was there.
        assert!(lines.any(|line| line == "```"), "a block without an end behind {line}");
        made += &format!("```text\n{}```\n", capture(asked));
    }
    made
}

/// The screen of a scenario at a second, at a size, after keys.
fn capture(asked: &str) -> String {
    let words: Vec<&str> = asked.split_whitespace().collect();
    let [scenario, second, size, keys @ ..] = words.as_slice() else { panic!("`{asked}` is no screen") };
    let (columns, rows) = size.split_once('x').expect("a size is COLUMNSxROWS");
    let size = (columns.parse().expect("a number"), rows.parse().expect("a number"));
    let feed = Play::new(scenario).feed(second.parse::<u64>().expect("a number") * SECOND);
    screen(feed, size, keys)
}

#[test]
fn the_captures_of_the_tour_are_what_the_screen_shows() {
    for (path, least) in PAGES {
        let page = std::fs::read_to_string(Path::new(path)).expect("the page is there");
        let made = made_anew(&page);
        assert!(page.matches(BEGIN).count() >= least, "{path}");
        for (shown, written) in made.lines().zip(page.lines()) {
            assert_eq!(shown, written, "cargo test -p rdmascope --lib write_the_tour -- --ignored");
        }
        assert_eq!(made, page);
    }
}

/// Not a test but a tool: `cargo test -p rdmascope --lib write_the_tour -- --ignored`.
#[test]
#[ignore = "tool: writes the captures of docs/tour.md and README.md"]
fn write_the_tour() {
    for (path, _) in PAGES {
        let page = std::fs::read_to_string(path).expect("the page is there");
        std::fs::write(path, made_anew(&page)).expect("it can be written");
    }
}
