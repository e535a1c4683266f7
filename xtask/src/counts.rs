//! Test counts out of what `cargo test` prints.

use std::ops::AddAssign;

/// How a test that finds it cannot run here says so, at the start of a line of its output.
const SKIP_MARK: &str = "skipped: ";

/// How a function that is no test, but a measurement or a tool run by hand through the test harness, is marked:
/// `#[ignore = "tool: …"]`. It is neither passed nor skipped. Any other ignored test counts as skipped.
const TOOL_MARK: &str = " ... ignored, tool: ";

/// Tests by how they ended.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) skipped: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

impl std::fmt::Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

/// Reads `cargo test … -- --show-output` line by line.
#[derive(Default)]
pub(crate) struct Reader {
    total: Counts,
    /// The counts of the test program that `set_aside` names.
    aside: Counts,
    set_aside: Option<&'static str>,
    is_aside: bool,
    /// Skips of the current program: its tests pass, and only say in their output that they did nothing.
    skips: u64,
    /// Tools of the current program.
    tools: u64,
}

impl Reader {
    /// Counts apart the tests of the program whose source is `source`, as cargo prints it.
    pub(crate) fn setting_aside(source: &'static str) -> Self {
        Self { set_aside: Some(source), ..Self::default() }
    }

    /// Takes the next line.
    pub(crate) fn line(&mut self, line: &str) {
        let line = line.trim();
        if line.starts_with(SKIP_MARK) {
            self.skips += 1;
        } else if line.starts_with("test ") && line.contains(TOOL_MARK) {
            self.tools += 1;
        } else if let Some(program) = line.strip_prefix("Running ") {
            self.begin(self.set_aside.is_some_and(|source| program.split_whitespace().next() == Some(source)));
        } else if line.starts_with("Doc-tests ") {
            self.begin(false);
        } else if let Some(result) = line.strip_prefix("test result: ") {
            let number = |word: &str| {
                let before = result.split(word).next()?;
                before.trim_end().rsplit(' ').next()?.parse::<u64>().ok()
            };
            let passed = number(" passed;").unwrap_or_default();
            let skips = self.skips.min(passed);
            let counts = Counts {
                passed: passed - skips,
                failed: number(" failed;").unwrap_or_default(),
                skipped: number(" ignored;").unwrap_or_default().saturating_sub(self.tools) + skips,
            };
            (self.skips, self.tools) = (0, 0);
            *(if self.is_aside { &mut self.aside } else { &mut self.total }) += counts;
        }
    }

    fn begin(&mut self, aside: bool) {
        self.is_aside = aside;
        (self.skips, self.tools) = (0, 0);
    }

    /// The counts, without what was set aside; and the latter.
    pub(crate) fn finish(self) -> (Counts, Counts) {
        (self.total, self.aside)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "
     Running unittests src/lib.rs (target/debug/deps/collector-1)
test a ... ok
test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s
     Running tests/vm.rs (target/debug/deps/vm-1)
successes:
---- bench stdout ----
skipped: no results of a guest
---- traffic stdout ----
skipped: no results of a guest
test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
     Running tests/cases.rs (target/debug/deps/cases-1)
---- one stdout ----
skipped: no promtool
test result: FAILED. 4 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
   Doc-tests collector
test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
";

    #[test]
    fn a_test_that_says_it_did_nothing_counts_as_skipped_not_as_passed() {
        let mut reader = Reader::default();
        OUTPUT.lines().for_each(|line| reader.line(line));
        let (total, aside) = reader.finish();
        assert_eq!(total, Counts { passed: 7, failed: 2, skipped: 4 });
        assert_eq!(aside, Counts::default());
    }

    #[test]
    fn a_tool_is_no_skipped_test_and_any_other_ignored_test_is() {
        let mut reader = Reader::default();
        reader.line("     Running unittests src/lib.rs (target/debug/deps/collector-1)");
        reader.line("test a ... ignored, tool: records something");
        reader.line("test b ... ignored, flaky");
        reader.line("test result: ok. 3 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0.00s");
        assert_eq!(reader.finish().0, Counts { passed: 3, failed: 0, skipped: 1 });
    }

    #[test]
    fn the_program_that_is_set_aside_is_not_in_the_total() {
        let mut reader = Reader::setting_aside("tests/vm.rs");
        OUTPUT.lines().for_each(|line| reader.line(line));
        let (total, aside) = reader.finish();
        assert_eq!(total, Counts { passed: 7, failed: 2, skipped: 2 });
        assert_eq!(aside, Counts { passed: 0, failed: 0, skipped: 2 });
    }

    #[test]
    fn counts_are_printed_as_the_last_line_promises() {
        let counts = Counts { passed: 12, failed: 0, skipped: 3 };
        assert_eq!(counts.to_string(), "12 passed, 0 failed, 3 skipped");
    }
}
