//! The primitives that the tasks of a dump await: their numbers for each group, and the tasks that
//! await each of them in all groups.
//!
//! A task records the primitives that it awaits in its poll for the dump (`task::resources`). Those
//! with the same numbers form an entry of the group, so that a thousand tasks that each await their
//! own channel do not take a thousand lines. If an entry has a single primitive, the tasks that
//! await it are listed.
//!
//! The numbers of a primitive change while the tasks are polled one after the other. The first ones
//! of a group count for its other tasks that await the primitive in the same way, for the first
//! [`ENTRIES_MAX`] primitives. Otherwise, a busy channel would be as many entries as it had numbers
//! of senders.
//!
//! These tasks are listed by their last wake-ups. That is the order in which they began to wait,
//! unless something else, such as another branch of a `select!`, has woken one meanwhile.
//!
//! If the primitive is a semaphore, the holders of its permits are listed, too
//! (`readers::permits`).
//!
//! Bounds: [`PRIMITIVES_MAX`] primitives of a dump and [`ENTRIES_MAX`] entries of a group are
//! counted. An entry keeps the ids of [`IDS_MAX`] tasks, and only counts further ones.
//!
//! Rejected: recording when each operation began to wait. All operations that wait would pay for
//! it, although only a dump reads it.

use std::cmp::Reverse;
use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::mem;

use volt_telemetry::dump::{Group, MAX_EXAMPLES, MAX_RESOURCES, Resource};
use volt_telemetry::listing::order;

use super::locks::Locks;
use crate::task::registry::Registry;
use crate::task::resources::{Awaited, Key, Noted};

/// The number of primitives whose tasks are counted: more than most dumps have tasks.
const PRIMITIVES_MAX: usize = 262_144;
/// The number of entries of a group that are counted.
const ENTRIES_MAX: usize = 64;
/// The number of tasks of an entry whose ids are kept.
const IDS_MAX: usize = 10_000;

/// The primitives that the tasks of all groups await.
#[derive(Default)]
pub(super) struct Primitives {
    waiters: HashMap<Key, Waiters>,
    /// Whether all waiting tasks of the runtime were polled.
    pub(super) is_complete: bool,
    /// Whether a task awaits more primitives than it records.
    is_cut: bool,
}

/// The tasks that await a primitive.
#[derive(Default)]
struct Waiters {
    tasks: u64,
    /// The task that was added last.
    last: u64,
    /// The first of them: when each was woken last, ns, and its id.
    first: Vec<(u64, u64)>,
}

/// The primitives that the tasks of a group await.
#[derive(Default)]
pub(super) struct Resources {
    entries: HashMap<Resource, Numbered>,
    /// The first numbers of each primitive, of at most [`ENTRIES_MAX`] primitives.
    first: HashMap<Key, Resource>,
}

/// The primitives with the same numbers.
#[derive(Default)]
struct Numbered {
    tasks: Tasks,
    keys: HashSet<Key>,
    /// Whether a primitive is missing in `keys`.
    is_cut: bool,
    /// The tasks whose end is awaited.
    awaited_tasks: BTreeSet<u64>,
}

/// The tasks that await one of the primitives of an entry.
#[derive(Default)]
struct Tasks {
    /// A set, since one task may await several primitives, which may be in one entry only after two
    /// groups were united.
    ids: HashSet<u64>,
    /// The number of further tasks. Those that await several primitives, and whose entries were
    /// united, count more than once.
    more: u64,
    /// The one of them that was added last.
    last: u64,
}

impl Primitives {
    /// Adds a task that awaits this primitive. Returns false if there are too many primitives.
    fn add(&mut self, key: Key, since_ns: u64, task: u64) -> bool {
        let is_full = self.waiters.len() >= PRIMITIVES_MAX;
        let waiters = match self.waiters.entry(key) {
            Entry::Vacant(_) if is_full => return false,
            entry => entry.or_default(),
        };
        // It may await one primitive in several ways.
        if mem::replace(&mut waiters.last, task) == task {
            return true;
        }
        waiters.tasks += 1;
        let place = waiters.first.partition_point(|first| *first < (since_ns, task));
        if place < MAX_EXAMPLES {
            waiters.first.insert(place, (since_ns, task));
            waiters.first.truncate(MAX_EXAMPLES);
        }
        true
    }
}

impl Resources {
    /// Adds what a task awaits, which was woken last at `since_ns`.
    pub(super) fn add(&mut self, noted: Noted, since_ns: u64, task: u64, primitives: &mut Primitives) {
        let Noted { awaited, is_cut, .. } = noted;
        primitives.is_cut |= is_cut;
        for Awaited { key, mut resource } in awaited {
            let is_counted = primitives.add(key, since_ns, task);
            let awaited_tasks = mem::take(&mut resource.awaited_tasks);
            let Some(numbered) = self.entry(Some(key), resource) else { continue };
            numbered.tasks.add(task);
            numbered.is_cut |= !is_counted || is_cut;
            if is_counted {
                numbered.keys.insert(key);
            }
            numbered.add_awaited(awaited_tasks);
        }
    }

