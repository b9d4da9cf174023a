//! Cleans strings from other programs, so that they are safe on a terminal.
//!
//! The names of tasks, runtimes and programs come from the observed program. An escape sequence in
//! a name would control the terminal, and a bidirectional override would reverse the line. Such
//! characters are removed when a message arrives, before anything is stored or shown. A string in a
//! message may have a megabyte, so strings are cut to a readable length.

use volt_telemetry::dump::{self, Dump};
use volt_telemetry::finding::{Figure, Finding, Place};
use volt_telemetry::incident::Incident;
use volt_telemetry::processes::ProcessList;
use volt_telemetry::snapshot::{Program, Snapshot};
use volt_telemetry::tasks::TaskList;
use volt_telemetry::text::is_invisible;
use volt_telemetry::waits::PermitHolder;
use volt_telemetry::why::Why;
use volt_telemetry::wire::Hello;

/// The largest number of characters that are kept. It keeps all of the longest strings that
/// programs send in practice, the names of generic functions.
const CHARS_MAX: usize = 4096;

/// Returns `text` without control characters and without characters that reorder or hide text, cut
/// if it is far too long.
///
/// ```
/// assert_eq!(volt_console::text::clean::text("evil\u{1b}[2Jname\n"), "evil[2Jname");
/// ```
pub fn text(text: &str) -> String {
    let mut text = text.to_owned();
    in_place(&mut text);
    text
}

/// Like [`text`], but keeps line breaks and the full length.
pub fn lines(text: &str) -> String {
    text.chars().filter(|c| *c == '\n' || !c.is_control() && !is_invisible(*c)).collect()
}

/// Returns `program` with every string in it [cleaned](text).
pub fn program(mut program: Program) -> Program {
    in_place(&mut program.name);
    for runtime in &mut program.runtimes {
        in_place(&mut runtime.runtime);
        let config = &mut runtime.config;
        [&mut config.placement, &mut config.park_spin, &mut config.flavor, &mut config.io_backend]
            .into_iter()
            .for_each(in_place);
        runtime.incomplete.iter_mut().for_each(in_place);
        for poll in runtime.workers.iter_mut().filter_map(|worker| worker.in_flight.as_mut()) {
            poll.task_name.iter_mut().chain(&mut poll.route).for_each(in_place);
            in_place(&mut poll.spawned_at);
        }
        runtime.incidents.latest.iter_mut().for_each(incident);
        for blame in &mut runtime.blame {
            in_place(&mut blame.spawned_at);
            let main = blame.main_await.iter_mut();
            main.flat_map(|main| [&mut main.awaits, &mut main.awaits_at]).for_each(in_place);
        }
        runtime.routes.iter_mut().flat_map(|route| [&mut route.method, &mut route.path]).for_each(in_place);
        runtime.findings.iter_mut().flatten().for_each(finding_in_place);
        waits_in_place(runtime);
        if let Some(processes) = &mut runtime.processes {
            for mailbox in &mut processes.deepest {
                [&mut mailbox.pid, &mut mailbox.kind, &mut mailbox.spawned_at].into_iter().for_each(in_place);
                mailbox.name.iter_mut().for_each(in_place);
            }
            if let Some(failure) = &mut processes.last_failure {
                [&mut failure.pid, &mut failure.kind, &mut failure.spawned_at, &mut failure.reason]
                    .into_iter()
                    .for_each(in_place);
                failure.name.iter_mut().for_each(in_place);
            }
        }
    }
    program
}

/// Cleans the lists of tasks that wait for each other, and for long.
fn waits_in_place(runtime: &mut Snapshot) {
    for link in runtime.deadlocks.iter_mut().flatten().flat_map(|deadlock| &mut deadlock.links) {
        [&mut link.spawned_at, &mut link.awaits, &mut link.awaits_at].into_iter().for_each(in_place);
        [&mut link.name, &mut link.held_at].into_iter().flatten().for_each(in_place);
    }
    for lock in runtime.held_locks.iter_mut().flatten() {
        [&mut lock.held_at, &mut lock.awaits, &mut lock.awaits_at].into_iter().for_each(in_place);
        [&mut lock.name, &mut lock.spawned_at, &mut lock.holder_awaits, &mut lock.holder_awaits_at]
            .into_iter()
            .flatten()
            .for_each(in_place);
    }
    for wait in runtime.long_waits.iter_mut().flatten() {
        [&mut wait.awaits, &mut wait.awaits_at, &mut wait.spawned_at].into_iter().for_each(in_place);
        wait.name.iter_mut().for_each(in_place);
    }
}

