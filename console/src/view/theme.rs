//! What meanings look like: the 16 named colours of the terminal's own palette, or none.
//!
//! Invariant: *no colour carries meaning alone*. Beside each stands a letter, a word or a mark, so
//! that `NO_COLOR`, a monochrome terminal and a reader who cannot tell red from green lose nothing.

use ratatui::style::{Color, Modifier, Style};
use volt_telemetry::snapshot::Phase;

use crate::facts::Tone;
use crate::facts::incidents::Whose;

/// How to draw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Theme {
    has_colors: bool,
    is_ascii: bool,
}

impl Theme {
    /// With the 16 colours, or with bold and dim alone.
    pub fn new(has_colors: bool) -> Theme {
        Theme { has_colors, is_ascii: false }
    }

    /// With nothing but ASCII on the screen, or with all that a terminal can draw.
    pub fn with_ascii(self, is_ascii: bool) -> Theme {
        Theme { is_ascii, ..self }
    }

    /// Whether there is to be nothing but ASCII.
    pub fn is_ascii(self) -> bool {
        self.is_ascii
    }

    /// Without colours when `NO_COLOR` is set to anything, as <https://no-color.org> has it.
    pub fn of_environment() -> Theme {
        Theme::new(std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()))
    }

    fn fg(self, color: Color) -> Style {
        if self.has_colors { Style::new().fg(color) } else { Style::new() }
    }

    /// A value.
    pub fn tone(self, tone: Tone) -> Style {
        match tone {
            Tone::Quiet => self.label(),
            Tone::Plain => Style::new(),
            Tone::Warn => self.fg(Color::Yellow).add_modifier(Modifier::BOLD),
            Tone::Alarm => self.fg(Color::Red).add_modifier(Modifier::BOLD),
        }
    }

    /// What stands beside a value.
    pub fn label(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    /// Titles of groups and panels.
    pub fn title(self) -> Style {
        self.fg(Color::Cyan)
    }

    /// What matters most on its line.
    pub fn strong(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// The line at the top.
    pub fn header(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// All is well.
    pub fn good(self) -> Style {
        self.fg(Color::Green)
    }

    /// The selected tab.
    pub fn selected(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    /// Curves and bars.
    pub fn curve(self) -> Style {
        self.fg(Color::Green)
    }

    /// A call of a stack.
    pub fn call(self, whose: Whose) -> Style {
        match whose {
            Whose::Guilty => self.fg(Color::Yellow).add_modifier(Modifier::BOLD),
            Whose::User => self.strong(),
            Whose::Library => self.label(),
        }
    }

    /// A worker's phase.
    pub fn phase(self, phase: Phase) -> Style {
        match phase {
            Phase::Busy => self.fg(Color::Green),
            Phase::Searching => self.fg(Color::Yellow),
            Phase::Driver => self.fg(Color::Cyan),
            Phase::Maintenance => self.fg(Color::Magenta),
            Phase::Parked => self.label(),
            _ => self.fg(Color::Red),
        }
    }
}
