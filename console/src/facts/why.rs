//! The text of a chain of wake-ups: why a task was polled last.

use volt_telemetry::waits::{holder, permit_holders};
use volt_telemetry::why::{End, Link, MAX_LINKS, State, Why, Woken};

use crate::text::awaits::awaited;
use crate::text::figures::duration;

/// Returns the chain as text: the task, what woke it, and so on, one per line, with the cause at
/// the end.
pub fn text(why: &Why) -> String {
    let mut text = String::new();
    let mut has_later = false;
    for (index, link) in why.links.iter().enumerate() {
        let arrow = if index == 0 { "" } else { "  ← " };
        text.push_str(&format!("{arrow}{}\n", line(link)));
        let mut has_holders = false;
        for resource in &link.resources {
            text.push_str(&format!("      awaits {}\n", resource.describe()));
            let holders = permit_holders(&resource.permit_holders, resource.permit_holders_left_out, duration);
            has_holders |= !holders.is_empty();
            holders.iter().for_each(|holder| text.push_str(&format!("        {holder}\n")));
        }
        if !has_holders {
            let holders = permit_holders(&link.permit_holders, link.permit_holders_left_out, duration);
            holders.iter().for_each(|holder| text.push_str(&format!("      {holder}\n")));
        }
        has_later |= link.woken.as_ref().is_some_and(|woken| woken.is_later);
    }
    text.push_str(&format!("  ← {}\n", end(why)));
    if has_later {
        text.push_str(
            "\"since then\": this task was woken again after it woke the task above it. The cause of the earlier\n\
             poll is no longer known; the lines below this task explain its latest poll. A recording has every\n\
             wake-up: see `volt-console record --help`.\n",
        );
    }
    text
}

fn line(link: &Link) -> String {
    let name = link.name.as_ref().map_or(String::new(), |name| format!(" {name}"));
    let state = match link.state {
        State::Waits => "waiting",
        State::Queued => "queued",
        State::Polled => "being polled",
        _ => "in an unknown state",
    };
    let when = link.woken.as_ref().map_or(String::new(), when);
    let awaits = link.awaits.as_deref().map_or_else(String::new, |what| awaits(link, what));
    format!("task {}{name}, spawned at {}, {state}{awaits}{when}", link.task, link.spawned_at)
}

fn awaits(link: &Link, what: &str) -> String {
    let at = link.awaits_at.as_ref().map(|at| format!(" at {at}")).unwrap_or_default();
    let since = link.waiting_ns.map(|ns| format!(" for {}", duration(ns))).unwrap_or_default();
    let holder = link
        .held_at
        .as_ref()
        .map(|at| format!(", held by {}", holder(link.held_by, None, at, link.held_ns.map(duration))));
    // The receiver of a oneshot is itself a future, so only the line that created it is known.
    let has = |kind| what == "value" && link.resources.iter().any(|resource| resource.kind == kind);
    if has("oneshot") {
        // With both, the line is that of the one that was polled last.
        let or = if has("set_once") { ", or of the SetOnce awaited," } else { "" };
        return format!("{since} for a value of the oneshot channel created{or}{at}");
    }
    format!("{since}{at} for {}{}", awaited(what, link.awaited_task), holder.unwrap_or_default())
}

fn when(woken: &Woken) -> String {
    let what = if woken.is_spawn { "spawned" } else { "woken" };
    let later = if woken.is_later { " since then" } else { "" };
    format!("; {what}{later} {} ago", duration(woken.ago_ns))
}