fn incident(incident: &mut Incident) {
    in_place(&mut incident.spawned_at);
    let absent = [&mut incident.task_name, &mut incident.route, &mut incident.wait_channel, &mut incident.stack_error];
    absent.into_iter().flatten().for_each(in_place);
    incident.causes.iter_mut().filter_map(|part| part.at.as_mut()).for_each(in_place);
    for frame in &mut incident.stack {
        [&mut frame.function, &mut frame.file, &mut frame.module].into_iter().flatten().for_each(in_place);
    }
}

/// Returns `list` with every string in it [cleaned](text).
pub fn tasks(mut list: TaskList) -> TaskList {
    in_place(&mut list.runtime);
    for task in &mut list.rows {
        in_place(&mut task.spawned_at);
        [&mut task.name, &mut task.woken_by, &mut task.awaits, &mut task.awaits_at, &mut task.held_at]
            .into_iter()
            .flatten()
            .for_each(in_place);
        task.permit_holders.iter_mut().for_each(permit_holder_in_place);
    }
    list
}

/// Returns `list` with every string in it [cleaned](text).
pub fn processes(mut list: ProcessList) -> ProcessList {
    in_place(&mut list.runtime);
    for process in &mut list.rows {
        [&mut process.pid, &mut process.kind, &mut process.spawned_at].into_iter().for_each(in_place);
        [&mut process.name, &mut process.parent].into_iter().flatten().for_each(in_place);
    }
    list
}

/// Returns `finding` with every string in it [cleaned](text).
pub fn finding(mut finding: Finding) -> Finding {
    finding_in_place(&mut finding);
    finding
}

fn finding_in_place(finding: &mut Finding) {
    in_place(&mut finding.title);
    in_place(&mut finding.advice);
    for evidence in &mut finding.evidence {
        in_place(evidence.key.to_mut());
        in_place(&mut evidence.text);
        if let Figure::Text(word) = &mut evidence.value {
            in_place(word);
        }
    }
    finding.tasks.iter_mut().filter_map(|task| task.name.as_mut()).for_each(in_place);
    for place in &mut finding.locations {
        match place {
            Place::Guilty { at, function } => {
                in_place(at);
                function.iter_mut().for_each(in_place);
            }
            Place::Spawned { at } => in_place(at),
        }
    }
}

/// Returns `hello` with every string in it [cleaned](text).
pub fn hello(mut hello: Hello) -> Hello {
    in_place(&mut hello.program);
    in_place(&mut hello.volt);
    hello.runtimes.iter_mut().for_each(in_place);
    hello
}

/// Returns `dump` with every string in it [cleaned](text).
pub fn dump(mut dump: Dump) -> Dump {
    in_place(&mut dump.runtime);
    dump.remarks.iter_mut().for_each(in_place);
    for running in &mut dump.running {
        in_place(&mut running.spawned_at);
        running.task.name.iter_mut().for_each(in_place);
        running.chain.iter_mut().for_each(link_in_place);
    }
    for block_on in &mut dump.block_on {
        in_place(&mut block_on.called_at);
        block_on.chain.iter_mut().for_each(link_in_place);
        block_on.error.iter_mut().for_each(in_place);
    }
    for group in &mut dump.groups {
        in_place(&mut group.spawned_at);
        group.examples.iter_mut().filter_map(|task| task.name.as_mut()).for_each(in_place);
        group.chain.iter_mut().for_each(link_in_place);
        [&mut group.awaits, &mut group.awaits_at, &mut group.error].into_iter().flatten().for_each(in_place);
        for lock in &mut group.locks {
            in_place(&mut lock.held_at);
            lock.held_by_name.iter_mut().for_each(in_place);
        }
        group.resources.iter_mut().for_each(resource_in_place);
    }
    dump
}

