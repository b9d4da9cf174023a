//! Which tasks a dump contains, by its query.
//!
//! A filter accepts a task by what its header contains, or by its chain of awaits. The chain is
//! known only after the task was polled, so the other waiting tasks are polled too, as far as the
//! query's sample and [`MAX_TASKS`] leave room. A task is *chosen* if the filter accepts it without
//! its chain. Chosen tasks come first.

use volt_telemetry::dump::{Link, MAX_TASKS, Query, Resource, chain_has};
use volt_telemetry::listing::MAX_FILTER_BYTES;
use volt_telemetry::tasks::Task;
use volt_telemetry::text::contains_ignoring_case;

use super::batch::Target;
use crate::scheduler::core::rng::FastRand;
use crate::scheduler::listing::task_filter::TaskFilter;
use crate::task::header::Header;
use crate::task::registry::Registry;

/// The task that a query selects.
enum Wanted<'a> {
    All,
    Id(u64),
    Name(&'a str),
}

/// Decides which tasks a query selects.
pub(super) struct Selection<'a> {
    wanted: Wanted<'a>,
    task_filter: TaskFilter,
    /// The filter in lower case.
    filter: String,
    /// Whether tasks are selected by their chains.
    reads_chains: bool,
    limit: usize,
}

/// The tasks to read, the one that has waited longest first.
pub(super) struct Listed {
    /// The number of tasks in the registry, whatever the query selects. Tasks that never waited may
    /// not be in it.
    pub(super) registered: u64,
    pub(super) targets: Vec<Target>,
    /// The number of chosen tasks, also of those that are not among the targets.
    pub(super) chosen: u64,
    /// The number of tasks that are neither chosen nor among the targets. Their chains may match.
    pub(super) unread: u64,
}

impl<'a> Selection<'a> {
    pub(super) fn new(query: &'a Query) -> Self {
        let filter = &query.filter[..query.filter.floor_char_boundary(MAX_FILTER_BYTES)];
        let wanted = match query.task.as_deref() {
            None => Wanted::All,
            Some(task) => match task.strip_prefix('#').unwrap_or(task).parse() {
                Ok(id) => Wanted::Id(id),
                Err(_) => Wanted::Name(task),
            },
        };
        Self {
            wanted,
            task_filter: TaskFilter::new(filter),
            filter: filter.to_lowercase(),
            reads_chains: query.polls && !filter.is_empty(),
            limit: if query.sample == 0 { MAX_TASKS } else { query.sample.min(MAX_TASKS) } as usize,
        }
    }

    /// Lists the waiting tasks that may match, at most as many as the query allows.
    pub(super) fn list(&mut self, registry: &Registry, seed: u64) -> Listed {
        let [mut chosen, mut others] = [0, 1].map(|index| Draw::new(self.limit, FastRand::new(seed, index)));
        let mut registered = 0;
        let is_complete = registry.walk(usize::MAX, |header| {
            registered += 1;
            if !header.state.is_idle() || !self.is_wanted(header.id.as_u64(), header.name()) {
                return;
            }
            if self.task_filter.has(header, false) {
                chosen.add(header, true);
            } else if self.reads_chains {
                others.add(header, false);
            }
        });
        debug_assert!(is_complete, "without a limit");
        others.cut(self.limit - chosen.targets.len());
        let unread = others.seen - others.targets.len() as u64;
        let mut targets = chosen.targets;
        targets.extend(others.targets);
        targets.sort_by_key(|target| target.since_ns);
        Listed { registered, targets, chosen: chosen.seen, unread }
    }

    /// Returns whether the filter accepts this chain.
    pub(super) fn has_chain(&self, chain: &[Link]) -> bool {
        self.reads_chains && chain_has(chain, &self.filter)
    }

    /// Returns whether the filter accepts tasks that await this.
    pub(super) fn has_resource(&self, resource: &Resource) -> bool {
        self.reads_chains && contains_ignoring_case(&resource.kind, &self.filter)
    }

    /// Returns whether the query selects a task that is being polled, with this chain.
    pub(super) fn has_running(&mut self, id: u64, name: Option<&str>, spawned_at: &str, chain: &[Link]) -> bool {
        let task = Task { id, name: name.map(str::to_owned), spawned_at: spawned_at.to_owned(), ..Task::default() };
        self.is_wanted(id, name) && (self.task_filter.has_task(&task) || self.has_chain(chain))
    }

    /// Returns whether the query selects a `block_on` that was called there, with this chain.
    pub(super) fn has_block_on(&self, called_at: &str, chain: &[Link]) -> bool {
        let has_filter = || contains_ignoring_case(called_at, &self.filter) || self.has_chain(chain);
        matches!(self.wanted, Wanted::All) && (self.filter.is_empty() || has_filter())
    }

    fn is_wanted(&self, id: u64, name: Option<&str>) -> bool {
        match self.wanted {
            Wanted::All => true,
            Wanted::Id(wanted) => id == wanted,
            Wanted::Name(wanted) => name == Some(wanted),
        }
    }
}

/// A random choice of at most `limit` of the tasks that are added. Each has the same chance.
struct Draw {
    limit: usize,
    rng: FastRand,
    seen: u64,
    targets: Vec<Target>,
}

impl Draw {
    fn new(limit: usize, rng: FastRand) -> Self {
        Self { limit, rng, seen: 0, targets: Vec::new() }
    }

    fn add(&mut self, header: &Header, is_chosen: bool) {
        self.seen += 1;
        if self.targets.len() < self.limit {
            self.targets.push(Target::of(header, is_chosen));
            return;
        }
        let place = self.rng.below(self.seen as usize);
        if place < self.limit {
            self.targets[place] = Target::of(header, is_chosen);
        }
    }

    /// Keeps `len` of the tasks, chosen at random: the first ones in the list are no random choice.
    fn cut(&mut self, len: usize) {
        for place in 0..len.min(self.targets.len()) {
            let other = place + self.rng.below(self.targets.len() - place);
            self.targets.swap(place, other);
        }
        self.targets.truncate(len);
    }
}
