//! The groups of a dump.
//!
//! Tasks with the same stacks are collected first ([`Key`]), so that each stack is resolved once.
//! Stacks may differ although the chains are the same: `select!` polls its branches in a random
//! order, and the compiler copies code. So groups with the same chain become one ([`Shown`]).

use std::cmp::Reverse;
use std::panic::Location;

use volt_stacks::Calls;
use volt_telemetry::dump::{Link, MAX_EXAMPLES, TaskRef};

use super::resources::Resources;
use crate::task::details::awaits::Awaits;

/// A task's location, and where it waits.
#[derive(PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) spawned_at: &'static Location<'static>,
    /// The distinct stacks.
    pub(super) stacks: Vec<Calls>,
    pub(super) awaits: Option<(Awaits, Option<&'static Location<'static>>)>,
    pub(super) left_out: bool,
}

/// The stacks of a task.
#[derive(Default)]
pub(super) struct Stacks {
    /// The distinct ones, in the order of their polls.
    pub(super) calls: Vec<Calls>,
    /// How often each of them occurred.
    pub(super) times: Vec<u32>,
    pub(super) left_out: bool,
}

/// The tasks of a group.
#[derive(Default)]
pub(super) struct Members {
    pub(super) tasks: u64,
    pub(super) oldest_ns: u64,
    pub(super) newest_ns: u64,
    /// The tasks that wait longest, in no order.
    pub(super) examples: Vec<TaskRef>,
    /// The ids of those that may await a lock.
    pub(super) lockers: Vec<u64>,
    pub(super) resources: Resources,
}

/// The tasks with the same key.
#[derive(Default)]
pub(super) struct Found {
    /// How often each of the stacks occurred in the first task.
    pub(super) times: Vec<u32>,
    /// Those that the filter accepts without their chain.
    pub(super) chosen: Members,
    /// Those that match only if their chain does.
    pub(super) others: Members,
}

/// A group as the dump shows it: its tasks have the same chain, but for `times`.
#[derive(PartialEq, Eq, Hash)]
pub(super) struct Shown {
    pub(super) spawned_at: &'static Location<'static>,
    pub(super) chain: Vec<Link>,
    pub(super) awaits: Option<(Awaits, Option<&'static Location<'static>>)>,
    /// Why some of the chain is missing.
    pub(super) error: Option<String>,
}

impl Found {
    /// The order of the groups: those with the oldest task first.
    pub(super) fn rank(&self) -> Reverse<(u64, u64)> {
        let Self { chosen, others, .. } = self;
        Reverse((chosen.oldest_ns.max(others.oldest_ns), chosen.tasks + others.tasks))
    }

    /// Adds tasks that turned out to have the same chain.
    pub(super) fn add_all(&mut self, same: Self) {
        self.chosen.add_all(same.chosen);
        self.others.add_all(same.others);
    }
}

impl Members {
    pub(super) fn add(&mut self, task: TaskRef) {
        let waiting_ns = task.waiting_ns;
        self.count(1, waiting_ns, waiting_ns);
        self.name(task);
    }

    pub(super) fn add_all(&mut self, others: Self) {
        self.lockers.extend(others.lockers);
        self.resources.add_all(others.resources);
        self.count(others.tasks, others.newest_ns, others.oldest_ns);
        others.examples.into_iter().for_each(|task| self.name(task));
    }

    fn count(&mut self, tasks: u64, newest_ns: u64, oldest_ns: u64) {
        if tasks > 0 {
            self.newest_ns = if self.tasks == 0 { newest_ns } else { self.newest_ns.min(newest_ns) };
            self.oldest_ns = self.oldest_ns.max(oldest_ns);
            self.tasks += tasks;
        }
    }

    /// Adds an example, if it is among those that wait longest.
    fn name(&mut self, task: TaskRef) {
        let waiting_ns = task.waiting_ns;
        if self.examples.len() < MAX_EXAMPLES {
            self.examples.push(task);
        } else if let Some(shortest) = self.examples.iter_mut().min_by_key(|task| task.waiting_ns)
            && shortest.waiting_ns < waiting_ns
        {
            *shortest = task;
        }
    }
}