    /// Adds what the tasks of another group await.
    pub(super) fn add_all(&mut self, others: Self) {
        for (resource, others) in others.entries {
            let only = others.keys.iter().next().copied().filter(|_| others.keys.len() == 1 && !others.is_cut);
            let Some(numbered) = self.entry(only, resource) else { continue };
            numbered.tasks.add_all(others.tasks);
            numbered.is_cut |= others.is_cut;
            numbered.keys.extend(others.keys);
            numbered.add_awaited(others.awaited_tasks);
        }
    }

    /// Returns the entry for these numbers or, if they are those of this primitive, for its first
    /// numbers. Returns `None` if there are too many entries.
    fn entry(&mut self, key: Option<Key>, resource: Resource) -> Option<&mut Numbered> {
        let has_room = self.first.len() < ENTRIES_MAX;
        let first = key.and_then(|key| match self.first.entry(key) {
            Entry::Occupied(first) => Some(first.into_mut()),
            Entry::Vacant(first) => has_room.then(|| first.insert(resource.clone())),
        });
        // Operations of another kind, or on another number of permits, have a separate entry.
        let is_same = |first: &&mut Resource| first.kind == resource.kind && first.wanted == resource.wanted;
        let numbers = first.filter(is_same).map_or(resource.clone(), |first| first.clone());
        if self.entries.len() >= ENTRIES_MAX && !self.entries.contains_key(&numbers) {
            return None;
        }
        Some(self.entries.entry(numbers).or_default())
    }

    pub(super) fn has(&self, is_wanted: impl Fn(&Resource) -> bool) -> bool {
        self.entries.keys().any(is_wanted)
    }

    /// Adds the entries to the group, those that most tasks await first.
    pub(super) fn add_to(self, group: &mut Group, primitives: &Primitives, locks: &Locks, registry: &Registry) {
        let of = |(numbers, numbered): (Resource, Numbered)| {
            let Numbered { tasks, keys, is_cut, awaited_tasks, .. } = numbered;
            let count = (!is_cut).then_some(keys.len() as u64);
            let mut resource = Resource { tasks: tasks.count(), primitives: count, ..numbers };
            resource.awaited_tasks = awaited_tasks.into_iter().collect();
            if let (Some(1), [only]) = (count, &resource.awaited_tasks[..]) {
                resource.awaited_name = registry.name_by_id(*only);
            }
            let only = keys.iter().next().filter(|_| count == Some(1));
            if let Some(Key::Semaphore(semaphore)) = only {
                (resource.permit_holders, resource.permit_holders_left_out) =
                    locks.permit_holders(*semaphore, registry);
            }
            let only = only.filter(|_| primitives.is_complete && !primitives.is_cut);
            if let Some(waiters) = only.and_then(|key| primitives.waiters.get(key)) {
                resource.waiters_len = Some(waiters.tasks);
                resource.queue = waiters.first.iter().map(|&(_, task)| task).collect();
            }
            resource
        };
        let mut resources: Vec<_> = self.entries.into_iter().map(of).collect();
        order::sort_by_key(&mut resources, |resource| (Reverse(resource.tasks), resource.describe()));
        group.resources_left_out = resources.len().saturating_sub(MAX_RESOURCES) as u64;
        resources.truncate(MAX_RESOURCES);
        group.resources = resources;
    }
}

impl Tasks {
    fn add(&mut self, task: u64) {
        if self.ids.len() < IDS_MAX {
            self.ids.insert(task);
        } else if !self.ids.contains(&task) && mem::replace(&mut self.last, task) != task {
            self.more += 1;
        }
    }

    fn add_all(&mut self, others: Self) {
        others.ids.into_iter().for_each(|task| self.add(task));
        self.more += others.more;
    }

    fn count(&self) -> u64 {
        self.ids.len() as u64 + self.more
    }
}

