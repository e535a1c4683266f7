//! The screen and its terminal (tmux): what becomes of the one when the other ends, and that it is given back as it was.

use std::process::Command;

use end_to_end::binary::{self, runs};
use end_to_end::tmux::{Modes, Tmux};

const SIZE: (u16, u16) = (120, 40);

/// The demo as the window's only program.
fn demo(name: &str) -> Option<Tmux> {
    let tmux = Tmux::binary(name, SIZE, "demo")?;
    tmux.shows(&["Overview"]);
    Some(tmux)
}

#[test]
fn the_screen_ends_when_its_terminal_goes_away() {
    let Some(tmux) = demo("gone") else { return };
    let pid = tmux.pid();
    assert!(runs(pid));
    tmux.kill();
    tmux.wait("the end of the process", || !runs(pid));
}

/// Runs the demo from a shell, ends it, and looks at what is left: `code` is what it ends with, `said` what it leaves on the
/// screen.
fn given_back(name: &str, variables: &str, end: impl Fn(&Tmux), code: u8, said: &[&str]) {
    let Some(tmux) = Tmux::shell(name, SIZE) else { return };
    assert_eq!(tmux.modes(), Modes::PLAIN);
    let (dir, binary) = (tmux.dir().display(), binary::path().display());
    tmux.type_text(&format!("cd {dir}; stty -g > before; sh -c 'echo $$ > pid; exec env {variables} {binary} demo'"));
    tmux.press(&["Enter"]);
    tmux.shows(&["1 Overview", "q quit"]);
    let taken = Modes { alternate_screen: true, cursor: false, mouse: true };
    tmux.wait("the terminal taken", || tmux.modes() == taken);
    end(&tmux);
    // The shell takes the next command, which is typed only when the terminal is its own again.
    tmux.wait("the terminal given back", || tmux.modes() == Modes::PLAIN);
    tmux.type_text("echo left $?; stty -g > after; echo next$((40 + 2))");
    tmux.press(&["Enter"]);
    let screen = tmux.shows(&[&format!("left {code}\n"), "next42\n"]);
    // What was there before the program is there again, and nothing of its frames.
    assert!(screen.contains("stty -g > before") && !screen.contains("Overview"), "{screen}");
    let joined = tmux.joined();
    for line in said {
        assert!(joined.lines().any(|l| l.contains(line)), "{line:?} is missing:\n{joined}");
    }
    for noise in ["panicked", "RUST_BACKTRACE", "stack backtrace"] {
        assert!(!joined.contains(noise), "{joined}");
    }
    let read = |file: &str| std::fs::read_to_string(tmux.dir().join(file)).expect("the shell wrote it");
    assert_eq!(read("before"), read("after"), "echo, line mode and the rest are as they were");
    assert!(!read("before").trim().is_empty());
}

/// Sends a signal to what [`given_back`] runs.
fn signal(tmux: &Tmux, signal: &str) {
    let pid = std::fs::read_to_string(tmux.dir().join("pid")).expect("the shell wrote it");
    let killed = Command::new("kill").args([signal, pid.trim()]).status().expect("kill runs");
    assert!(killed.success());
}

#[test]
fn q_gives_the_terminal_back() {
    given_back("q", "", |tmux| tmux.press(&["q"]), 0, &[]);
}

#[test]
fn control_c_gives_the_terminal_back() {
    given_back("ctrl-c", "", |tmux| tmux.press(&["C-c"]), 0, &[]);
}

#[test]
fn a_termination_signal_gives_the_terminal_back() {
    given_back("term", "", |tmux| signal(tmux, "-TERM"), 0, &[]);
}

#[test]
fn a_signal_that_asks_for_a_core_gives_the_terminal_back_first() {
    // 128 and the signal's number: the shell says that it ended the program.
    given_back("quit", "", |tmux| signal(tmux, "-QUIT"), 131, &[]);
}

#[test]
fn control_z_gives_the_terminal_to_the_shell_and_fg_takes_it_again() {
    let Some(tmux) = Tmux::shell("stop", SIZE) else { return };
    tmux.type_text(&format!("{} demo", binary::path().display()));
    tmux.press(&["Enter"]);
    let taken = Modes { alternate_screen: true, cursor: false, mouse: true };
    for _ in 0..2 {
        tmux.wait("the terminal taken", || tmux.modes() == taken);
        tmux.shows(&["1 Overview", "q quit"]);
        tmux.press(&["C-z"]);
        tmux.wait("the terminal given back", || tmux.modes() == Modes::PLAIN);
        tmux.type_text("fg");
        tmux.press(&["Enter"]);
    }
    tmux.shows(&["1 Overview", "q quit"]);
    tmux.press(&["q"]);
    tmux.wait("the terminal given back", || tmux.modes() == Modes::PLAIN);
}

#[test]
fn a_panic_gives_the_terminal_back_and_says_what_happened_in_one_line() {
    if !cfg!(debug_assertions) {
        println!("skipped: a release build cannot be made to panic");
        return;
    }
    let said = [": a test asked for it; please report it with a recording of this moment"];
    let variable = "SCREEN_FAILS_ON_F12=1";
    given_back("panic", variable, |tmux| tmux.press(&["F12"]), 101, &said);
}

#[test]
fn a_service_ends_properly_when_the_terminal_it_was_started_on_goes_away() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let recording = dir.path().join("r.jsonl");
    let arguments = format!("collect --scenario healthy --socket off --record {}", recording.display());
    let Some(tmux) = Tmux::binary("service", SIZE, &arguments) else { return };
    tmux.shows(&["collecting"]);
    let pid = tmux.pid();
    tmux.kill();
    tmux.wait("the end of the process", || !runs(pid));
    let path = recording.display().to_string();
    let read = binary::Run::of(["ports", "--json", "--recording", &path]);
    assert_eq!((read.code, read.stderr.as_str()), (Some(0), ""), "the recording is whole");
}
