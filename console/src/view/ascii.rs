//! For terminals that have ASCII and nothing else: what is drawn is replaced, cell by cell, when
//! all is drawn.
//!
//! One table for screen and text. Invariant: *a column stays a column*: each sign has one of its
//! own. What is not in the table, as a letter in the name of a task, becomes `?`.

use ratatui::buffer::Buffer;

/// Replaces what is not ASCII.
pub fn replace(buffer: &mut Buffer) {
    for cell in &mut buffer.content {
        if !cell.symbol().is_ascii() {
            let c = cell.symbol().chars().next().map_or(' ', sign);
            cell.set_char(c);
        }
    }
}

/// `text` with nothing but ASCII in it.
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
        // No letter: the letter of the phase stands beside it.
        '○' => '.',
        '◆' => '%',
        '◇' => 'v',
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
    fn the_shades_of_a_heat_map_are_told_apart() {
        let signs: BTreeSet<char> = SHADES.iter().map(|(_, shade)| sign(*shade)).collect();
        assert_eq!(signs.len(), SHADES.len(), "{signs:?}");
    }
}