fn resource_in_place(resource: &mut dump::Resource) {
    in_place(&mut resource.kind);
    resource.awaited_name.iter_mut().for_each(in_place);
    resource.permit_holders.iter_mut().for_each(permit_holder_in_place);
}

fn permit_holder_in_place(holder: &mut PermitHolder) {
    in_place(&mut holder.acquired_at);
    holder.name.iter_mut().for_each(in_place);
}

fn link_in_place(link: &mut dump::Link) {
    [&mut link.function, &mut link.file].into_iter().flatten().for_each(in_place);
}

/// Returns `why` with every string in it [cleaned](text).
pub fn why(mut why: Why) -> Why {
    in_place(&mut why.runtime);
    for link in &mut why.links {
        in_place(&mut link.spawned_at);
        [&mut link.name, &mut link.awaits, &mut link.awaits_at, &mut link.held_at]
            .into_iter()
            .flatten()
            .for_each(in_place);
        link.resources.iter_mut().for_each(resource_in_place);
        link.permit_holders.iter_mut().for_each(permit_holder_in_place);
        if let Some(woken) = &mut link.woken {
            in_place(&mut woken.by);
            woken.spawned_at.iter_mut().for_each(in_place);
        }
    }
    why
}

fn in_place(string: &mut String) {
    string.retain(|c| !c.is_control() && !is_invisible(c));
    if let Some((end, _)) = string.char_indices().nth(CHARS_MAX) {
        string.truncate(end);
        string.push('…');
    }
}

#[cfg(test)]
mod tests {
    use volt_telemetry::incident::{Blame, CauseTime, Frame, Incidents, MainAwait};
    use volt_telemetry::routes::Route;
    use volt_telemetry::snapshot::{Config, InFlight, Worker};
    use volt_telemetry::waits::{Deadlock, DeadlockLink, HeldLock, LongWait};
    use volt_telemetry::why::{Link, Woken};

    use super::*;

    const EVIL: &str = "a\u{1b}]0;t\u{7}\u{9b}2J\r\n\u{202e}\u{200b}z";
    const TAME: &str = "a]0;t2Jz";

    #[test]
    fn strings_of_a_program_are_cleaned() {
        let evil = || EVIL.to_string();
        let in_flight =
            InFlight { task_name: Some(evil()), route: Some(evil()), spawned_at: evil(), ..InFlight::default() };
        let frame = Frame { function: Some(evil()), file: Some(evil()), module: Some(evil()), ..Frame::default() };
        let incident = Incident {
            spawned_at: evil(),
            task_name: Some(evil()),
            route: Some(evil()),
            wait_channel: Some(evil()),
            stack_error: Some(evil()),
            causes: vec![CauseTime { at: Some(evil()), ..CauseTime::default() }],
            stack: vec![frame],
            ..Incident::default()
        };
        let link = DeadlockLink {
            name: Some(evil()),
            spawned_at: evil(),
            awaits: evil(),
            awaits_at: evil(),
            held_at: Some(evil()),
            ..DeadlockLink::default()
        };
        let lock = HeldLock {
            name: Some(evil()),
            spawned_at: Some(evil()),
            holder_awaits: Some(evil()),
            holder_awaits_at: Some(evil()),
            held_at: evil(),
            awaits: evil(),
            awaits_at: evil(),
            ..HeldLock::default()
        };
        let findings = serde_json::json!([{
            "rule": "stalled-poll",
            "severity": "warning",
            "title": EVIL,
            "advice": EVIL,
            "evidence": [{ "key": EVIL, "value": EVIL, "text": EVIL }],
            "tasks": [{ "id": 7, "name": EVIL }],
            "locations": [{ "kind": "guilty", "at": EVIL, "function": EVIL }],
        }]);
        let findings: Snapshot = serde_json::from_value(serde_json::json!({ "findings": findings })).unwrap();
        let runtime = Snapshot {
            findings: findings.findings,
            incidents: Incidents { latest: vec![incident], ..Incidents::default() },
            blame: vec![Blame {
                spawned_at: evil(),
                main_await: Some(MainAwait { awaits: evil(), awaits_at: evil(), tasks: 1 }),
                ..Blame::default()
            }],
            routes: vec![Route { method: evil(), path: evil(), ..Route::default() }],
            deadlocks: Some(vec![Deadlock { links: vec![link], ..Deadlock::default() }]),
            held_locks: Some(vec![lock]),
            long_waits: Some(vec![LongWait {
                awaits: evil(),
                awaits_at: evil(),
                name: Some(evil()),
                spawned_at: evil(),
                ..LongWait::default()
            }]),
            runtime: evil(),
            incomplete: vec![evil()],
            config: Config {
                placement: evil(),
                park_spin: evil(),
                flavor: evil(),
                io_backend: evil(),
                ..Config::default()
            },
            workers: vec![Worker { in_flight: Some(in_flight), ..Worker::default() }],
            ..Snapshot::default()
        };
        let cleaned = program(Program { name: evil(), runtimes: vec![runtime], ..Program::default() });
        // The JSON has every string that is set above. A new field has to be set there, too.
        let json = serde_json::to_string(&cleaned).unwrap();
        assert_eq!(json.matches(TAME).count(), 20 + 8 + 16 + 4);
        assert!(!json.contains("\\u001b") && !json.contains('\u{9b}') && !json.contains('\u{202e}'), "{json}");
    }

