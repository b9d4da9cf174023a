//! The explanations of the screens: the help that `?` opens, in pages.
//!
//! The same texts are the tables of `docs/reference/screens`. A screen has sections of entries: a
//! column, a line or a key, and one phrase that explains it. The lines have a fixed width, so that
//! the number of pages is known without a terminal.

mod section;

mod lists;
mod runtime;

pub use self::section::{Entry, Section};
use super::screens::Screen;
use crate::text::figures::{left, width, wrapped};

/// The number of lines of a page: those of the smallest screen, without the frame and the keys.
pub const PAGE_LINES: usize = 21;
/// The width of a line: that of the smallest screen, without the frame and a space at each side.
pub const LINE_WIDTH: usize = 76;
/// The width of a label, including the spaces after it. A longer one has its own line.
const LABEL_WIDTH: usize = 15;

/// Takes the place of a space at which no line ends. Not the no-break space, at which lines end.
const GLUE: char = '\u{e000}';

/// The keys that every screen has.
pub const KEYS: Section = Section {
    title: "Keys of every screen",
    entries: &[
        (
            "1 … 9 0 u",
            "show a screen: 1 overview, 2 workers, 3 tasks (or t), 4 latency, 5 incidents, 6 blame, 7 doctor, 8 events, 9 processes (or p), 0 waits (or w), u routes",
        ),
        ("↑ ↓ j k", "previous or next row; in the help, previous or next page"),
        ("PgUp PgDn", "ten rows up or down"),
        ("Home End g G", "first or last row"),
        ("Tab", "next runtime of the program"),
        ("/", "filter the rows; Enter applies it, Esc removes it"),
        ("i", "reverse the order"),
        ("space", "pause or continue the display; the program keeps running"),
        ("- +", "shorten, lengthen the time between two refreshes"),
        ("? h F1", "open the help; press again for its next page"),
        ("Esc", "close the help, the opened row or the filter; then return to the overview"),
        ("q Ctrl-C", "quit; the program runs on"),
        ("mouse", "click a screen's name to show it, a row to select it, and the row again to open it; scroll to move"),
        (
            "! !!",
            "warning, alarm; a poll or delay has ! from 10 ms and !! from 100 ms, but p50, p90, averages and totals have none",
        ),
    ],
};

/// The keys of a replay that differ from [`KEYS`].
pub const REPLAY_KEYS: Section = Section {
    title: "Keys of a replay",
    entries: &[
        ("space", "play or stop"),
        ("← →", "previous or next snapshot"),
        ("- +", "- plays faster, + plays slower"),
    ],
};

/// Returns what a screen shows.
pub fn purpose(screen: Screen) -> &'static str {
    match screen {
        Screen::Overview => "A runtime as a whole, its workers, and one of them in full.",
        Screen::Workers => "The workers of a runtime, and one of them in full, with its history.",
        Screen::Tasks => "The tasks, sorted by a column: by default, by the total time of their polls.",
        Screen::Latency => "How long tasks waited for a worker, and how long their polls took.",
        Screen::Incidents => "The polls that blocked their worker, with their stacks.",
        Screen::Blame => "The spawn locations whose tasks delay other tasks, and by how much.",
        Screen::Doctor => "The problems of the program, with their lines of code and what to change.",
        Screen::Events => "The events since the console attached, the latest first.",
        Screen::Processes => "The processes, sorted by a column: by default, by their waiting messages.",
        Screen::Waits => "The operations for which tasks wait, with their lines of code.",
        Screen::Routes => "The HTTP routes: their requests, how long these took, and what they cost.",
    }
}

/// Returns the sections that explain a screen.
pub fn sections(screen: Screen) -> &'static [Section] {
    match screen {
        Screen::Overview => runtime::OVERVIEW,
        Screen::Workers => runtime::WORKERS,
        Screen::Latency => runtime::LATENCY,
        Screen::Tasks => lists::TASKS,
        Screen::Incidents => lists::INCIDENTS,
        Screen::Blame => lists::BLAME,
        Screen::Doctor => lists::DOCTOR,
        Screen::Events => lists::EVENTS,
        Screen::Processes => lists::PROCESSES,
        Screen::Waits => lists::WAITS,
        Screen::Routes => lists::ROUTES,
    }
}

/// Returns the help of a screen in pages of at most [`PAGE_LINES`] lines. No entry is divided.
pub fn pages(screen: Screen, is_replay: bool) -> Vec<Vec<String>> {
    let replay: &[Section] = if is_replay { &[REPLAY_KEYS] } else { &[] };
    let mut pages = vec![vec![purpose(screen).to_owned()]];
    for section in replay.iter().chain(sections(screen)).chain(&[KEYS]) {
        for (index, entry) in section.entries.iter().enumerate() {
            let mut lines = lines_of(*entry);
            if index == 0 {
                lines.insert(0, section.title.to_owned());
            }
            let page = pages.last().map_or(0, Vec::len);
            if page + lines.len() > PAGE_LINES {
                pages.push(Vec::new());
                // The reader of a page has not seen the title on the previous one.
                if index > 0 {
                    lines.insert(0, format!("… {}", section.title));
                }
            }
            if let Some(page) = pages.last_mut() {
                page.append(&mut lines);
            }
        }
    }
    pages
}

