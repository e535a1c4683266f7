//! A real terminal for the binary: tmux with one window, driven by keys and mouse, read as text.

use std::process::Command;
use std::time::Duration;

use crate::binary::{self, wait_looking};

/// Longer than anything takes on a busy machine.
const LONG: Duration = Duration::from_secs(60);

/// Time between two looks: each starts a process.
const LOOKS: Duration = Duration::from_millis(20);

/// What tmux is told first: the whole window is the program's, and a key is a key at once.
const CONFIGURATION: &str = "set -g status off
set -g history-limit 200
set -s escape-time 0
";

/// A tmux server of its own with one window.
pub struct Tmux {
    name: String,
    dir: tempfile::TempDir,
}

/// What tmux knows of the terminal's modes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Modes {
    /// The alternate screen is shown.
    pub alternate_screen: bool,
    /// The cursor is shown.
    pub cursor: bool,
    /// Clicks are reported to the program.
    pub mouse: bool,
}

impl Modes {
    /// As a shell has them.
    pub const PLAIN: Self = Self { alternate_screen: false, cursor: true, mouse: false };
}

impl Tmux {
    /// A window in which a shell command runs; prints the skip where there is no tmux.
    ///
    /// # Panics
    /// It does not start.
    #[must_use]
    pub fn run(name: &str, (columns, rows): (u16, u16), command: &str) -> Option<Self> {
        if Command::new("tmux").arg("-V").output().is_err() {
            println!("skipped: tmux is not installed");
            return None;
        }
        let dir = tempfile::tempdir().expect("a temporary directory");
        let configuration = dir.path().join("tmux.conf");
        std::fs::write(&configuration, CONFIGURATION).expect("it can be written");
        let tmux = Self { name: format!("rdmascope-{name}-{}", std::process::id()), dir };
        let (columns, rows) = (columns.to_string(), rows.to_string());
        let file = configuration.display().to_string();
        tmux.tmux(&["-f", &file, "new-session", "-d", "-x", &columns, "-y", &rows, command]);
        Some(tmux)
    }

    /// A window in which the binary runs with these arguments.
    #[must_use]
    pub fn binary(name: &str, size: (u16, u16), arguments: &str) -> Option<Self> {
        Self::run(name, size, &format!("exec {} {arguments}", binary::path().display()))
    }

    /// A window in which a shell waits for commands, with nothing of the caller's own set-up.
    #[must_use]
    pub fn shell(name: &str, size: (u16, u16)) -> Option<Self> {
        let tmux = Self::run(name, size, "PS1='$ ' exec bash --norc --noprofile")?;
        tmux.shows(&["$"]);
        Some(tmux)
    }

    /// A directory for what the window's commands leave.
    #[must_use]
    pub fn dir(&self) -> &std::path::Path {
        self.dir.path()
    }

    fn tmux(&self, arguments: &[&str]) -> String {
        let mut command = Command::new("tmux");
        // A variable of the caller's may change what the screen looks like.
        for variable in ["NO_COLOR", "TMUX", "RUST_BACKTRACE"] {
            command.env_remove(variable);
        }
        let output = command.env("LC_ALL", "C.UTF-8").args(["-u", "-L", &self.name]).args(arguments).output();
        String::from_utf8_lossy(&output.expect("tmux runs").stdout).into_owned()
    }

    fn told(&self, format: &str) -> String {
        self.tmux(&["display-message", "-p", format]).trim().to_owned()
    }

    /// The process of the window's command.
    ///
    /// # Panics
    /// There is none.
    #[must_use]
    pub fn pid(&self) -> u32 {
        let text = self.told("#{pane_pid}");
        text.parse().unwrap_or_else(|_| panic!("no pid: {text:?}"))
    }

