//! Output for terminals that only have ASCII: after a frame is drawn, its cells are replaced one by
//! one.
//!
//! Screens and text use the same table. Invariant *a column stays a column*: each character is
//! replaced by exactly one. Characters that are not in the table, such as letters in the name of a
//! task, become `?`.

use ratatui::buffer::Buffer;

/// Replaces every cell that is not ASCII.
pub fn replace(buffer: &mut Buffer) {
    for cell in &mut buffer.content {
        if !cell.symbol().is_ascii() {
            let c = cell.symbol().chars().next().map_or(' ', sign);
            cell.set_char(c);
        }
    }
}

/// Returns `text` with only ASCII characters.
///
/// ```
/// assert_eq!(volt_console::view::ascii::text("●busy ██▌··· 1.2µs"), "*busy ###... 1.2us");
/// ```
pub fn text(text: &str) -> String {
    text.chars().map(sign).collect()
}

fn sign(c: char) -> char {
    match c {
        c if c.is_ascii() => c,
        '─' | '━' => '-',
        '│' => '|',
        '╭' | '╮' | '╰' | '╯' => '+',
        '█' | '▉' | '▊' | '▋' | '▌' | '▇' | '▆' => '#',
        '▍' | '▎' | '▏' | '▒' | '▅' | '▄' => '+',
        '░' | '▃' | '▂' => ':',
        '·' | '▁' => '.',
        '●' | '▓' => '*',
        // Not letters, because the letter of the phase is next to them.
        '○' => '.',
        '◆' => '%',
        '◇' => '_',
        '▸' | '▶' | '→' => '>',
        '←' => '<',
        '↑' | '▲' => '^',
        '↓' | '▼' => 'v',
        '■' => '=',
        '✗' | '╳' | '×' => 'x',
        '…' => '~',
        'µ' => 'u',
        _ => '?',
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::view::screens::latency::SHADES;

    #[test]
    fn the_four_lamps_differ_and_are_no_letters() {
        let signs: BTreeSet<char> = "○●◇◆".chars().map(sign).collect();
        assert!(signs.len() == 4 && !signs.iter().any(char::is_ascii_alphabetic), "{signs:?}");
    }

    #[test]
    fn the_shades_of_a_heat_map_differ() {
        let signs: BTreeSet<char> = SHADES.iter().map(|(_, shade)| sign(*shade)).collect();
        assert_eq!(signs.len(), SHADES.len(), "{signs:?}");
    }
}
