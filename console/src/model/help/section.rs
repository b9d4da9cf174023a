//! The parts of the help: sections of entries.

/// A term, and the phrase that explains it.
pub type Entry = (&'static str, &'static str);

/// Entries with a title.
#[derive(Clone, Copy, Debug)]
pub struct Section {
    /// The title.
    pub title: &'static str,
    /// The entries, in the order of the screen.
    pub entries: &'static [Entry],
}
