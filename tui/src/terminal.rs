//! Takes the terminal and gives it back, whatever happens: at the end, on an error, on a signal, on a panic.

use std::io::{self, Stdout, Write, stdout};
use std::panic::PanicHookInfo;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crossterm::cursor::Show;
use crossterm::event::{DisableMouseCapture, EnableMouseCapture};
use crossterm::execute;
use crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;

/// The terminal is ours; who swaps this to false gives it back.
static TAKEN: AtomicBool = AtomicBool::new(false);
/// Panics of other threads while the terminal was ours: printing them would tear the screen.
static ELSEWHERE: Mutex<Vec<String>> = Mutex::new(Vec::new());

type Hook = Box<dyn Fn(&PanicHookInfo<'_>) + Sync + Send + 'static>;

/// The terminal while it is ours; dropping it gives it back.
pub(crate) struct Screen {
    /// Where frames are drawn.
    pub(crate) terminal: Terminal<CrosstermBackend<Stdout>>,
    hook: Arc<Hook>,
}

impl Screen {
    /// Takes the terminal: raw mode, alternate screen, mouse.
    pub(crate) fn take() -> io::Result<Self> {
        let hook = Arc::new(std::panic::take_hook());
        let before = hook.clone();
        let ours = std::thread::current().id();
        std::panic::set_hook(Box::new(move |panic| {
            if std::thread::current().id() == ours {
                give_back();
                complain(panic);
                if std::env::var_os("RUST_BACKTRACE").is_some_and(|value| value != "0") {
                    before(panic);
                }
            } else if TAKEN.load(Ordering::SeqCst) {
                ELSEWHERE.lock().unwrap_or_else(PoisonError::into_inner).push(describe(panic));
            } else {
                before(panic);
            }
        }));
        let taken = take().and_then(|()| Terminal::new(CrosstermBackend::new(stdout())));
        match taken {
            Ok(terminal) => Ok(Self { terminal, hook }),
            Err(error) => {
                give_back();
                Err(error)
            }
        }
    }

    /// Gives the terminal back while `meanwhile` runs, and takes it again; what was on it is gone.
    pub(crate) fn lend<T>(&mut self, meanwhile: impl FnOnce() -> T) -> io::Result<T> {
        give_back();
        let outcome = meanwhile();
        take()?;
        self.terminal.clear()?;
        Ok(outcome)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
        if std::thread::panicking() {
            return;
        }
        let _ours = std::panic::take_hook();
        let before = self.hook.clone();
        std::panic::set_hook(Box::new(move |panic| before(panic)));
        for line in panics_elsewhere() {
            eprintln!("rdmascope: {line}");
        }
    }
}

/// Panics of other threads since the last call.
pub(crate) fn panics_elsewhere() -> Vec<String> {
    std::mem::take(&mut ELSEWHERE.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Raw mode, alternate screen, mouse.
fn take() -> io::Result<()> {
    TAKEN.store(true, Ordering::SeqCst);
    enable_raw_mode()?;
    execute!(stdout(), EnterAlternateScreen, EnableMouseCapture)
}

/// Gives the terminal back, once. Errors are of no use here: there is nowhere to show them.
fn give_back() {
    if TAKEN.swap(false, Ordering::SeqCst) {
        let _ = execute!(stdout(), DisableMouseCapture, LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
        let _ = stdout().flush();
    }
}

fn complain(panic: &PanicHookInfo<'_>) {
    let _ = writeln!(io::stderr(), "rdmascope: {}; please report it with a recording of this moment", describe(panic));
}

fn describe(panic: &PanicHookInfo<'_>) -> String {
    let payload = panic.payload();
    let text = payload.downcast_ref::<&str>().copied();
    let message = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
    let place = panic.location().map_or_else(String::new, |place| format!(" at {}:{}", place.file(), place.line()));
    format!("internal error{place}: {message}")
}
