//! The doctor screen: the findings, the worst first, and below them the selected finding with its
//! evidence, its lines of code, and what to change.

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
    let cut = cut_note(detail.len(), usize::from(below.height));
    if let Some(note) = cut {
        detail.truncate(usize::from(below.height) - 1);
        detail.push(Line::styled(note, theme.label()));
    }
    draw_lines(frame, below, detail);
}

/// Returns the last line if there is room for only `height` of `lines` lines.
fn cut_note(lines: usize, height: usize) -> Option<String> {
    let hidden = lines.checked_sub(height)? + 1;
    (hidden > 1 && height > 1)
        .then(|| format!(" … {hidden} more lines: enlarge the terminal, or run volt-console doctor"))
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
    // On a low screen, the workers and the end of the evidence are left out.
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
    use super::*;

    #[test]
    fn a_cut_finding_has_the_number_of_hidden_lines() {
        assert_eq!(cut_note(12, 12), None);
        assert_eq!(cut_note(3, 12), None);
        // The note takes the place of one line.
        assert!(cut_note(13, 12).unwrap().contains("2 more lines"));
    }
}
