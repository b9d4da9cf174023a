//! The output: tables for a terminal, one table in Markdown (`--markdown`), or one JSON object per
//! line.
//!
//! The JSON keys:
//! * `workload`, `unit` (processor time), `polls_per_operation`;
//! * `ns`, `spread_ns`, `instructions`: for each subject, an operation's median, half the distance
//!   between the quartiles of its rounds, and callgrind's count;
//! * `cost_ns`, `cost_ns_per_poll`, `cost_ratio`: the difference between Volt with and without
//!   observation, the last divided by the cost without;
//! * `best_cost_ns`: the same for the best rounds; `clock_ns`: the part of it for reading the
//!   clock;
//! * `cost_instructions_per_poll`, `cost_instructions_ratio`: the same in instructions;
//! * `recorder_ns_per_poll`: the cost of the flight recorder while it is on;
//! * `ceiling_ns` per poll, `ceiling_ratio`, `is_met`, by the times;
//! * `logged_multiple`: the cost with an ordinary logger at INFO divided by that without;
//!   `logged_multiple_max`: its maximum.
//!
//! Values that were not measured are null. Subjects that could not be built or counted are reported
//! on the error stream.

use std::fmt::Display;

use crate::arguments::{Arguments, Form};
use crate::figures::{CEILING_NS, CEILING_RATIO, Difference, Figures, LOGGED_MULTIPLE};
use crate::machine;
use crate::subjects::{CONSOLE, HISTOGRAM, LOGGED, NAMES, RECORDED, SPANS, TOKIO, VOLT};
use crate::workloads::Workload;

/// The packages whose versions a page has to name.
const PACKAGES: [&str; 2] = ["volt-runtime", "tokio"];
const COST_TITLES: [&str; 13] = [
    "workload", "with, ns", "without", "cost", "±", "a poll", "%", "best", "clock", "instr.", "a poll", "%", "ceiling",
];
/// The documents show some of these columns each.
const MARKDOWN_TITLES: [&str; 13] = [
    "workload",
    "Volt",
    "Volt without counters",
    "counting, per poll",
    "of that, the clock",
    "instructions with / without",
    "recorder, per poll",
    "Tokio",
    "Tokio with its poll histogram",
    "Tokio with console-subscriber",
    "with a logger at INFO",
    "ratio to Volt",
    "with spans at DEBUG",
];

/// See the header of this file.
pub(crate) struct Report {
    form: Form,
    rows: Vec<(&'static Workload, Figures)>,
    began: String,
}

impl Report {
    pub(crate) fn begin(arguments: &Arguments, notes: &[String]) -> Self {
        notes.iter().for_each(|note| eprintln!("{note}"));
        let began =
            format!("{} worker(s), {} rounds in turns; load {}", arguments.workers, arguments.rounds, machine::load());
        Self { form: arguments.form, rows: Vec::new(), began }
    }

    pub(crate) fn add(&mut self, workload: &'static Workload, figures: Figures) {
        if let Form::Json = self.form {
            println!("{}", json(workload, &figures));
        }
        self.rows.push((workload, figures));
    }

    /// Prints the tables, which need all rows.
    pub(crate) fn end(self) {
        match self.form {
            Form::Json => {}
            Form::Markdown => self.markdown(),
            Form::Table => self.tables(),
        }
    }

    fn tables(&self) {
        println!("{}, after {}. Times: processor time, medians, ns an operation.\n", self.began, machine::load());
        println!(
            "What it costs that everything is counted: Volt with and without. ± is half the distance between the quartiles of the first;\n\
             \"best\" the cost in the best rounds; \"clock\" the part of the cost that is reading the clock.\n"
        );
        line(&COST_TITLES.map(str::to_owned));
        self.rows.iter().for_each(|(workload, figures)| line(&cost_cells(workload, figures)));
        println!("\n{}", worst(&self.rows));
        println!("{}\n", dearest_logged(&self.rows));
        println!(
            "With a logger, with the flight recorder on, and beside Tokio under its own observers: ns an operation (instructions); × is the multiple of the same runtime without.\n"
        );
        let titles: Vec<_> = ["workload"].into_iter().chain(NAMES).map(str::to_owned).collect();
        line(&titles);
        self.rows.iter().for_each(|(workload, figures)| line(&subject_cells(workload, figures)));
    }