    /// The terminal's modes.
    #[must_use]
    pub fn modes(&self) -> Modes {
        let text = self.told("#{alternate_on} #{cursor_flag} #{mouse_any_flag}");
        let flags: Vec<bool> = text.split(' ').map(|flag| flag == "1").collect();
        assert_eq!(flags.len(), 3, "{text:?}");
        Modes { alternate_screen: flags[0], cursor: flags[1], mouse: flags[2] }
    }

    /// Ends the server, and with it whatever runs in the window.
    pub fn kill(&self) {
        self.tmux(&["kill-server"]);
    }

    /// What stands on the screen, line by line without the spaces at their ends.
    #[must_use]
    pub fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    /// The same with each line that was too long for the screen in one piece.
    #[must_use]
    pub fn joined(&self) -> String {
        self.tmux(&["capture-pane", "-p", "-J"])
    }

    /// Waits until all of these stand on the screen; gives back what does then.
    ///
    /// # Panics
    /// They never do.
    #[allow(clippy::must_use_candidate, reason = "to have waited is often enough")]
    pub fn shows(&self, words: &[&str]) -> String {
        let missing = |screen: &str| words.iter().find(|word| !screen.contains(**word)).copied();
        let found = self.until(|screen| missing(screen).is_none());
        found.unwrap_or_else(|screen| panic!("{:?} is not on the screen:\n{screen}", missing(&screen)))
    }

    /// Waits until something holds of the screen; the screen then, or at the end.
    ///
    /// # Errors
    /// The screen at the end, when it never does.
    pub fn until(&self, holds: impl Fn(&str) -> bool) -> Result<String, String> {
        let mut screen = String::new();
        let came = wait_looking(LOOKS, LONG, || {
            screen = self.screen();
            holds(&screen)
        });
        if came { Ok(screen) } else { Err(screen) }
    }

    /// Waits for something else.
    ///
    /// # Panics
    /// It never comes.
    pub fn wait(&self, what: &str, done: impl Fn() -> bool) {
        assert!(wait_looking(LOOKS, LONG, done), "{what} did not come:\n{}", self.screen());
    }

    /// Presses keys, named as tmux names them: `q`, `Enter`, `Left`, `C-c`.
    pub fn press(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"], keys].concat());
    }

    /// Types a text as it is.
    pub fn type_text(&self, text: &str) {
        self.tmux(&["send-keys", "-l", "--", text]);
    }

    /// Sends bytes as the terminal would.
    fn send(&self, bytes: &str) {
        let bytes: Vec<String> = bytes.bytes().map(|byte| format!("{byte:02x}")).collect();
        let bytes: Vec<&str> = bytes.iter().map(String::as_str).collect();
        self.tmux(&[&["send-keys", "-H"], bytes.as_slice()].concat());
    }

    /// Clicks with the left button (xterm's SGR reports: button, column, row; both from 1).
    pub fn click(&self, (column, row): (usize, usize)) {
        let at = format!("0;{};{}", column + 1, row + 1);
        self.send(&format!("\x1b[<{at}M\x1b[<{at}m"));
    }

    /// Clicks on the first place at which a text stands, in a line at or below one.
    ///
    /// # Panics
    /// It does not stand there.
    pub fn click_on(&self, text: &str, from: usize) {
        let screen = self.screen();
        let place = screen.lines().enumerate().skip(from).find_map(|(row, line)| {
            let before = line.split(text).next().filter(|before| before.len() < line.len())?;
            Some((before.chars().count(), row))
        });
        self.click(place.unwrap_or_else(|| panic!("{text:?} is not on the screen:\n{screen}")));
    }

    /// Turns the wheel by one notch, at a place.
    pub fn wheel(&self, down: bool, (column, row): (usize, usize)) {
        self.send(&format!("\x1b[<{};{};{}M", if down { 65 } else { 64 }, column + 1, row + 1));
    }

    /// Gives the window another size.
    pub fn resize(&self, (columns, rows): (u16, u16)) {
        self.tmux(&["resize-window", "-x", &columns.to_string(), "-y", &rows.to_string()]);
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        self.kill();
    }
}