/// Returns the lines of an entry: the label, and next to it the phrase.
fn lines_of((label, phrase): Entry) -> Vec<String> {
    let indent = 2;
    let begin = " ".repeat(indent + LABEL_WIDTH);
    // A number and its % stay on one line.
    let texts = wrapped(&phrase.replace(" %", &format!("{GLUE}%")), LINE_WIDTH - indent - LABEL_WIDTH);
    let texts: Vec<String> = texts.iter().map(|text| text.replace(GLUE, " ")).collect();
    let mut lines: Vec<String> = texts.iter().map(|text| format!("{begin}{text}")).collect();
    let label = format!("{}{label}", " ".repeat(indent));
    match lines.first_mut().zip(texts.first()) {
        Some((line, text)) if width(&label) < indent + LABEL_WIDTH => {
            *line = format!("{}{text}", left(&label, indent + LABEL_WIDTH));
        }
        _ => lines.insert(0, label),
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::{Group, Scene};
    use crate::tables::{blame, processes, routes, tasks, workers};

    /// Returns the labels of all entries of a screen, or of the sections whose title has `title`.
    fn labels(screen: Screen, title: &str) -> Vec<&'static str> {
        let sections = sections(screen).iter().filter(|section| section.title.to_lowercase().contains(title));
        sections.flat_map(|section| section.entries).map(|(label, _)| *label).collect()
    }

    fn assert_explained(screen: Screen, section: &str, wanted: &[&str]) {
        let labels = labels(screen, section);
        let missing: Vec<_> = wanted.iter().filter(|label| !labels.contains(label)).collect();
        assert!(missing.is_empty(), "the help of {} does not explain {missing:?} of {section:?}", screen.name());
    }

    fn assert_facts_explained(screen: Screen, groups: &[Group]) {
        for group in groups {
            let facts: Vec<_> = group.facts.iter().map(|fact| fact.label).filter(|label| !label.is_empty()).collect();
            assert!(!group.title.is_empty());
            assert_explained(screen, group.title, &facts);
        }
    }

    #[test]
    fn the_help_explains_the_columns_of_five_tables() {
        let fixture = crate::fixture::model(2, 4);
        let config = &fixture.scene().unwrap().snapshot.config;
        for screen in [Screen::Overview, Screen::Workers] {
            for column in workers::COLUMNS {
                let title = column.title(config, false);
                let title = title.split('/').next().unwrap().to_owned();
                assert_explained(screen, column.group, &[&title]);
            }
            assert_explained(screen, "", &[workers::IN_FLIGHT_TITLE]);
        }
        let titles: Vec<_> = tasks::COLUMNS.iter().map(|column| column.title).collect();
        assert_explained(Screen::Tasks, "columns", &titles);
        let titles: Vec<_> = processes::COLUMNS.iter().map(|column| column.title).collect();
        assert_explained(Screen::Processes, "columns", &titles);
        let titles: Vec<_> = blame::COLUMNS.iter().map(|column| column.title).collect();
        assert_explained(Screen::Blame, "columns", &titles);
        let titles: Vec<_> = routes::COLUMNS.iter().map(|column| column.title).collect();
        assert_explained(Screen::Routes, "columns", &titles);
        for (screen, title) in [
            (Screen::Tasks, tasks::NAME_TITLE),
            (Screen::Processes, processes::NAME_TITLE),
            (Screen::Blame, blame::LOCATION_TITLE),
            (Screen::Routes, routes::ROUTE_TITLE),
        ] {
            title.split(", ").for_each(|title| assert_explained(screen, "columns", &[title]));
        }
    }

    #[test]
    fn the_help_explains_each_value_of_a_runtime_and_a_worker() {
        let model = crate::fixture::model(2, 4);
        let mut snapshot = model.scene().unwrap().snapshot.clone();
        // Values that are shown only if they are not 0.
        snapshot.driver.accept_backoffs = 1;
        snapshot.clock = Some(volt_telemetry::snapshot::Clock { faults: 1, ..Default::default() });
        snapshot.workers[0].lost_wakeup_rescues = 1;
        let mut rates = model.scene().unwrap().rates.unwrap().clone();
        (rates.workers[0].cpu_ratio, rates.workers[0].run_delay_ratio) = (Some(0.5), Some(0.5));
        let scene = Scene { snapshot: &snapshot, rates: Some(&rates) };
        let whole = [
            scene.workers(),
            scene.poll_time(),
            scene.schedule_delay(),
            scene.queues(),
            scene.tasks(),
            scene.driver(),
            scene.timers(),
            scene.blocking(),
        ];
        assert_facts_explained(Screen::Overview, &whole);
        assert_facts_explained(Screen::Workers, &scene.worker(0));
        assert_facts_explained(Screen::Incidents, &[scene.incidents(), scene.sentinel()]);
    }

    #[test]
    fn each_page_of_the_help_fits_the_smallest_screen() {
        for (screen, is_replay) in Screen::ALL.into_iter().flat_map(|screen| [(screen, false), (screen, true)]) {
            for page in pages(screen, is_replay) {
                assert!((1..=PAGE_LINES).contains(&page.len()), "{}: {page:#?}", screen.name());
                page.iter().for_each(|line| assert!(width(line) <= LINE_WIDTH, "{line}"));
            }
        }
    }

    #[test]
    fn a_phrase_has_fewer_than_200_characters_and_no_full_stop() {
        for entry in Screen::ALL.into_iter().flat_map(sections).chain(&[KEYS, REPLAY_KEYS]).flat_map(|all| all.entries)
        {
            assert!(width(entry.1) < 200 && !entry.1.ends_with('.') && !entry.0.is_empty(), "{entry:?}");
        }
    }
}
