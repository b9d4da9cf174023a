//! Snapshots: reads all counters of a runtime into plain data.
//!
//! The thread that requests a snapshot takes it. It reads cells, queue lengths and the kernel's
//! counts, and stops no worker. No worker takes the locks that only snapshots need (`time_floors`,
//! `census`, `deadlocks`, `long_waits`, the doctor's history). Those of the registry and of the
//! table of waits, which workers take, too, are held for some µs at a time.
//!
//! Consistency: each cell is exact, but the cells are not read at the same moment. Ends are counted
//! before spawns, so that the number of tasks alive is never negative.

use std::cmp::Reverse;
use std::sync::atomic::Ordering;

use volt_stacks::kernel::host::host;
use volt_stacks::kernel::thread::ThreadTimes;
use volt_telemetry::listing::order;
use volt_telemetry::{InFlight, Snapshot};

use super::Shared;
use crate::clock;
use crate::driver::compat::Compat;
use crate::scheduler::ends::Ends;
use crate::scheduler::slots::SlotState;
use crate::stats::cells::{Keys, PHASES};
use crate::task::header::Place;

impl Shared {
    /// Returns the poll with the names of its task and its route.
    pub(crate) fn named(&self, poll: InFlight, keys: Keys) -> InFlight {
        let task_name = self.workers.registry.name_of(poll.task_id, Place::from_u64(keys.place));
        let route = keys.route.and_then(|route| self.routes.get(route)).map(|route| route.name());
        InFlight { task_name, route, ..poll }
    }

    /// Returns what all workers and the sentinel have counted per spawn location, those that
    /// delayed other tasks most first; the names of fields that are unknown; and when tasks were
    /// counted.
    fn blame(&self) -> (Vec<volt_telemetry::Blame>, Vec<String>, Option<u64>) {
        let mut blame = Vec::new();
        self.workers.remotes_in_use().iter().for_each(|remote| remote.cells.blame.read(&mut blame));
        self.sentinel.blame_so_far().into_iter().for_each(|table| table.read(&mut blame));
        let counted_at_ns = self.readers.census.count(&self.workers.registry, &mut blame);
        order::sort_by_key(&mut blame, |blame| Reverse((blame.delay_caused_ns, blame.busy_ns)));
        let unknown: &[&str] = if counted_at_ns.is_some() { &[] } else { &["blame.alive", "blame.stranded"] };
        (blame, unknown.iter().map(|field| (*field).to_owned()).collect(), counted_at_ns)
    }

    /// Calls `read` with the times that were last reported of `worker`; see `time_floors`.
    pub(crate) fn with_time_floor<R>(&self, worker: usize, read: impl FnOnce(&mut [u64; PHASES.len()]) -> R) -> R {
        read(&mut self.readers.time_floors.lock().unwrap_or_else(|poisoned| poisoned.into_inner())[worker])
    }

    /// Returns how many tasks came to the workers from outside: the `outside` that were spawned
    /// there, and those that were woken there.
    pub(crate) fn injected(&self, outside: u64) -> u64 {
        outside + self.workers.intake.submits.counted()
    }

    /// Takes a snapshot.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let now_ns = clock::now_ns();
        let ([completed, cancelled, panicked], [inside, outside]) = self.count_tasks();
        let spawned = inside + outside;
        let mut floors = self.readers.time_floors.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let workers: Vec<_> = self
            .workers
            .remotes_in_use()
            .iter()
            .zip(&mut *floors)
            .enumerate()
            .map(|(index, (remote, floor_ns))| {
                let tid = u32::try_from(remote.cells.thread_id.get()).ok().filter(|tid| *tid != 0);
                let times = tid.and_then(ThreadTimes::now_of);
                volt_telemetry::Worker {
                    cpu_ns: times.map(|times| times.run_ns),
                    run_delay_ns: times.and_then(|times| times.run_delay_ns),
                    is_spare: self.workers.slots.is_spare(index),
                    duty: match self.workers.slots.state(index) {
                        SlotState::Off => volt_telemetry::Duty::Off,
                        SlotState::Present => volt_telemetry::Duty::Present,
                        SlotState::Stuck => volt_telemetry::Duty::Stuck,
                        SlotState::Blocking => volt_telemetry::Duty::Blocking,
                    },
                    ring_len: remote.local_len() as u32,
                    batch_len: remote.batch.len() as u32,
                    inbox_len: remote.inbox.len() as u32,
                    is_lifo_filled: remote.lifo.is_filled(),
                    // ORDERING: Relaxed; only a statistic.
                    tasks_given: remote.tasks_given.load(Ordering::Relaxed),
                    ..remote.cells.read(index, now_ns, floor_ns, |poll, keys| self.named(poll, keys))
                }
            })
            .collect();
        drop(floors);
        let (driver, timers) = self.workers.driver.telemetry(now_ns);
        let (blame, incomplete, alive_counted_at_ns) = self.blame();
        let waits = self.readers.deadlocks.check(&self.workers.registry, now_ns);
        let long_waits = self.readers.long_waits.check(&self.workers.registry, now_ns);
        let mut snapshot = Snapshot {
            runtime: self.identity.name.clone(),
            at_ns: now_ns,
            started_at_ns: self.lifecycle.started_at_ns,
            incomplete,
            config: self.config.telemetry(self.workers.driver.backend_name()),
            parked_bitmap: self.workers.idle.parked_words(self.workers.slots.in_use()),
            searching: self.workers.idle.searching() as u32,
            global_queue: volt_telemetry::GlobalQueue {
                len: self.workers.injector.len() as u64,
                oldest_age_ns: self.workers.injector.oldest_at_ns().map(|at_ns| now_ns.saturating_sub(at_ns)),
                injected: self.injected(outside),
                overflowed: workers.iter().map(|worker| worker.tasks_overflowed).sum(),
            },
            tasks: volt_telemetry::Tasks {
                spawned,
                completed,
                cancelled,
                panicked,
                alive: spawned.saturating_sub(completed + cancelled + panicked),
            },
            processes: self.readers.processes.totals(),
            blocking: self.blocking.telemetry(),
            tokio: self.compat().map(Compat::telemetry),
            timers,
            driver,
            sentinel: self.sentinel.telemetry(&self.spares.counts(), self.config.max_spare_workers),
            is_recorded: self.recorder.is_on(),
            incidents: self.sentinel.incidents.telemetry(),
            blame,
            workers,
            host: Some(host()),
            clock: Some(clock::telemetry()),
            alive_counted_at_ns,
            deadlocks: Some(waits.deadlocks),
            held_locks: Some(waits.held_locks),
            long_waits: Some(long_waits),
            routes: self.routes.read(),
            findings: None,
            findings_left_out: None,
        };
        self.sentinel.doctor.judge(&mut snapshot);
        snapshot
    }
}
