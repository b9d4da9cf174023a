//! The processes of a runtime: a registry of sources, such as the systems of `volt-process`, each
//! of which lists its own processes.
//!
//! The runtime itself has no processes; they are built on top of it. A library with processes
//! registers a [`ProcessSource`], which is called for each observation. A system registers itself
//! when it is built. Snapshots and the observer read the list, on their own threads. The lock is
//! held while the list is copied, never while a source is called.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use volt_telemetry::processes::{ProcessList, Processes, Query};

/// Provides the processes of a runtime to observers: state machines with mailboxes that run as
/// tasks. `volt_process::System` implements this trait. Other actor frameworks can implement it
/// too; consoles and metrics then show their processes in the same way. See
/// [`Handle::show_processes`](crate::handle::Handle::show_processes).
///
/// The methods are called on the threads of observers, possibly by several at the same time, and
/// never by a worker. They must not wait for a process.
///
/// ```
/// # use volt_core as volt;
/// use std::sync::Arc;
/// use volt::observe::ProcessSource;
/// use volt::telemetry::processes::Processes;
///
/// struct System;
///
/// impl ProcessSource for System {
///     fn totals(&self) -> Processes {
///         Processes { systems: 1, alive: 3, started: 4, ended_normally: 1, ..Processes::default() }
///     }
/// }
///
/// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build()?;
/// let system = Arc::new(System);
/// runtime.handle().show_processes(Arc::downgrade(&system) as _);
/// assert_eq!(runtime.handle().snapshot().processes.unwrap().alive, 3);
/// drop(system);
/// assert_eq!(runtime.handle().snapshot().processes, None);
/// # Ok::<(), volt::BuildError>(())
/// ```
pub trait ProcessSource: Send + Sync {
    /// Returns the totals of all processes. Called for every snapshot, so its cost should hardly
    /// depend on the number of processes.
    fn totals(&self) -> Processes;

    /// Returns the processes that match `query`, in any order.
    ///
    /// The default implementation lists none, for a source that reports only totals. The runtime
    /// adds the data of the tasks' current polls. The result contains the query that it
    /// is for, whose `limit` is at most [`MAX_ROWS`](volt_telemetry::listing::MAX_ROWS).
    fn list(&self, query: &Query) -> ProcessList {
        ProcessList { query: query.clone(), alive: self.totals().alive, ..ProcessList::default() }
    }

    /// Returns the name and kind of the process with this number, if the process is alive. The
    /// number is that of recordings: `index << 32 | generation`.
    fn describe(&self, _process: u64) -> Option<String> {
        None
    }
}

/// The sources of a runtime.
#[derive(Default)]
pub(crate) struct Sources(Mutex<Vec<Weak<dyn ProcessSource>>>);

impl Sources {
    /// Adds a source; it is removed after it was dropped.
    pub(crate) fn add(&self, source: Weak<dyn ProcessSource>) {
        let mut sources = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sources.retain(|source| source.strong_count() > 0);
        sources.push(source);
    }

    /// Returns the totals of all sources; `None` if there is no source.
    pub(crate) fn totals(&self) -> Option<Processes> {
        let totals = self.all().into_iter().map(|source| source.totals());
        totals.reduce(|mut all, one| {
            all.add(one);
            all
        })
    }

    /// Returns the description that the first source provides for this number; a number is unique
    /// only within one source.
    pub(crate) fn describe(&self, process: u64) -> Option<String> {
        self.all().iter().find_map(|source| source.describe(process))
    }

    /// Returns the lists of all sources as one.
    pub(in crate::scheduler) fn list(&self, query: &Query) -> ProcessList {
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
