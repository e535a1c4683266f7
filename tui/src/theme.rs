//! How things look. Colour marks severity and change; the word beside it always says the same.

use ratatui::style::{Color, Modifier, Style};

use collector::finding::Severity;

/// The themes, in the order `t` walks through them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ThemeName {
    /// For a dark background.
    #[default]
    Dark,
    /// For a light background.
    Light,
    /// Strong contrast, little colour.
    HighContrast,
    /// Blue, orange and vermillion, which stay apart in every common colour blindness (Okabe and Ito's palette).
    ColourBlind,
}

impl ThemeName {
    /// Every theme.
    pub const ALL: [Self; 4] = [Self::Dark, Self::Light, Self::HighContrast, Self::ColourBlind];

    /// The word on the command line and in the configuration.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Dark => "dark",
            Self::Light => "light",
            Self::HighContrast => "high-contrast",
            Self::ColourBlind => "colour-blind",
        }
    }

    /// The theme of a word.
    #[must_use]
    pub fn from_name(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|theme| theme.name() == word)
    }

    pub(crate) fn next(self) -> Self {
        let at = Self::ALL.iter().position(|theme| *theme == self).unwrap_or(0);
        Self::ALL[(at + 1) % Self::ALL.len()]
    }
}

/// The styles a pane may use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Theme {
    /// Ordinary text.
    pub(crate) text: Style,
    /// Units, old and unimportant things.
    pub(crate) dim: Style,
    /// What is being looked at: names, headings.
    pub(crate) strong: Style,
    /// Column titles.
    pub(crate) title: Style,
    /// Lines and section headings.
    pub(crate) rule: Style,
    /// All is well.
    pub(crate) good: Style,
    /// Worth knowing.
    pub(crate) info: Style,
    /// Look at it soon.
    pub(crate) warning: Style,
    /// Broken.
    pub(crate) critical: Style,
    /// The word that must catch the eye.
    pub(crate) alarm: Style,
    /// The selected row.
    pub(crate) selected: Style,
    /// The open tab.
    pub(crate) open_tab: Style,
    /// Received.
    pub(crate) receive: Style,
    /// Sent.
    pub(crate) send: Style,
}

impl Theme {
    /// The styles of a theme; without colour only bold, dim and reverse remain.
    pub(crate) fn new(name: ThemeName, colour: bool) -> Self {
        let plain = Style::new();
        let fg = |colour: Color| plain.fg(colour);
        let bold = |colour: Color| fg(colour).add_modifier(Modifier::BOLD);
        let reversed = plain.add_modifier(Modifier::REVERSED);
        if !colour {
            let strong = plain.add_modifier(Modifier::BOLD);
            return Self {
                text: plain,
                dim: plain.add_modifier(Modifier::DIM),
                strong,
                title: plain.add_modifier(Modifier::UNDERLINED),
                rule: plain.add_modifier(Modifier::DIM),
                good: plain,
                info: plain,
                warning: strong,
                critical: strong,
                alarm: reversed.add_modifier(Modifier::BOLD),
                selected: reversed,
                open_tab: reversed,
                receive: plain,
                send: plain,
            };
        }
        let base = |dim, good, info, warning, critical: Color, receive, send| Self {
            text: plain,
            dim: fg(dim),
            strong: plain.add_modifier(Modifier::BOLD),
            title: fg(dim).add_modifier(Modifier::BOLD),
            rule: fg(dim),
            good: fg(good),
            info: fg(info),
            warning: bold(warning),
            critical: bold(critical),
            alarm: bold(Color::White).bg(critical),
            selected: reversed,
            open_tab: reversed.add_modifier(Modifier::BOLD),
            receive: fg(receive),
            send: fg(send),
        };
        match name {
            ThemeName::Dark => base(
                Color::Indexed(245),
                Color::Indexed(71),
                Color::Indexed(74),
                Color::Indexed(214),
                Color::Indexed(160),
                Color::Indexed(67),
                Color::Indexed(72),
            )
            .selected(plain.bg(Color::Indexed(237))),
            ThemeName::Light => base(
                Color::Indexed(243),
                Color::Indexed(28),
                Color::Indexed(25),
                Color::Indexed(130),
                Color::Indexed(160),
                Color::Indexed(25),
                Color::Indexed(30),
            )
            .selected(plain.bg(Color::Indexed(254))),
            ThemeName::HighContrast => Self {
                dim: plain,
                title: plain.add_modifier(Modifier::BOLD.union(Modifier::UNDERLINED)),
                rule: plain,
                ..base(
                    Color::White,
                    Color::LightGreen,
                    Color::LightCyan,
                    Color::LightYellow,
                    Color::LightRed,
                    Color::LightCyan,
                    Color::LightGreen,
                )
            },
            ThemeName::ColourBlind => base(
                Color::Indexed(245),
                Color::Indexed(75),
                Color::Indexed(117),
                Color::Indexed(220),
                Color::Indexed(202),
                Color::Indexed(75),
                Color::Indexed(36),
            )
            .selected(plain.bg(Color::Indexed(237))),
        }
    }

    fn selected(self, selected: Style) -> Self {
        Self { selected, ..self }
    }

    /// The style of a severity.
    pub(crate) fn severity(&self, severity: Severity) -> Style {
        match severity {
            Severity::Info => self.info,
            Severity::Warning => self.warning,
            Severity::Critical => self.critical,
        }
    }

    /// The style of the severity word itself.
    pub(crate) fn severity_word(&self, severity: Severity) -> Style {
        if severity == Severity::Critical { self.alarm } else { self.severity(severity) }
    }
}

/// The severity's word in a list: four letters, so that columns stand still.
pub(crate) fn severity_word(severity: Severity) -> &'static str {
    match severity {
        Severity::Info => "INFO",
        Severity::Warning => "WARN",
        Severity::Critical => "CRIT",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_colour_no_style_has_a_colour() {
        for name in ThemeName::ALL {
            let theme = Theme::new(name, false);
            for style in [theme.text, theme.dim, theme.alarm, theme.critical, theme.selected, theme.receive] {
                assert_eq!((style.fg, style.bg), (None, None));
            }
        }
    }

    #[test]
    fn the_theme_key_comes_back_to_where_it_started() {
        let mut theme = ThemeName::Dark;
        for _ in 0..ThemeName::ALL.len() {
            theme = theme.next();
        }
        assert_eq!(theme, ThemeName::Dark);
    }
}
