//! The doctor screen: the findings, the worst first, and below them the selected finding with its
//! evidence, its lines of code, and what to change. If the selected finding does not fit, the page
//! keys turn its pages.

use std::ops::Range;

use ratatui::Frame;
use ratatui::layout::{Constraint, Rect};
use ratatui::text::{Line, Span};
use volt_diagnosis::doctor::rule::RULES;
use volt_telemetry::finding::{Finding, Place, Severity};

use crate::model::{Model, tone_of};
use crate::text::figures::{head, left, tail, width, wrapped};
use crate::view::hits::Hits;
use crate::view::parts::layout::{self, TITLE_WIDTH, draw_lines, draw_message, draw_rows, part, rows, window};
use crate::view::theme::Theme;

/// The widths of the severity with its mark, the rule, and the runtime.
const SEVERITY_WIDTH: usize = 10;
const RULE_WIDTH: usize = 22;
const RUNTIME_WIDTH: usize = 12;
/// The smallest height of the list, including its heading.
const LIST_MIN: u16 = 4;

/// Draws the screen.
pub fn draw(frame: &mut Frame<'_>, area: Rect, model: &Model, theme: Theme, hits: &mut Hits) {
    let findings = model.finding_rows();
    if findings.is_empty() {
        let text = match model.list().filter.is_empty() {
            true => format!("No findings: {} rules were checked.", RULES.len()),
            false => "No finding matches the filter; Esc shows all.".into(),
        };
        return draw_message(frame, area, &text, theme);
    }
    let selected = model.position().unwrap_or(0);
    let columns = usize::from(area.width);
    let (runtime, finding) = findings[selected];
    let at_ns = model.runtimes().iter().find(|of| of.runtime == *runtime).map_or(0, |of| of.at_ns);
    let mut detail = detail_lines(finding, at_ns, columns, theme);
    let wanted = (findings.len() as u16 + 1).min(LIST_MIN.max(area.height.saturating_sub(detail.len() as u16)));
    let [list, below] = rows(area, [Constraint::Length(wanted), Constraint::Fill(1)]);
    let shown = window(findings.len(), selected, usize::from(list.height) - 1);
    let titles = [left("severity", SEVERITY_WIDTH), left("rule", RULE_WIDTH), left("runtime", RUNTIME_WIDTH)];
    let heads = titles.iter().fold(String::new(), |text, title| text + " " + title) + " finding";
    let end = part(&shown, findings.len());
    let heads = format!("{}{end}", left(&heads, columns.saturating_sub(width(&end))));
    let line = |(place, row): (usize, &&(String, Finding))| line(row, place == selected, columns, theme);
    let lines = findings.iter().enumerate().skip(shown.start).take(shown.len()).map(line).collect();
    draw_rows(frame, list, Line::styled(heads, theme.title()), shown.start, lines, hits);
    // The rule above the finding is on each of its pages.
    let lines = detail.len() - 1;
    if let Some(shown) = page_of(lines, usize::from(below.height).saturating_sub(1), model.finding_page) {
        let note = format!(" lines {}-{} of {lines}; PgDn and PgUp show the others", shown.start + 1, shown.end);
        detail.truncate(shown.end + 1);
        detail.drain(1..=shown.start);
        detail.push(Line::styled(note, theme.label()));
        hits.add_pages();
    }
    draw_lines(frame, below, detail);
}

/// Returns the lines of a page, if there is room for only `height` of `lines` lines. Another line
/// is for the note about the other pages. Pages repeat: the first follows the last. The last one is
/// as long as the others.
fn page_of(lines: usize, height: usize, page: isize) -> Option<Range<usize>> {
    let rows = height.checked_sub(1).filter(|rows| *rows > 0 && lines > height)?;
    let page = page.rem_euclid(lines.div_ceil(rows) as isize) as usize;
    let start = (page * rows).min(lines - rows);
    Some(start..start + rows)
}

fn line((runtime, finding): &(String, Finding), is_selected: bool, columns: usize, theme: Theme) -> Line<'static> {
    let tone = tone_of(finding.severity);
    let word = match finding.severity {
        _ if !finding.seen.is_current => "past",
        Severity::Critical => "CRITICAL",
        severity => severity.name(),
    };
    let severity = format!("{word}{}", tone.mark());
    let room = columns.saturating_sub(SEVERITY_WIDTH + RULE_WIDTH + RUNTIME_WIDTH + 4);
    let line = Line::from(vec![
        Span::styled(if is_selected { "▸" } else { " " }, theme.strong()),
        Span::styled(format!("{} ", left(&severity, SEVERITY_WIDTH)), theme.tone(tone)),
        Span::styled(format!("{} ", left(finding.rule.name(), RULE_WIDTH)), theme.title()),
        Span::styled(format!("{} ", left(runtime, RUNTIME_WIDTH)), theme.label()),
        Span::raw(head(&finding.title, room)),
    ]);
    if is_selected { line.style(theme.strong()) } else { line }
}

fn detail_lines(finding: &Finding, at_ns: u64, columns: usize, theme: Theme) -> Vec<Line<'static>> {
    let room = columns.saturating_sub(TITLE_WIDTH + 1);
    let mut lines = vec![Line::styled("─".repeat(columns), theme.label())];
    let mut add = |title: &str, texts: Vec<String>| {
        for (index, text) in texts.into_iter().enumerate() {
            let title = if index == 0 { title } else { "" };
            lines.push(Line::from(vec![layout::title(title, theme), Span::raw(text)]));
        }
    };
    add("finding", wrapped(&finding.title, room));
    add("seen", wrapped(&finding.history(at_ns), room));
    let place = |place: &Place| match place {
        Place::Guilty { at, function: Some(function) } => format!("{at} in {function}"),
        Place::Guilty { at, function: None } => at.clone(),
        Place::Spawned { at } => format!("spawned at {at}"),
    };
    add("where", finding.locations.iter().map(|location| tail(&place(location), room)).collect());
    // On a low screen, the workers and the end of the evidence are on another page.
    add("advice", wrapped(&finding.advice, room));
    let evidence: Vec<_> = finding.evidence.iter().map(|evidence| evidence.text.as_str()).collect();
    add("evidence", wrapped(&evidence.join("; "), room));
    let workers: Vec<_> = finding.workers.iter().map(u32::to_string).collect();
    if !workers.is_empty() {
        add("workers", wrapped(&workers.join(" "), room));
    }
    lines
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_pages_of_a_finding_have_all_lines_and_repeat() {
        assert_eq!(page_of(12, 12, 0), None);
        assert_eq!((page_of(12, 0, 0), page_of(12, 1, 0)), (None, None), "there is no room for a note");
        // The note takes the place of one line.
        assert_eq!([0, 1, 2].map(|page| page_of(30, 13, page)), [Some(0..12), Some(12..24), Some(18..30)]);
        assert_eq!([3, -1].map(|page| page_of(30, 13, page)), [Some(0..12), Some(18..30)]);
        for (lines, height) in [(2, 1), (3, 2), (13, 12), (24, 12), (100, 12)] {
            let shown = (0..lines as isize).filter_map(|page| page_of(lines, height, page)).flatten();
            let shown: BTreeSet<usize> = shown.collect();
            assert!(height == 1 || shown.into_iter().eq(0..lines), "{lines} lines, {height} at a time");
        }
    }
}
