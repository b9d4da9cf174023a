//! Words for one event of the flight recorder.

use volt_recording::reader::Texts;
use volt_telemetry::recording::event::Event;

use crate::text::clean;
use crate::text::figures::{count, duration};

/// Returns what happened, in one line.
pub fn text(event: Event, texts: &Texts) -> String {
    let task = |id: u64| task(id, texts);
    let at = |id: u64, location: u16| match texts.location(location) {
        Some(line) => format!("{}, spawned at {}", task(id), clean::text(line)),
        None => task(id),
    };
    let process = |number: u64| match texts.process(number) {
        Some(name) => format!("process {}", clean::text(name)),
        None => format!("process {}.{}", number >> 32, number as u32),
    };
    let tasks = |number: u32| if number == 1 { "1 task".to_owned() } else { format!("{} tasks", count(number.into())) };
    match event {
        Event::PollBegin { task, location, delay_ns } => {
            format!("poll begins: {}, {} after its wake-up", at(task, location), duration(delay_ns.into()))
        }
        Event::PollEnd { task: id, outcome, took_ns, .. } => {
            format!("poll ends after {}: {}, {}", duration(took_ns.into()), task(id), outcome.name())
        }
        Event::Wake { task: id, by, .. } => format!("wakes {} (by: {})", task(id), by.name()),
        Event::Spawn { task, location } => format!("spawns {}", at(task, location)),
        Event::TaskEnd { task: id, outcome } => format!("{} ends: {}", task(id), outcome.name()),
        Event::LifoHit { task: id } => format!("takes {} from the LIFO slot", task(id)),
        Event::LifoFlush { task: id } => format!("flushes the LIFO slot with {}", task(id)),
        Event::Steal { victim, count } => format!("steals {} from worker {victim}", tasks(count)),
        Event::StealMiss { victims } => {
            format!("finds nothing to steal from other workers ({} tried)", count(victims.into()))
        }
        Event::SearchBegin => "begins to search for work".into(),
        Event::SearchEnd { is_hit: true } => "finds work".into(),
        Event::SearchEnd { is_hit: false } => "finds no work".into(),
        Event::Park { target } => target.name().into(),
        Event::Unpark { reason, slept_ns } => {
            format!("wakes up after {}: {}", duration(slept_ns.into()), reason.name())
        }
        Event::GlobalFetch { count } => format!("fetches {} from the global queue", tasks(count)),
        Event::Overflow { count } => format!("moves {} to the global queue: the local queue is full", tasks(count)),
        Event::BudgetExhausted => "ends its tick: the poll budget is used up".into(),
        Event::CoopYield { task: id } => format!("makes {} yield: its budget is used up", task(id)),
        Event::DriverIn => "begins to poll timers and I/O".into(),
        Event::DriverOut { events, timers } => {
            format!("has polled timers and I/O (I/O events: {}, timers: {})", count(events), count(timers.into()))
        }
        Event::Stall { incident, worker } => match texts.incident(incident) {
            Some(line) => format!("worker {worker} is stuck (incident {incident}): {}", clean::text(line)),
            None => format!("worker {worker} is stuck (incident {incident})"),
        },
        Event::Replace { worker } => format!("begins to stand in for worker {worker}"),
        Event::Retire { worker } => format!("worker {worker} is declared stuck"),
        Event::Return => "returns from the poll in which it was stuck, or from block_in_place".into(),
        Event::ProcessStart { process: number, .. } => format!("starts {}", process(number)),
        Event::ProcessEnd { process: number, ending, steps } => {
            format!("{} ends ({}; steps: {})", process(number), ending.name(), count(steps.into()))
        }
        Event::MessageLost { process: number, loss } => format!("message to {} is {}", process(number), loss.name()),
        Event::ProcessRestart { supervisor } => format!("{} restarts a child", process(supervisor)),
        Event::Unknown { kind, .. } => format!("event {kind} of a newer version"),
        _ => "event of a newer version".into(),
    }
}

fn task(id: u64, texts: &Texts) -> String {
    match texts.task(id) {
        Some(name) => format!("task {id} \"{}\"", clean::text(name)),
        None => format!("task {id}"),
    }
}

#[cfg(test)]
mod tests {
    use volt_telemetry::recording::event::Waker;
    use volt_telemetry::recording::flush::{Table, Text};

    use super::*;

    #[test]
    fn an_event_names_its_task_and_its_line() {
        let mut texts = Texts::default();
        texts.add(&Text::new(Table::Task, 7, "feed"));
        texts.add(&Text::new(Table::Location, 1, "src/shop.rs:12:5"));
        let begin = Event::PollBegin { task: 7, location: 1, delay_ns: 1_500 };
        assert_eq!(
            text(begin, &texts),
            "poll begins: task 7 \"feed\", spawned at src/shop.rs:12:5, 1.5µs after its wake-up"
        );
        let wake = Event::Wake { task: 8, location: 2, by: Waker::Timer };
        assert_eq!(text(wake, &texts), "wakes task 8 (by: timer)");
    }
}