    #[test]
    fn strings_of_a_chain_are_cleaned() {
        let woken = Woken { by: EVIL.into(), spawned_at: Some(EVIL.into()), ..Woken::default() };
        let (name, spawned_at) = (Some(EVIL.into()), EVIL.into());
        let link = Link { name, spawned_at, woken: Some(woken), ..Link::default() };
        let json =
            serde_json::to_string(&why(Why { runtime: EVIL.into(), links: vec![link], ..Why::default() })).unwrap();
        assert_eq!(json.matches(TAME).count(), 5, "{json}");
        assert!(!json.contains("\\u001b") && !json.contains('\u{9b}'), "{json}");
    }

    #[test]
    fn strings_of_a_dump_are_cleaned() {
        let evil = || EVIL.to_string();
        let task = dump::TaskRef { name: Some(evil()), ..dump::TaskRef::default() };
        let link = dump::Link { function: Some(evil()), file: Some(evil()), ..dump::Link::default() };
        let lock = dump::Lock { held_by_name: Some(evil()), held_at: evil(), ..dump::Lock::default() };
        let group = dump::Group {
            spawned_at: evil(),
            examples: vec![task.clone()],
            chain: vec![link.clone()],
            awaits: Some(evil()),
            awaits_at: Some(evil()),
            locks: vec![lock],
            error: Some(evil()),
            ..dump::Group::default()
        };
        let block_on = dump::BlockOn {
            called_at: evil(),
            chain: vec![link.clone()],
            error: Some(evil()),
            ..dump::BlockOn::default()
        };
        let running = dump::Running { task, spawned_at: evil(), chain: vec![link], ..dump::Running::default() };
        let whole = Dump {
            runtime: evil(),
            running: vec![running],
            block_on: vec![block_on],
            groups: vec![group],
            remarks: vec![evil()],
            ..Dump::default()
        };
        let json = serde_json::to_string(&dump(whole)).unwrap();
        assert_eq!(json.matches(TAME).count(), 2 + 4 + 4 + 9, "{json}");
        assert!(!json.contains("\\u001b") && !json.contains('\u{9b}'), "{json}");
    }

    #[test]
    fn a_text_that_is_too_long_is_cut_between_characters() {
        let long = "é".repeat(CHARS_MAX);
        assert_eq!(text(&long), long);
        assert_eq!(text(&(long.clone() + "ab")), long + "…");
    }

    #[test]
    fn a_hello_is_cleaned_and_letters_of_any_script_stay() {
        let cleaned = hello(Hello { program: EVIL.into(), runtimes: vec![EVIL.into()], ..Hello::default() });
        assert_eq!((cleaned.program.as_str(), cleaned.runtimes[0].as_str()), (TAME, TAME));
        assert_eq!(text("größe-数据-é"), "größe-数据-é");
    }
}
