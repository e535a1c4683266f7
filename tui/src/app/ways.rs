//! From pane to pane: what a pane asks to have opened, and the way back.

use collector::observation::Nanos;

use super::App;
use crate::pane::{PaneId, Reaction, Scene, Target};

impl App {
    pub(super) fn react(&mut self, reaction: Reaction, now: Nanos) {
        match reaction {
            Reaction::Ignored | Reaction::Done => {}
            Reaction::Copy(text, what) => {
                self.say(&format!("{what} copied: {} lines (if the terminal allows it)", text.lines().count()), now);
                self.copied = Some(text);
            }
            Reaction::Open(target) => {
                let pane = match target {
                    Target::Port(key) => {
                        self.panes.port.show(key);
                        PaneId::Port
                    }
                    Target::Qp(id) => {
                        self.panes.qp.show(id);
                        PaneId::Qp
                    }
                    Target::Finding(rule, key) => {
                        self.panes.findings.show(rule, key);
                        PaneId::Findings
                    }
                };
                self.go(pane);
            }
        }
    }

    pub(super) fn go(&mut self, pane: PaneId) {
        if pane != self.open {
            self.trail.retain(|before| *before != pane);
            self.trail.push(self.open);
            self.arrive(pane);
        }
        self.help = None;
    }

    /// Opens a pane. The overview is where every way begins: from there none leads back.
    pub(super) fn arrive(&mut self, pane: PaneId) {
        self.open = pane;
        if pane == PaneId::Overview {
            self.trail.clear();
        }
    }

    /// Opens a pane; one that shows a single thing shows what is selected here.
    pub(super) fn go_to_selected(&mut self, pane: PaneId) {
        let shown = self.shown.clone();
        let status = &self.latest.status;
        let (world, generation) = (&shown.world, shown.generation);
        let scene = Scene { world, status, coverage: &self.coverage.1, generation, theme: &self.theme };
        match self.panes.get(self.open).points_at(pane, scene) {
            Some(target) if pane != self.open => self.react(Reaction::Open(target), 0),
            _ => self.go(pane),
        }
    }

    pub(super) fn turn(&mut self, by: usize) {
        let at = PaneId::ALL.iter().position(|pane| *pane == self.open).unwrap_or(0);
        self.go(PaneId::ALL[(at + by) % PaneId::ALL.len()]);
    }
}
