//! The waits screen: what the tasks wait for, in groups with the same chain of awaits, and below
//! them the chain of the selected group.

use ratatui::Frame;
use ratatui::layout::{Constraint, Rect};
use ratatui::text::{Line, Span};
use volt_telemetry::dump::{Dump, Link, TaskRef, rows as chain_rows};
use volt_telemetry::waits::permit_holders;

use crate::facts::Tone;
use crate::model::{Model, WaitRow};
use crate::text::figures::{age, count, duration, head, left, right, tail, width, wrapped};
use crate::view::hits::Hits;
use crate::view::parts::layout::{TITLE_WIDTH, draw_lines, draw_message, draw_rows, fact_lines, part, rows, window};
use crate::view::theme::Theme;

/// The widths of the number of tasks, and of the longest wait.
const TASKS_WIDTH: usize = 8;
const LONGEST_WIDTH: usize = 9;
/// The smallest width of a path in the list.
const PLACE_MIN: usize = 16;
/// The smallest height of the list, including its heading.
const LIST_MIN: u16 = 6;

/// Draws the screen.
pub fn draw(frame: &mut Frame<'_>, area: Rect, model: &Model, theme: Theme, hits: &mut Hits) {
    let groups = model.wait_rows();
    let Some(dump) = model.dump() else {
        let text = match &model.waits.error {
            Some(error) => format!("No dump: {error}"),
            None if model.played.is_some() => "A recording contains no dumps.".to_owned(),
            None if model.has_ended() => "The program exited before its tasks were dumped.".to_owned(),
            None => "Polling each waiting task once …".to_owned(),
        };
        return draw_message(frame, area, &text, theme);
    };
    if groups.is_empty() {
        let text = match model.list().filter.is_empty() {
            true => "No task is waiting or running; press r to refresh.",
            false => "No group matches the filter; Esc shows all.",
        };
        return draw_message(frame, area, text, theme);
    }
    let selected = model.position().unwrap_or(0);
    let columns = usize::from(area.width);
    let mut detail = detail_lines(&groups[selected], columns, theme);
    for remark in &dump.remarks {
        detail.extend(fact_lines("note", remark, columns.saturating_sub(TITLE_WIDTH + 1), theme.label(), theme));
    }
    let wanted = (groups.len() as u16 + 2).min(LIST_MIN.max(area.height.saturating_sub(detail.len() as u16)));
    let [top, list, below] = rows(area, [Constraint::Length(1), Constraint::Length(wanted - 1), Constraint::Fill(1)]);
    let ago = model.now.saturating_sub(model.waits.made_at);
    let ago = age(u64::try_from(ago.as_nanos()).unwrap_or(u64::MAX));
    frame.render_widget(Line::styled(head(&summary(dump, &ago), columns), theme.label()), top);
    let shown = window(groups.len(), selected, usize::from(list.height).saturating_sub(1));
    let titles = [right("tasks", TASKS_WIDTH), right("longest", LONGEST_WIDTH)];
    let heads = titles.iter().fold(String::new(), |text, title| text + " " + title) + "  waits for";
    let end = part(&shown, groups.len());
    let heads = format!("{}{end}", left(&heads, columns.saturating_sub(width(&end))));
    let line = |(place, row): (usize, &WaitRow<'_>)| line(row, place == selected, columns, theme);
    let lines = groups.iter().enumerate().skip(shown.start).take(shown.len()).map(line).collect();
    draw_rows(frame, list, Line::styled(heads, theme.title()), shown.start, lines, hits);
    draw_lines(frame, below, detail);
}

/// Formats the numbers of tasks and the age of the dump. The program counts the tasks when a dump
/// begins, and finds the running ones when it ends. These may have waited before. So if the list
/// has more of them than were counted, their number is added.
fn summary(dump: &Dump, ago: &str) -> String {
    let others = dump.alive.saturating_sub(dump.waiting);
    let running = dump.running.len() as u64;
    let counted = if others > 0 { format!(", {} running or queued", count(others)) } else { String::new() };
    let at_end = if running > others { format!("; {running} running at its end") } else { String::new() };
    format!(" {} tasks: {} waiting{counted}; dumped {ago} ago{at_end}", count(dump.alive), count(dump.waiting))
}

fn line(row: &WaitRow<'_>, is_selected: bool, columns: usize, theme: Theme) -> Line<'static> {
    let room = columns.saturating_sub(TASKS_WIDTH + LONGEST_WIDTH + 5);
    let head_of = |worker| format!("running on worker {worker}: ");
    let block_on = if row.is_block_on { "block_on: " } else { "" };
    let before = row.worker.map_or(block_on.to_owned(), head_of);
    let what = format!("{before}{}", what(row, room.saturating_sub(width(&before))));
    // A long wait is often as intended, a long poll never.
    let tone = if row.worker.is_some() { Tone::of_duration(row.longest_ns) } else { Tone::Plain };
    let is_polled = row.is_block_on && row.longest_ns == 0;
    let longest = if is_polled { "-".to_owned() } else { format!("{}{}", duration(row.longest_ns), tone.mark()) };
    let tasks = if row.is_block_on { "-".to_owned() } else { count(row.tasks) };
    let line = Line::from(vec![
        Span::styled(if is_selected { "▸" } else { " " }, theme.strong()),
        Span::raw(format!("{} ", right(&tasks, TASKS_WIDTH))),
        Span::styled(format!("{}  ", right(&longest, LONGEST_WIDTH)), theme.tone(tone)),
        Span::raw(head(&what, room)),
    ]);
    if is_selected { line.style(theme.strong()) } else { line }
}

/// Returns what a group waits for, in one line of `room` columns if possible: the operation, and
/// the application's line that calls it. If a task waits for several operations, shows the last and
/// how many others there are.
fn what(row: &WaitRow<'_>, room: usize) -> String {
    let Some(last) = row.chain.last() else {
        // Of a task that runs, the stack is read only if its poll lasts.
        let task = row.examples.first().filter(|_| row.worker.is_some()).map(label);
        let running = task.map(|task| format!("{task}, spawned at {}", row.spawned_at));
        return row.note.map(str::to_owned).or(running).unwrap_or_else(|| "place unknown".to_owned());
    };
    let line = callers(row.chain).find(|link| link.is_user_code).or(Some(last)).and_then(Link::place);
    let name = last.function.as_deref().unwrap_or("");
    let others = row.chain.windows(2).filter(|pair| pair[1].depth <= pair[0].depth).count();
    let holders: Vec<_> = row.locks.iter().filter_map(|lock| Some(format!("#{}", lock.held_by?))).collect();
    let held = if holders.is_empty() { String::new() } else { format!("  held by {}", holders.join(", ")) };
    let permits = row.resources.iter().flat_map(|resource| &resource.permit_holders);
    let permits: Vec<_> = permits.filter_map(|holder| Some(format!("#{}", holder.task?))).collect();
    let held = if permits.is_empty() { held } else { format!("{held}  permits acquired by {}", permits.join(", ")) };
    let others = if others > 0 { format!("  and {others} more") } else { String::new() };
    // Of a long path, the end is worth more than the beginning.
    let used = width(name) + width(&others) + width(&held) + 2;
    let place = tail(&line.unwrap_or_default(), room.saturating_sub(used).max(PLACE_MIN));
    format!("{name}  {place}{others}{held}")
}

/// Returns the last link of a chain, and then its callers, the closest first. Links of other
/// branches are not among them.
fn callers(chain: &[Link]) -> impl Iterator<Item = &Link> {
    let mut below = u32::MAX;
    chain.iter().rev().filter(move |link| {
        let is_caller = link.depth < below;
        below = below.min(link.depth);
        is_caller
    })
}

fn detail_lines(row: &WaitRow<'_>, columns: usize, theme: Theme) -> Vec<Line<'static>> {
    let room = columns.saturating_sub(TITLE_WIDTH + 1);
    let mut lines = vec![Line::styled("─".repeat(columns), theme.label())];
    if row.is_block_on {
        lines.extend(fact_lines("called", row.spawned_at, room, theme.strong(), theme));
    } else {
        lines.extend(fact_lines("spawned", row.spawned_at, room, theme.strong(), theme));
        let tasks: Vec<String> = row.examples.iter().map(label).collect();
        let more = if row.tasks > tasks.len() as u64 { ", …" } else { "" };
        lines.extend(fact_lines("tasks", &format!("{}{more}", tasks.join(", ")), room, theme.label(), theme));
    }
    for lock in row.locks {
        let holder = format!("{}{}", lock.waiting(row.tasks), lock.holder(duration));
        lines.extend(fact_lines("held by", &holder, room, theme.strong(), theme));
        let order = lock.order().map(|order| format!("in this order: {order}"));
        lines.extend(order.iter().flat_map(|order| fact_lines("waiters", order, room, theme.label(), theme)));
    }
    for resource in row.resources {
        lines.extend(fact_lines("awaits", &resource.describe(), room, theme.label(), theme));
        for holder in permit_holders(&resource.permit_holders, resource.permit_holders_left_out, duration) {
            lines.extend(fact_lines("permits", &holder, room, theme.strong(), theme));
        }
        let waiters = resource.waiters();
        lines.extend(waiters.iter().flat_map(|waiters| fact_lines("waiters", waiters, room, theme.label(), theme)));
    }
    let chain = chain_rows(row.chain);
    let widest = |column: usize| chain.iter().map(|row| width(&row[column])).max().unwrap_or(0);
    let names = widest(0).min(columns / 2);
    let places = widest(1).min(columns.saturating_sub(names + 4));
    for ([name, place, code], link) in chain.iter().zip(row.chain) {
        let style = if link.is_user_code { theme.strong() } else { theme.label() };
        let left_over = columns.saturating_sub(names + places + 5);
        lines.push(Line::from(vec![
            Span::styled(format!("{}  ", left(&head(name, names), names)), style),
            Span::raw(format!("{}  ", left(&tail(place, places), places))),
            Span::styled(head(code, left_over), theme.label()),
        ]));
    }
    if let Some(note) = row.note {
        lines.extend(wrapped(note, columns.saturating_sub(2)).into_iter().map(|text| Line::raw(format!("  {text}"))));
    }
    lines
}

fn label(task: &TaskRef) -> String {
    match &task.name {
        Some(name) => format!("#{} {name}", task.id),
        None => format!("#{}", task.id),
    }
}

#[cfg(test)]
mod tests {
    use volt_telemetry::dump::{BlockOn, Group, Resource, Running};
    use volt_telemetry::waits::PermitHolder;

    use super::*;
    use crate::model::Message;

    #[test]
    fn the_numbers_of_tasks_sum_up() {
        let running = vec![Running::default(); 2];
        let mut dump = Dump { alive: 33, waiting: 32, running, queued: 1, ..Dump::default() };
        assert_eq!(
            summary(&dump, "4s"),
            " 33 tasks: 32 waiting, 1 running or queued; dumped 4s ago; 2 running at its end"
        );
        dump.running.truncate(1);
        assert_eq!(summary(&dump, "4s"), " 33 tasks: 32 waiting, 1 running or queued; dumped 4s ago");
        (dump.waiting, dump.running) = (33, Vec::new());
        assert_eq!(summary(&dump, "4s"), " 33 tasks: 33 waiting; dumped 4s ago");
    }

    #[test]
    fn a_group_is_shown_with_the_line_of_its_own_branch() {
        let link = |depth, function: &str, is_user_code| {
            let (function, file) = (Some(function.to_owned()), Some(format!("src/{function}.rs")));
            Link { depth, function, file, line: Some(1), is_user_code, ..Link::default() }
        };
        let chain = [link(0, "main", true), link(1, "pause", true), link(2, "Sleep", false), link(1, "Read", false)];
        let dump = Dump { groups: vec![Group { chain: chain.to_vec(), ..Group::default() }], ..crate::fixture::dump() };
        let mut model = crate::fixture::model(2, 2);
        model.update(Message::Dump(Box::new(dump)));
        let shown: Vec<String> = model.wait_rows().iter().map(|row| what(row, 100)).collect();
        assert!(shown.contains(&"Read  src/main.rs:1  and 1 more".to_owned()), "{shown:?}");
    }

    #[test]
    fn a_future_of_block_on_is_no_task() {
        let link = Link { function: Some("accept".into()), line: Some(9), ..Link::default() };
        let block_on = BlockOn {
            called_at: "src/main.rs:3:1".into(),
            waiting_ns: Some(60_000_000_000),
            chain: vec![link],
            error: None,
        };
        let dump = Dump { groups: Vec::new(), running: Vec::new(), block_on: vec![block_on], ..crate::fixture::dump() };
        let mut model = crate::fixture::model(2, 2);
        model.update(Message::Dump(Box::new(dump)));
        let [row] = &model.wait_rows()[..] else { panic!("one row") };
        let shown = line(row, false, 80, Theme::new(true)).to_string();
        assert!(shown.contains(" -  ") && shown.contains("block_on: accept"), "{shown}");
        let details: Vec<String> = detail_lines(row, 80, Theme::new(true)).iter().map(Line::to_string).collect();
        assert!(details.iter().any(|line| line.trim() == "called    src/main.rs:3:1"), "{details:#?}");
        assert!(!details.iter().any(|line| line.trim_start().starts_with("tasks")), "{details:#?}");
    }

    #[test]
    fn the_selected_group_shows_the_numbers_of_a_channel() {
        let (senders, waiters_len, queue) = (Some(1), Some(2), vec![4, 3]);
        let resource =
            Resource { kind: "oneshot".into(), tasks: 1, senders, waiters_len, queue, ..Resource::default() };
        let group = Group { tasks: 1, resources: vec![resource], ..Group::default() };
        let mut model = crate::fixture::model(2, 2);
        let dump = Dump { groups: vec![group], ..crate::fixture::dump() };
        model.update(Message::Dump(Box::new(dump)));
        let shown: Vec<String> = model
            .wait_rows()
            .iter()
            .flat_map(|row| detail_lines(row, 120, Theme::new(true)))
            .map(|line| line.to_string())
            .collect();
        for wanted in
            ["awaits    oneshot channel with 1 sender (owner of the sender: unknown)", "waiters   2 tasks: #4, #3"]
        {
            assert!(shown.iter().any(|line| line.trim() == wanted), "{shown:#?}");
        }
    }

    #[test]
    fn a_group_names_the_tasks_that_acquired_the_permits() {
        let (permits, acquired_at) = (2, "src/pool.rs:9:5".to_owned());
        let holder = PermitHolder { permits, task: Some(7), acquired_at, ..PermitHolder::default() };
        let kind = "semaphore".to_owned();
        let resource = Resource { kind, tasks: 1, permit_holders: vec![holder], ..Resource::default() };
        let group = Group { tasks: 1, resources: vec![resource], ..Group::default() };
        let chain = crate::fixture::dump().groups[0].chain.clone();
        let dump = Dump { groups: vec![Group { chain, ..group }], ..crate::fixture::dump() };
        let mut model = crate::fixture::model(2, 2);
        model.update(Message::Dump(Box::new(dump)));
        let rows = model.wait_rows();
        let lines = |row: &WaitRow<'_>| detail_lines(row, 120, Theme::new(true)).iter().map(Line::to_string).collect();
        let shown: Vec<Vec<String>> = rows.iter().map(lines).collect();
        let wanted = "permits   2 permits acquired by task 7 at src/pool.rs:9:5";
        assert!(shown.iter().flatten().any(|line| line.trim() == wanted), "{shown:#?}");
        assert!(rows.iter().any(|row| what(row, 120).ends_with("permits acquired by #7")));
    }
}
