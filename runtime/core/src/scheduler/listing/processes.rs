//! Where processes are to be seen: the systems of `volt-process` in a runtime, each of which shows
//! its own.
//!
//! A runtime knows nothing of processes, which stand on a floor above. What has some shows itself
//! as a [`ProcessSource`], and is asked whenever somebody observes it.
//!
//! Who writes: a system, when it is built. Who reads: snapshots and the observer, on their own
//! threads; the lock is held while the list is copied, never while a source is asked.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use volt_telemetry::processes::{ProcessList, Processes, Query};

/// Shows processes: state machines with mailboxes that run as tasks of a runtime.
/// `volt_process::System` is one; another framework of actors can be, too, and is seen in consoles
/// and metrics like it. See [`Handle::show_processes`](crate::handle::Handle::show_processes).
///
/// It is asked on the threads of observers, at the same time by several, and never by a worker. It
/// must not wait for a process.
///
/// ```
/// use std::sync::Arc;
/// use volt::observe::ProcessSource;
/// use volt::telemetry::processes::Processes;
///
/// struct Actors;
///
/// impl ProcessSource for Actors {
///     fn totals(&self) -> Processes {
///         Processes { systems: 1, alive: 3, started: 4, ended_normally: 1, ..Processes::default() }
///     }
/// }
///
/// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build()?;
/// let actors = Arc::new(Actors);
/// runtime.handle().show_processes(Arc::downgrade(&actors) as _);
/// assert_eq!(runtime.handle().snapshot().processes.unwrap().alive, 3);
/// drop(actors);
/// assert_eq!(runtime.handle().snapshot().processes, None);
/// # Ok::<(), volt::BuildError>(())
/// ```
pub trait ProcessSource: Send + Sync {
    /// All of them in numbers, for every snapshot: to be had at a cost that hardly depends on how
    /// many they are.
    fn totals(&self) -> Processes;

    /// Those that `query` asks for, in any order; nothing, unless the source tells them one by one.
    /// What the runtime knows of their tasks, it adds. It says the query that it answers, and
    /// its `limit` is [`MAX_ROWS`](volt_telemetry::processes::MAX_ROWS) at most.
    fn list(&self, query: &Query) -> ProcessList {
        ProcessList { query: query.clone(), alive: self.totals().alive, ..ProcessList::default() }
    }

    /// Name and kind of the process with this number, as it stands in recordings (`index << 32 |
    /// generation`), if it lives.
    fn describe(&self, _process: u64) -> Option<String> {
        None
    }
}

/// The sources of a runtime.
#[derive(Default)]
pub(crate) struct Sources(Mutex<Vec<Weak<dyn ProcessSource>>>);

impl Sources {
    /// Adds one, until it is gone.
    pub(crate) fn add(&self, source: Weak<dyn ProcessSource>) {
        let mut sources = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sources.retain(|source| source.strong_count() > 0);
        sources.push(source);
    }

    /// The totals of all; `None` if there is none.
    pub(crate) fn totals(&self) -> Option<Processes> {
        let totals = self.all().into_iter().map(|source| source.totals());
        totals.reduce(|mut all, one| {
            all.add(one);
            all
        })
    }

    /// What the first of them has to say of the process with this number; a number is unique in one
    /// source only.
    pub(crate) fn describe(&self, process: u64) -> Option<String> {
        self.all().iter().find_map(|source| source.describe(process))
    }

    /// Their lists in one.
    pub(super) fn list(&self, query: &Query) -> ProcessList {
        let lists = self.all().into_iter().map(|source| source.list(query));
        let list = lists.reduce(|mut all, one| {
            all.add(one);
            all
        });
        list.unwrap_or_else(|| ProcessList { query: query.clone(), ..ProcessList::default() })
    }

    fn all(&self) -> Vec<Arc<dyn ProcessSource>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().filter_map(Weak::upgrade).collect()
    }
}