    fn markdown(&self) {
        println!("```text\n{}\n```\n", machine::command("observe"));
        println!("{}. {}; {}.\n", machine::day_and_commit(), machine::machine(), machine::versions(&PACKAGES));
        println!("{}, after {}. Times: processor time, medians, ns an operation.\n", self.began, machine::load());
        let titles = MARKDOWN_TITLES;
        println!("| {} |\n|{}", titles.join(" | "), "---|".repeat(titles.len()));
        for (workload, figures) in &self.rows {
            println!("| {} |", markdown_cells(workload, figures).join(" | "));
        }
        println!("\n{}", worst(&self.rows));
        println!("{}", dearest_logged(&self.rows));
    }
}

/// Prints cells in columns: many narrow ones, or few wide ones.
fn line(cells: &[String]) {
    let width = if cells.len() == COST_TITLES.len() { 8 } else { 20 };
    let (first, others) = cells.split_first().expect("a line begins with its name");
    let others: Vec<_> = others.iter().map(|cell| format!("{cell:>width$}")).collect();
    println!("{first:<18}{}", others.join(" "));
}

fn markdown_cells(workload: &Workload, figures: &Figures) -> [String; MARKDOWN_TITLES.len()] {
    let time = figures.observation_ns();
    let of_subject = |index: usize| cell(figures.cost_ns(index), 1);
    let instructions = figures.observation_instructions();
    let instructions = instructions.map(|found| format!("{:.0} / {:.0}", found.with, found.without));
    [
        format!("`{}`", workload.name),
        of_subject(VOLT),
        cell(time.map(|time| time.without), 1),
        cell(time.map(|time| time.a_poll(workload)), 1),
        cell(figures.clock_ns().map(|clock| clock.a_poll(workload)), 1),
        instructions.unwrap_or_else(|| "–".to_owned()),
        cell(figures.recorder_ns().map(|recorder| recorder.a_poll(workload)), 1),
        of_subject(TOKIO),
        of_subject(HISTOGRAM),
        of_subject(CONSOLE),
        of_subject(LOGGED),
        figures.logged_multiple().map_or_else(|| "–".to_owned(), |multiple| format!("×{multiple:.2}")),
        of_subject(SPANS),
    ]
}

fn cost_cells(workload: &Workload, figures: &Figures) -> Vec<String> {
    let (time, instructions) = (figures.observation_ns(), figures.observation_instructions());
    let formatted = |difference: Option<Difference>, of: &dyn Fn(Difference) -> f64| cell(difference.map(of), 1);
    let per_cent = |difference: Option<Difference>| cell(difference.map(|found| found.ratio() * 100.0), 1);
    let verdict = match figures.is_met(workload) {
        Some(true) => "met",
        Some(false) => "MISSED",
        None => "–",
    };
    vec![
        workload.name.to_owned(),
        formatted(time, &|time| time.with),
        formatted(time, &|time| time.without),
        formatted(time, &Difference::absolute),
        cell(figures.spread_ns(VOLT), 1),
        formatted(time, &|time| time.a_poll(workload)),
        per_cent(time),
        formatted(figures.best_ns(), &Difference::absolute),
        formatted(figures.clock_ns(), &Difference::absolute),
        formatted(instructions, &Difference::absolute),
        formatted(instructions, &|instructions| instructions.a_poll(workload)),
        per_cent(instructions),
        verdict.to_owned(),
    ]
}

fn subject_cells(workload: &Workload, figures: &Figures) -> Vec<String> {
    let subject = |index: usize| {
        // Each is compared with its own runtime without any other observer.
        let own = if index > TOKIO { Some(TOKIO) } else { [LOGGED, SPANS, RECORDED].contains(&index).then_some(VOLT) };
        let multiple = figures.cost_ns(index).zip(own.and_then(|own| figures.cost_ns(own)));
        let multiple = multiple.map_or(String::new(), |(cost_ns, own_ns)| format!(" ×{:.2}", cost_ns / own_ns));
        let instructions = figures.instructions(index).map_or(String::new(), |count| format!(" ({count:.0})"));
        format!("{}{multiple}{instructions}", cell(figures.cost_ns(index), 1))
    };
    [workload.name.to_owned()].into_iter().chain((0..NAMES.len()).map(subject)).collect()
}

fn cell(value: Option<f64>, digits: usize) -> String {
    value.map_or("–".to_owned(), |value| format!("{value:.digits$}"))
}

/// Returns the two worst workloads, and the verdict.
fn worst(rows: &[(&Workload, Figures)]) -> String {
    let most = |of: &dyn Fn(&Workload, Difference) -> f64| {
        let found = rows.iter().filter_map(|(workload, figures)| {
            figures.observation_ns().map(|difference| (of(workload, difference), workload.name))
        });
        found.max_by(|one, other| one.0.total_cmp(&other.0))
    };
    let a_poll = most(&|workload, difference| difference.a_poll(workload));
    let share = most(&|_workload, difference| difference.ratio());
    let Some(((ns, slowest), (ratio, dearest))) = a_poll.zip(share) else { return "Nothing was measured.".to_owned() };
    let verdict = |is_met: bool| if is_met { "met" } else { "MISSED" };
    format!(
        "Worst: {ns:.1} ns a poll ({slowest}), ceiling {CEILING_NS:.0} ns: {}; {:.1} % ({dearest}), ceiling {:.0} %: {}.",
        verdict(ns <= CEILING_NS),
        ratio * 100.0,
        CEILING_RATIO * 100.0,
        verdict(ratio <= CEILING_RATIO)
    )
}

/// Returns the workload with the greatest cost of an ordinary logger, and the verdict.
fn dearest_logged(rows: &[(&Workload, Figures)]) -> String {
    let multiples = rows.iter().filter_map(|(workload, figures)| Some((figures.logged_multiple()?, workload.name)));
    let Some((multiple, name)) = multiples.max_by(|one, other| one.0.total_cmp(&other.0)) else {
        return "With a logger nothing was measured.".to_owned();
    };
    let verdict = if multiple <= LOGGED_MULTIPLE { "met" } else { "MISSED" };
    format!("With an ordinary logger at INFO: ×{multiple:.2} ({name}), at most ×{LOGGED_MULTIPLE}: {verdict}.")
}

fn json(workload: &Workload, figures: &Figures) -> String {
    let each = |of: &dyn Fn(usize) -> Option<f64>| {
        let key = |name: &str| name.replace(", ", "_").replace(' ', "_");
        let pairs = NAMES.iter().enumerate().map(|(index, name)| format!("\"{}\":{}", key(name), or_null(of(index))));
        pairs.collect::<Vec<_>>().join(",")
    };
    let (time, instructions) = (figures.observation_ns(), figures.observation_instructions());
    let of = |difference: Option<Difference>, of: &dyn Fn(Difference) -> f64| or_null(difference.map(of));
    format!(
        "{{\"workload\":\"{}\",\"unit\":\"ns CPU\",\"polls_per_operation\":{},\"ns\":{{{}}},\"spread_ns\":{{{}}},\"instructions\":{{{}}},\
         \"cost_ns\":{},\"cost_ns_per_poll\":{},\"cost_ratio\":{},\"best_cost_ns\":{},\"clock_ns\":{},\"cost_instructions_per_poll\":{},\
         \"cost_instructions_ratio\":{},\"recorder_ns_per_poll\":{},\"ceiling_ns\":{CEILING_NS},\"ceiling_ratio\":{CEILING_RATIO},\"is_met\":{},\
         \"logged_multiple\":{},\"logged_multiple_max\":{LOGGED_MULTIPLE}}}",
        workload.name,
        workload.polls,
        each(&|subject| figures.cost_ns(subject)),
        each(&|subject| figures.spread_ns(subject)),
        each(&|subject| figures.instructions(subject)),
        of(time, &Difference::absolute),
        of(time, &|time| time.a_poll(workload)),
        of(time, &Difference::ratio),
        of(figures.best_ns(), &Difference::absolute),
        of(figures.clock_ns(), &Difference::absolute),
        of(instructions, &|instructions| instructions.a_poll(workload)),
        of(instructions, &Difference::ratio),
        of(figures.recorder_ns(), &|recorder| recorder.a_poll(workload)),
        or_null(figures.is_met(workload)),
        or_null(figures.logged_multiple()),
    )
}

fn or_null(value: Option<impl Display>) -> String {
    value.map_or("null".to_owned(), |value| value.to_string())
}