impl Numbered {
    fn add_awaited(&mut self, tasks: impl IntoIterator<Item = u64>) {
        self.awaited_tasks.extend(tasks);
        while self.awaited_tasks.len() > MAX_EXAMPLES {
            self.awaited_tasks.pop_last();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn channel(number: u64) -> Awaited {
        Awaited::new(Key::Task(number), "mpsc", Resource { senders: Some(1), ..Resource::default() })
    }

    fn noted<const N: usize>(awaited: [Awaited; N]) -> Noted {
        Noted { awaited: awaited.to_vec(), ..Noted::default() }
    }

    fn same_numbers(awaited: Awaited) -> Awaited {
        Awaited { resource: channel(3).resource, ..awaited }
    }

    #[test]
    fn a_task_that_awaits_two_channels_is_one_task() {
        let (mut primitives, mut resources) =
            (Primitives { is_complete: true, ..Primitives::default() }, Resources::default());
        resources.add(noted([channel(1), channel(2)].map(same_numbers)), 1, 9, &mut primitives);
        let mut group = Group::default();
        resources.add_to(&mut group, &primitives, &Locks::new(), &Registry::new(1));
        let [resource] = &group.resources[..] else { panic!("one entry") };
        assert_eq!((resource.tasks, resource.primitives), (1, Some(2)));
    }

    #[test]
    fn a_task_that_awaits_too_many_leaves_the_counts_unknown() {
        let (mut primitives, mut resources) =
            (Primitives { is_complete: true, ..Primitives::default() }, Resources::default());
        resources.add(Noted { is_cut: true, ..noted([channel(1)]) }, 1, 9, &mut primitives);
        let mut group = Group::default();
        resources.add_to(&mut group, &primitives, &Locks::new(), &Registry::new(1));
        assert_eq!((group.resources[0].primitives, group.resources[0].waiters_len), (None, None));
    }

    #[test]
    fn the_tasks_that_began_to_wait_first_are_listed_in_order() {
        let (mut primitives, mut resources) =
            (Primitives { is_complete: true, ..Primitives::default() }, Resources::default());
        for task in (1..=20).rev() {
            let other = Awaited { resource: Resource { wanted: Some(2), ..channel(7).resource }, key: Key::Task(7) };
            resources.add(noted([channel(7), other]), 100 * task, task, &mut primitives);
        }
        let mut group = Group::default();
        resources.add_to(&mut group, &primitives, &Locks::new(), &Registry::new(1));
        for resource in &group.resources {
            assert_eq!((resource.tasks, resource.primitives, resource.waiters_len), (20, Some(1), Some(20)));
            assert_eq!(resource.queue, (1..=MAX_EXAMPLES as u64).collect::<Vec<_>>());
        }
        assert_eq!(group.resources.len(), 2);
    }

    #[test]
    fn a_primitive_whose_numbers_change_meanwhile_is_one_entry() {
        let mut primitives = Primitives { is_complete: true, ..Primitives::default() };
        // In each of two groups with the same chain, which are united afterwards.
        let [mut resources, others] = [0, 500].map(|group| {
            let mut resources = Resources::default();
            for task in group + 1..=group + 500 {
                let changed = Resource { senders: Some(task), ..channel(7).resource };
                let awaited = [Awaited { resource: changed, ..channel(7) }];
                resources.add(noted(awaited), 100 * task, task, &mut primitives);
            }
            resources
        });
        resources.add_all(others);
        let mut group = Group::default();
        resources.add_to(&mut group, &primitives, &Locks::new(), &Registry::new(1));
        let [resource] = &group.resources[..] else { panic!("one entry: {:?}", group.resources) };
        assert_eq!((resource.tasks, resource.primitives, resource.senders), (1000, Some(1), Some(1)));
    }

    #[test]
    fn a_task_is_counted_once_if_two_of_its_entries_become_one() {
        let mut primitives = Primitives { is_complete: true, ..Primitives::default() };
        let [mut resources, mut others] = [Resources::default(), Resources::default()];
        let numbered = |key, senders| {
            let resource = Resource { senders: Some(senders), ..channel(key).resource };
            Awaited { resource, ..channel(key) }
        };
        resources.add(noted([numbered(7, 1), numbered(8, 1)]), 100, 1, &mut primitives);
        // The numbers of one channel have changed.
        others.add(noted([numbered(7, 1), numbered(8, 2)]), 100, 2, &mut primitives);
        resources.add_all(others);
        let mut group = Group::default();
        resources.add_to(&mut group, &primitives, &Locks::new(), &Registry::new(1));
        let [resource] = &group.resources[..] else { panic!("one entry: {:?}", group.resources) };
        assert_eq!((resource.tasks, resource.primitives), (2, Some(2)));
    }

    #[test]
    fn an_entry_counts_more_tasks_than_it_keeps_ids_of() {
        let mut primitives = Primitives::default();
        // Two groups with the same chain, whose tasks await two channels each.
        let tasks = 2 * IDS_MAX as u64;
        let [mut resources, others] = [0, tasks].map(|group| {
            let mut resources = Resources::default();
            for task in group + 1..=group + tasks {
                resources.add(noted([channel(1), channel(2)].map(same_numbers)), 1, task, &mut primitives);
            }
            resources
        });
        resources.add_all(others);
        let [numbered] = &resources.entries.values().collect::<Vec<_>>()[..] else { panic!("one entry") };
        assert_eq!((numbered.tasks.ids.len(), numbered.tasks.count()), (IDS_MAX, 2 * tasks));
    }

    #[test]
    fn too_many_primitives_are_not_counted() {
        let (mut primitives, mut resources) =
            (Primitives { is_complete: true, ..Primitives::default() }, Resources::default());
        let tasks = PRIMITIVES_MAX as u64 + 1;
        for task in 1..=tasks {
            resources.add(noted([channel(task)]), 1, task, &mut primitives);
        }
        let mut group = Group::default();
        resources.add_to(&mut group, &primitives, &Locks::new(), &Registry::new(1));
        let [resource] = &group.resources[..] else { panic!("one entry") };
        assert_eq!((resource.tasks, resource.primitives, resource.waiters_len), (tasks, None, None));
        assert!(resource.queue.is_empty());
    }
}
