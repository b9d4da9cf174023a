//! The styles of values: the 16 named colours of the terminal's palette, or no colours.
//!
//! Invariant *no meaning depends on colour alone*: a letter, a word or a mark expresses the same,
//! so that nothing is lost with `NO_COLOR`, on a monochrome terminal, or for users who cannot
//! distinguish red from green.

use ratatui::style::{Color, Modifier, Style};
use volt_telemetry::snapshot::Phase;

use crate::facts::Tone;
use crate::facts::incidents::Whose;

/// The style of the screens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Theme {
    has_colors: bool,
    is_ascii: bool,
}

impl Theme {
    /// Creates a theme with the 16 colours, or with only bold and dim.
    pub fn new(has_colors: bool) -> Theme {
        Theme { has_colors, is_ascii: false }
    }

    /// Sets whether the screen has only ASCII characters.
    pub fn with_ascii(self, is_ascii: bool) -> Theme {
        Theme { is_ascii, ..self }
    }

    /// Returns whether the screen has only ASCII characters.
    pub fn is_ascii(self) -> bool {
        self.is_ascii
    }

    /// Creates a theme without colours if `NO_COLOR` is set and not empty, as
    /// <https://no-color.org> specifies.
    pub fn of_environment() -> Theme {
        Theme::new(std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()))
    }

    fn fg(self, color: Color) -> Style {
        if self.has_colors { Style::new().fg(color) } else { Style::new() }
    }

    /// Returns the style of a value.
    pub fn tone(self, tone: Tone) -> Style {
        match tone {
            Tone::Quiet => self.label(),
            Tone::Plain => Style::new(),
            Tone::Warn => self.fg(Color::Yellow).add_modifier(Modifier::BOLD),
            Tone::Alarm => self.fg(Color::Red).add_modifier(Modifier::BOLD),
        }
    }

    /// Returns the style of a label.
    pub fn label(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    /// Returns the style of the title of a group or panel.
    pub fn title(self) -> Style {
        self.fg(Color::Cyan)
    }

    /// Returns the style of the most important text on a line.
    pub fn strong(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// Returns the style of the program's name.
    pub fn header(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// Returns the style of a good state.
    pub fn good(self) -> Style {
        self.fg(Color::Green)
    }

    /// Returns the style of the keys in the last line, and of the mark of a pause.
    pub fn selected(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    /// Returns the style of curves and bars.
    pub fn curve(self) -> Style {
        self.fg(Color::Green)
    }

    /// Returns the style of a call of a stack.
    pub fn call(self, whose: Whose) -> Style {
        match whose {
            Whose::Guilty => self.fg(Color::Yellow).add_modifier(Modifier::BOLD),
            Whose::User => self.strong(),
            Whose::Library => self.label(),
        }
    }

    /// Returns the style of a worker's phase.
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
