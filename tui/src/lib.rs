//! The screens of `rdmascope`.
//!
//! ```text
//! feed ──▶ screen (event loop) ──▶ app (what is open, what is shown) ──▶ frame (header, tabs, footer) + one pane
//! ```
//!
//! * [`screen`]: the event loop; `terminal` takes and gives back the terminal, `signals` ends the loop. [`headless`] turns it
//!   without a terminal, to be measured.
//! * `app`: which pane is open, what it shows, where keys and clicks go. `key` is the one table of keys; `?` reads it.
//! * `pane`: one file per pane. A pane reads a [`collector::inventory::World`], never a source.
//! * `moments`: worlds of the last minutes, for a frozen screen that is led back.
//! * Shared by panes: `number` (how numbers look), `theme` (how things look), `table` (columns that give way in a stated
//!   order), `selection`, `lane` (charts on one time axis), `filter` (the filter language), `health` (the health word).

mod app;
mod ascii;
mod filter;
mod frame;
pub mod headless;
mod health;
mod help;
mod input;
mod key;
mod lane;
mod moments;
mod number;
mod pane;
pub mod screen;
mod selection;
mod signals;
mod table;
mod terminal;
mod theme;

#[cfg(test)]
mod sample;
#[cfg(test)]
mod scenarios;
#[cfg(test)]
mod snapshots;
#[cfg(test)]
mod tour;

pub use pane::PaneId;
pub use screen::{ColorChoice, ScreenOptions, run};
pub use theme::ThemeName;
