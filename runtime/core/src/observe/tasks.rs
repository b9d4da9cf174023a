//! Dumps and lists of the tasks of this program's runtimes, for exporters in the program: the
//! replies of the control socket, without the socket.

use volt_telemetry::dump::{self, Dump};
use volt_telemetry::tasks::{self, TaskList};

use super::registry;
use crate::handle::dump::made_by;
use crate::scheduler::readers::limit::{Limit, TIME_MAX};

/// Makes a dump of the tasks that `query` selects, in the runtime of this program that has this
/// name. Returns `None` if there is none.
///
/// Blocks its thread until the dump is complete, usually for some milliseconds and at most for
/// 20 s and the time to resolve the chains. Call it on a thread that polls no tasks, as of
/// `spawn_blocking`. Otherwise it waits for tasks that this thread would have to poll, and the dump
/// ends early. [`dump_async`] is the same for asynchronous code.
/// [`Handle::dump_with`](crate::Handle::dump_with) explains what a dump does.
///
/// # Panics
/// Panics if making the dump panics, which is a bug.
///
/// ```
/// # use volt_core as volt;
/// use volt::telemetry::dump::Query;
///
/// let runtime = volt::Builder::new_multi_thread().worker_threads(1).name("shop").build()?;
/// let dump = volt::observe::dump("shop", &Query::default()).unwrap();
/// assert_eq!((dump.runtime.as_str(), dump.waiting), ("shop", 0));
/// assert!(volt::observe::dump("closed", &Query::default()).is_none());
/// # Ok::<(), volt::BuildError>(())
/// ```
pub fn dump(runtime: &str, query: &dump::Query) -> Option<Dump> {
    let (limit, _canceller) = Limit::new(TIME_MAX);
    Some(registry::find(runtime)?.dump(query, &limit))
}

/// Makes a dump as [`dump()`] does, for asynchronous code. The runtime may be another one than
/// that of the caller.
///
/// # Cancel safety
/// If the future is dropped, the dump ends early and is discarded. Some waiting tasks may still be
/// polled.
///
/// ```
/// # use volt_core as volt;
/// use volt::telemetry::dump::Query;
///
/// let runtime = volt::Builder::new_multi_thread().worker_threads(1).name("kiosk").build()?;
/// let dump = runtime.block_on(volt::observe::dump_async("kiosk", Query::default())).unwrap();
/// assert_eq!((dump.runtime.as_str(), dump.waiting), ("kiosk", 0));
/// assert!(runtime.block_on(volt::observe::dump_async("closed", Query::default())).is_none());
/// # Ok::<(), volt::BuildError>(())
/// ```
pub async fn dump_async(runtime: &str, query: dump::Query) -> Option<Dump> {
    let observed = registry::find(runtime)?;
    let dump = made_by(move |limit| observed.dump(&query, limit)).await;
    Some(Dump { runtime: runtime.to_owned(), ..dump })
}

/// Lists the tasks that `query` selects, in the runtime of this program that has this name. Returns
/// `None` if there is none.
///
/// Waits for no worker. With very many tasks, a new query may get a list for the previous one: see
/// [`TaskList::query`].
///
/// ```
/// # use volt_core as volt;
/// use volt::telemetry::tasks::{Query, Rank};
///
/// let runtime = volt::Builder::new_multi_thread().worker_threads(1).name("till").build()?;
/// let query = Query { rank: Rank::Longest, limit: 10, ..Query::default() };
/// let list = volt::observe::tasks("till", &query).unwrap();
/// assert_eq!((list.runtime.as_str(), list.rows.len()), ("till", 0));
/// # Ok::<(), volt::BuildError>(())
/// ```
pub fn tasks(runtime: &str, query: &tasks::Query) -> Option<TaskList> {
    Some(registry::find(runtime)?.tasks(query))
}