/// Returns the cause behind the last link.
fn end(why: &Why) -> String {
    let Some(woken) = why.links.last().and_then(|link| link.woken.as_ref()) else {
        return "its first poll; its spawner is recorded only once the task has waited".to_owned();
    };
    let task = || match (woken.task, &woken.spawned_at) {
        (Some(task), Some(place)) => format!("task {task}, spawned at {place}"),
        (Some(task), None) => format!("task {task}"),
        _ => "a task".to_owned(),
    };
    match why.end {
        End::Ended => format!("{}, which has completed", task()),
        End::Itself => "itself".to_owned(),
        End::Cycle { task } => format!("task {task} again: these tasks wake each other in a cycle"),
        End::TooLong => format!("{}, and more tasks; the first {MAX_LINKS} are shown", task()),
        End::Source => match woken.by.as_str() {
            "timer" => "a timer".to_owned(),
            "io" => "a socket that became ready".to_owned(),
            "outside" => "a thread outside this runtime".to_owned(),
            "worker" => "a worker, between polls".to_owned(),
            "blocking" => match &woken.spawned_at {
                Some(place) => format!("a blocking closure, spawned at {place}"),
                None => "a blocking thread".to_owned(),
            },
            other => other.to_owned(),
        },
        _ => "an unknown cause".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use volt_telemetry::dump::Resource;
    use volt_telemetry::waits::PermitHolder;

    use super::*;

    fn link(task: u64, by: &str, waker: Option<u64>) -> Link {
        let spawned_at = waker.map(|waker| format!("src/{waker}.rs:1:1"));
        let woken = Woken { by: by.into(), task: waker, spawned_at, ago_ns: 1_500_000 * task, ..Woken::default() };
        Link {
            task,
            spawned_at: format!("src/{task}.rs:1:1"),
            state: State::Waits,
            woken: Some(woken),
            ..Link::default()
        }
    }

    #[test]
    fn a_chain_reads_from_the_task_to_its_cause() {
        let mut links = vec![link(1, "task", Some(2)), link(2, "timer", None)];
        links[1].name = Some("feed".into());
        let why = Why { links, end: End::Source, ..Why::default() };
        let expected = "task 1, spawned at src/1.rs:1:1, waiting; woken 1.5ms ago\n  \
                        ← task 2 feed, spawned at src/2.rs:1:1, waiting; woken 3.0ms ago\n  \
                        ← a timer\n";
        assert_eq!(text(&why), expected);
    }

    #[test]
    fn a_link_names_the_holder_of_the_lock_that_it_awaits() {
        let link = Link {
            awaits: Some("lock".into()),
            awaits_at: Some("src/a.rs:2:3".into()),
            waiting_ns: Some(4_000_000_000),
            held_by: Some(7),
            held_at: Some("src/b.rs:5:6".into()),
            held_ns: Some(9_000_000_000),
            ..link(1, "timer", None)
        };
        let text = text(&Why { links: vec![link], end: End::Source, ..Why::default() });
        let expected =
            "waiting for 4.0s at src/a.rs:2:3 for a lock, held by task 7 for 9.0s, acquired at src/b.rs:5:6; woken";
        assert!(text.contains(expected), "{text}");
    }

    #[test]
    fn the_line_that_created_a_oneshot_is_not_shown_as_an_await() {
        let resource = Resource { kind: "oneshot".into(), senders: Some(1), ..Resource::default() };
        let at = Some("src/a.rs:2:3".into());
        let link =
            Link { awaits: Some("value".into()), awaits_at: at, resources: vec![resource], ..link(1, "timer", None) };
        let shown = |link: &Link| text(&Why { links: vec![link.clone()], end: End::Source, ..Why::default() });
        let text = shown(&link);
        assert!(text.contains("waiting for a value of the oneshot channel created at src/a.rs:2:3; woken"), "{text}");
        let text = shown(&Link { resources: Vec::new(), ..link.clone() });
        assert!(text.contains("waiting at src/a.rs:2:3 for a value; woken"), "{text}");
        let cell = Resource { kind: "set_once".into(), ..Resource::default() };
        let text = shown(&Link { resources: vec![link.resources[0].clone(), cell], ..link });
        let either = "for a value of the oneshot channel created, or of the SetOnce awaited, at src/a.rs:2:3; woken";
        assert!(text.contains(either), "{text}");
    }

    #[test]
    fn a_link_names_the_holders_of_the_permits_once() {
        let holder = PermitHolder {
            permits: 2,
            task: Some(7),
            acquired_at: "src/b.rs:5:6".into(),
            acquired_ago_ns: Some(9_000_000_000),
            ..PermitHolder::default()
        };
        let mut link = Link {
            awaits: Some("permits".into()),
            permit_holders: vec![holder.clone()],
            permit_holders_left_out: 1,
            ..link(1, "timer", None)
        };
        let shown = |link: &Link| text(&Why { links: vec![link.clone()], end: End::Source, ..Why::default() });
        let first = "\n      2 permits acquired by task 7 9.0s ago at src/b.rs:5:6";
        let expected = format!("{first}\n      and permits with 1 other holder\n");
        assert!(shown(&link).contains(&expected), "{}", shown(&link));
        let resource = Resource { kind: "semaphore".into(), permit_holders: vec![holder], ..Resource::default() };
        link.resources.push(resource);
        assert_eq!(shown(&link).matches("acquired by task 7").count(), 1, "{}", shown(&link));
    }

    #[test]
    fn a_link_shows_the_numbers_of_what_it_awaits() {
        let resource = Resource { kind: "mpsc".into(), senders: Some(3), messages: Some(0), ..Resource::default() };
        let link = Link { awaits: Some("message".into()), resources: vec![resource], ..link(1, "timer", None) };
        let joins = Link { awaits: Some("others".into()), awaited_task: Some(9), ..link.clone() };
        let text = text(&Why { links: vec![link, joins], end: End::Source, ..Why::default() });
        let expected = "for a message; woken 1.5ms ago\n      awaits mpsc channel with 3 senders, 0 messages (owners";
        assert!(text.contains(expected) && text.contains("waiting for the end of task 9; woken"), "{text}");
    }

    #[test]
    fn each_end_of_a_chain_is_explained() {
        let ends = [
            (End::Ended, "task 2, spawned at src/2.rs:1:1, which has completed"),
            (End::Itself, "← itself"),
            (End::Cycle { task: 7 }, "task 7 again"),
            (End::TooLong, "the first 16 are shown"),
        ];
        for (end, expected) in ends {
            let why = Why { links: vec![link(1, "task", Some(2))], end, ..Why::default() };
            assert!(text(&why).contains(expected), "{}", text(&why));
        }
        let mut later = link(1, "blocking", Some(9));
        later.woken.as_mut().unwrap().is_later = true;
        let why = Why { links: vec![later], end: End::Source, ..Why::default() };
        assert!(text(&why).contains("woken since then") && text(&why).contains("volt-console record"));
        assert!(text(&why).contains("a blocking closure, spawned at src/9.rs"), "{}", text(&why));
    }
}
