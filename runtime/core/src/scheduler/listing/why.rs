//! Explains why a task was polled last, by following the chain of wake-ups from header to header.
//!
//! Each task's header records which task submitted it last (`task::wakes`, `LastWake`): two stores
//! per wake-up, always on. The chain is built on demand, on the thread that requests it. A task
//! with a name is found immediately by its id; for others, and to find a task by its name, the
//! registry is walked through, a few tasks under a lock at a time. A task that has not waited yet
//! and has no name is not in the registry; only the data that its worker exposes is available.
//!
//! Rejected: following the records of the flight recorder, which also contain the causes of earlier
//! polls. They reach back only milliseconds under load, and only while the recorder is on. A
//! recording shows that chain as its arrows.

use volt_telemetry::recording::event::Waker as By;
use volt_telemetry::text;
use volt_telemetry::why::{End, Link, MAX_LINKS, State, Why, Woken};

use crate::clock;
use crate::scheduler::shared::Shared;
use crate::task::header::Header;
use crate::task::wakes::LastWake;

/// How many tasks are walked through for one chain, which takes about 80 ms, and as many to find a
/// task by its name; further tasks are not checked.
const TASKS_MAX: usize = 1_000_000;

/// The data that was found about a task.
struct Seen {
    link: Link,
    wake: Option<LastWake>,
}

impl Shared {
    /// Returns the chain of wake-ups that led to the last poll of the task with this id, or else
    /// this name; `None` if no such task is alive and known. Of several tasks with the name, it is
    /// the one that was woken the longest time ago.
    pub(crate) fn why(&self, task: &str) -> Option<Why> {
        let now_ns = clock::now_ns();
        let mut left = TASKS_MAX;
        let mut seen = match task.strip_prefix('#').unwrap_or(task).parse() {
            Ok(id) => self.see(id, &mut left),
            // By its id, since a worker may be polling it.
            Err(_) => self.see_named(task).and_then(|seen| self.see(seen.link.task, &mut left)),
        };
        let mut why = Why { runtime: self.identity.name.clone(), ..Why::default() };
        let mut led_at_ns = u64::MAX;
        why.end = loop {
            let Some(Seen { mut link, wake }) = seen.take() else {
                break if left == 0 { End::Unknown } else { End::Ended };
            };
            let Some(wake) = wake else {
                why.links.push(link);
                break End::Unknown;
            };
            let id = link.task;
            link.woken = Some(Woken {
                by: wake.by.name().to_owned(),
                task: wake.task,
                spawned_at: wake.location.map(ToString::to_string),
                is_spawn: wake.is_spawn,
                ago_ns: now_ns.saturating_sub(wake.at_ns),
                is_later: wake.at_ns > led_at_ns,
            });
            why.links.push(link);
            led_at_ns = wake.at_ns;
            match wake.task {
                _ if why.links.len() == MAX_LINKS => break End::TooLong,
                Some(next) if next == id => break End::Itself,
                Some(next) if why.links.iter().any(|link| link.task == next) => break End::Cycle { task: next },
                // A blocking job is not in the registry, and it is never woken.
                Some(next) if wake.by != By::Blocking => seen = self.see(next, &mut left),
                _ => break End::Source,
            }
        };
        let holders = self.holders_for(why.links.iter().map(|link| link.awaits.as_deref()));
        for link in why.links.iter_mut().filter(|link| link.awaits.is_some()) {
            let woken_at_ns = link.woken.as_ref().map_or(0, |woken| now_ns.saturating_sub(woken.ago_ns));
            link.awaited_task = holders.awaited_task(link.task, link.awaits.as_deref(), woken_at_ns);
            let Some((since_ns, holding)) = holders.of(link.task, link.awaits.as_deref()) else { continue };
            link.waiting_ns = Some(now_ns.saturating_sub(since_ns));
            link.held_by = holding.and_then(|holding| holding.task);
            link.held_at = holding.map(|holding| text::location(holding.at));
            let held_since_ns = holding.and_then(|holding| holding.since_ns);
            link.held_ns = held_since_ns.map(|since_ns| now_ns.saturating_sub(since_ns));
            (link.permit_holders, link.permit_holders_left_out) =
                holders.permit_holders(link.task, now_ns, &self.workers.registry);
        }
        (!why.links.is_empty()).then_some(why)
    }

    fn see(&self, id: u64, left: &mut usize) -> Option<Seen> {
        let mut found = None;
        self.workers.registry.with_named(id, |header| found = Some(of(header)));
        let mut seen = found.or_else(|| self.see_header(left, |header| header.id.as_u64() == id));
        let now_ns = clock::now_ns();
        let polls = self.workers.remotes_in_use().iter().filter_map(|remote| remote.cells.in_flight(now_ns));
        if let Some((poll, _)) = polls.into_iter().find(|(poll, _)| poll.task_id == id) {
            let unkept =
                || Seen { link: Link { task: id, spawned_at: poll.spawned_at, ..Link::default() }, wake: None };
            seen.get_or_insert_with(unkept).link.state = State::Polled;
        }
        seen
    }

    /// Returns the task with this name whose last wake-up is the oldest.
    fn see_named(&self, name: &str) -> Option<Seen> {
        let mut oldest: Option<(u64, Seen)> = None;
        self.workers.registry.walk(TASKS_MAX, |header| {
            let is_older = || oldest.as_ref().is_none_or(|(at_ns, _)| header.submitted_at_ns() < *at_ns);
            if header.name() == Some(name) && is_older() {
                oldest = Some((header.submitted_at_ns(), of(header)));
            }
        });
        oldest.map(|(_, seen)| seen)
    }

    /// Returns the first task for which `is_it` is true, among at most `left` tasks.
    fn see_header(&self, left: &mut usize, is_it: impl Fn(&Header) -> bool) -> Option<Seen> {
        self.workers.registry.find(|header| {
            if *left == 0 {
                return Some(None);
            }
            *left -= 1;
            is_it(header).then(|| Some(of(header)))
        })?
    }
}

fn of(header: &Header) -> Seen {
    let state = if header.state.is_idle() { State::Waits } else { State::Queued };
    let (name, spawned_at) = (header.name().map(str::to_owned), text::location(header.location()));
    let awaits = if header.state.is_idle() { header.awaits() } else { None };
    let link = Link {
        task: header.id.as_u64(),
        name,
        spawned_at,
        state,
        awaits: awaits.map(|(what, _)| what.name().to_owned()),
        awaits_at: awaits.and_then(|(_, at)| Some(text::location(at?))),
        ..Link::default()
    };
    Seen { link, wake: Some(header.last_wake()) }
}
