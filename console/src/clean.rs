//! Strings of other programs, made fit for a terminal.
//!
//! Names of tasks, runtimes and programs come from the process that is looked at. An escape sequence in one would be obeyed by
//! the terminal, a bidirectional override would turn the line around: such characters are taken out where a message arrives,
//! once, before anything is kept or shown.

use volt_telemetry::incident::Incident;
use volt_telemetry::snapshot::Process;
use volt_telemetry::wire::Hello;

/// `text` without control characters and without those that reorder or hide text.
///
/// ```
/// assert_eq!(volt_console::clean::text("evil\u{1b}[2Jname\n"), "evil[2Jname");
/// ```
pub fn text(text: &str) -> String {
    text.chars().filter(|c| !c.is_control() && !is_invisible(*c)).collect()
}

/// [`text`] that keeps its line ends.
pub fn lines(text: &str) -> String {
    text.chars().filter(|c| *c == '\n' || !c.is_control() && !is_invisible(*c)).collect()
}

/// Zero-width characters, line separators, and bidirectional marks, overrides and isolates.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

/// `process` with every string in it [cleaned](text).
pub fn process(mut process: Process) -> Process {
    in_place(&mut process.program);
    for runtime in &mut process.runtimes {
        in_place(&mut runtime.runtime);
        in_place(&mut runtime.config.io_backend);
        runtime.incomplete.iter_mut().for_each(in_place);
        for poll in runtime.workers.iter_mut().filter_map(|worker| worker.in_flight.as_mut()) {
            poll.task_name.iter_mut().for_each(in_place);
            in_place(&mut poll.spawned_at);
        }
        runtime.incidents.latest.iter_mut().for_each(incident);
        runtime.blame.iter_mut().for_each(|blame| in_place(&mut blame.spawned_at));
    }
    process
}

fn incident(incident: &mut Incident) {
    in_place(&mut incident.spawned_at);
    let absent = [&mut incident.task_name, &mut incident.wait_channel, &mut incident.stack_error];
    absent.into_iter().flatten().for_each(in_place);
    for frame in &mut incident.stack {
        [&mut frame.function, &mut frame.file, &mut frame.module].into_iter().flatten().for_each(in_place);
    }
}

/// `hello` with every string in it [cleaned](text).
pub fn hello(mut hello: Hello) -> Hello {
    in_place(&mut hello.program);
    in_place(&mut hello.volt);
    hello.runtimes.iter_mut().for_each(in_place);
    hello
}

fn in_place(string: &mut String) {
    string.retain(|c| !c.is_control() && !is_invisible(c));
}

#[cfg(test)]
mod tests {
    use super::*;
    use volt_telemetry::incident::{Blame, Frame, Incidents};
    use volt_telemetry::snapshot::{Config, InFlight, Snapshot, Worker};

    const EVIL: &str = "a\u{1b}]0;t\u{7}\u{9b}2J\r\n\u{202e}\u{200b}z";
    const TAME: &str = "a]0;t2Jz";

    #[test]
    fn every_string_of_a_process_is_cleaned() {
        let evil = || EVIL.to_string();
        let in_flight = InFlight { task_name: Some(evil()), spawned_at: evil(), ..InFlight::default() };
        let frame = Frame { function: Some(evil()), file: Some(evil()), module: Some(evil()), ..Frame::default() };
        let incident = Incident {
            spawned_at: evil(),
            task_name: Some(evil()),
            wait_channel: Some(evil()),
            stack_error: Some(evil()),
            stack: vec![frame],
            ..Incident::default()
        };
        let runtime = Snapshot {
            incidents: Incidents { latest: vec![incident], ..Incidents::default() },
            blame: vec![Blame { spawned_at: evil(), ..Blame::default() }],
            runtime: evil(),
            incomplete: vec![evil()],
            config: Config { io_backend: evil(), ..Config::default() },
            workers: vec![Worker { in_flight: Some(in_flight), ..Worker::default() }],
            ..Snapshot::default()
        };
        let cleaned = process(Process { program: evil(), runtimes: vec![runtime], ..Process::default() });
        // Whatever string a snapshot has or will have is in its JSON.
        let json = serde_json::to_string(&cleaned).unwrap();
        assert_eq!(json.matches(TAME).count(), 14);
        assert!(!json.contains("\\u001b") && !json.contains('\u{9b}') && !json.contains('\u{202e}'), "{json}");
    }

    #[test]
    fn a_hello_is_cleaned_and_letters_of_any_script_stay() {
        let cleaned = hello(Hello { program: EVIL.into(), runtimes: vec![EVIL.into()], ..Hello::default() });
        assert_eq!((cleaned.program.as_str(), cleaned.runtimes[0].as_str()), (TAME, TAME));
        assert_eq!(text("größe-数据-é"), "größe-数据-é");
    }
}
