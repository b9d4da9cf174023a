//! Which task awaits the JoinHandle of which other task: edges of the wait-for graph.
//!
//! A task that is awaited has the waker of its joiner (`task::cell::join_waker`), which may be
//! there from an earlier poll. The last poll of the joiner recorded what it waits for: the end of a
//! task of some spawn location (`task::details::awaits`). If exactly one task has that joiner's
//! waker and that location, it is the awaited one. Protocol of a walk:
//!
//! 1. Walk through the registry and note the tasks that have a join waker, with its address.
//! 2. If there are any, walk a second time. A task that waits for the end of another, and whose
//!    address was noted, is the joiner of that one.
//!
//! In a program whose tasks do not await each other, a walk reads one word per task, and there is
//! no second one. Bounds: `JOINS_MAX` awaited tasks, and as many tasks as the caller permits; with
//! more of either, no edge is reported. The result is reused for `REST` times the processor time
//! that the walk took. So all readers together spend at most a two-hundredth of a processor on it,
//! and it is at most a second old with some 40,000 tasks, which take 5 ms. No worker takes the lock
//! of this file.

use std::collections::HashMap;
use std::panic::Location;
use std::ptr;
use std::sync::{Mutex, PoisonError};

use super::census::processor_ns;
use crate::clock;
use crate::task::details::awaits::Awaits;
use crate::task::registry::Registry;

/// The number of awaited tasks beyond which no edge is reported.
const JOINS_MAX: usize = 65_536;
/// A result is reused for this multiple of the processor time that it took.
const REST: u64 = 200;

/// The result of the last walk.
#[derive(Default)]
pub(in crate::scheduler) struct Joins(Mutex<Option<Taken>>);

struct Taken {
    /// Until then the result is reused.
    good_until_ns: u64,
    edges: Edges,
}

/// By the task that awaits the JoinHandle.
pub(in crate::scheduler) type Edges = HashMap<u64, Join>;

/// A task that awaits the JoinHandle of another.
#[derive(Clone, Copy, Debug)]
pub(in crate::scheduler) struct Join {
    /// The awaited task.
    pub(in crate::scheduler) child: u64,
    /// Where it was spawned.
    pub(in crate::scheduler) spawned_at: &'static Location<'static>,
    /// When the task that awaits it was submitted for the poll in which it began to wait.
    pub(in crate::scheduler) submitted_at_ns: u64,
}

/// A task that has a join waker.
struct Awaited {
    /// The address in the waker.
    joiner: usize,
    id: u64,
    spawned_at: &'static Location<'static>,
}

impl Joins {
    /// Returns the edges. Walks through at most `tasks_max` tasks.
    pub(in crate::scheduler) fn edges(&self, registry: &Registry, tasks_max: usize) -> Edges {
        edges(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner), registry, tasks_max)
    }

    /// Returns the edges, or none while another thread finds them out.
    pub(in crate::scheduler) fn edges_without_waiting(&self, registry: &Registry, tasks_max: usize) -> Edges {
        match self.0.try_lock() {
            Ok(mut last) => edges(&mut last, registry, tasks_max),
            Err(_) => Edges::new(),
        }
    }
}

fn edges(last: &mut Option<Taken>, registry: &Registry, tasks_max: usize) -> Edges {
    if let Some(taken) = last.as_ref().filter(|taken| clock::now_ns() < taken.good_until_ns) {
        return taken.edges.clone();
    }
    let began_ns = processor_ns();
    let edges = walk(registry, tasks_max);
    let busy_ns = processor_ns().saturating_sub(began_ns);
    let good_until_ns = clock::now_ns() + REST.saturating_mul(busy_ns);
    last.insert(Taken { good_until_ns, edges }).edges.clone()
}

fn walk(registry: &Registry, tasks_max: usize) -> Edges {
    let mut awaited = Vec::new();
    // Protocol (1).
    let is_complete = registry.walk_tasks(tasks_max, |task| {
        if awaited.len() <= JOINS_MAX
            && let Some(joiner) = task.joiner()
        {
            let header = task.header();
            awaited.push(Awaited { joiner, id: header.id.as_u64(), spawned_at: header.location() });
        }
    });
    let mut edges = Edges::new();
    if awaited.is_empty() || awaited.len() > JOINS_MAX || !is_complete {
        return edges;
    }
    awaited.sort_unstable_by_key(|awaited| awaited.joiner);
    // Protocol (2).
    registry.walk_tasks(tasks_max, |task| {
        let (header, address) = (task.header(), task.as_raw().as_ptr().addr());
        let first = awaited.partition_point(|awaited| awaited.joiner < address);
        let mut of_task = awaited[first..].iter().take_while(|awaited| awaited.joiner == address).peekable();
        if of_task.peek().is_none() || !header.state.is_idle() {
            return;
        }
        let Some((Awaits::Others, Some(at))) = header.awaits() else { return };
        let mut children = of_task.filter(|awaited| ptr::eq(awaited.spawned_at, at));
        if let (Some(child), None) = (children.next(), children.next()) {
            let (child, submitted_at_ns) = (child.id, header.submitted_at_ns());
            edges.insert(header.id.as_u64(), Join { child, spawned_at: at, submitted_at_ns });
        }
    });
    edges
}
