//! The data that the sentinel and the thread that takes snapshots write to the runtime's black box.
//!
//! The workers' cells contain addresses and numbers. At each check, the sentinel adds the spawn
//! lines of the polls in flight, and the name of a task whose poll lasts from one check to the
//! next. With each sample, the other thread adds the names for the recorder's events.

use volt_telemetry::recording::black_box::kind;
use volt_telemetry::recording::flush::Table;
use volt_telemetry::snapshot::Snapshot;

use crate::clock;
use crate::recorder::cuts;
use crate::recorder::drain::Drain;
use crate::scheduler::shared::Shared;
use crate::task::header::Place;

/// The polls that the sentinel has seen at its last check.
#[derive(Default)]
pub(super) struct Heartbeat {
    /// For each slot, the number of the poll, and whether the name of its task was added.
    seen: Vec<(u64, bool)>,
}

impl Heartbeat {
    /// Records that the sentinel checks the runtime now.
    pub(super) fn beat(&mut self, shared: &Shared, now_ns: u64) {
        let Some(black_box) = shared.recorder.black_box() else { return };
        let remotes = shared.workers.remotes_in_use();
        black_box.beat(
            now_ns,
            remotes.iter().filter_map(|remote| Some(remote.cells.culprit_of(remote.cells.poll_seq())?.0)),
        );
        self.seen.resize(remotes.len(), (0, false));
        for (remote, (seen, is_named)) in remotes.iter().zip(&mut self.seen) {
            let poll_seq = remote.cells.poll_seq();
            if *seen != poll_seq {
                (*seen, *is_named) = (poll_seq, false);
            } else if !*is_named && let Some((poll, keys)) = remote.cells.in_flight_of(poll_seq, now_ns) {
                *is_named = true;
                if let Some(name) = shared.workers.registry.name_of(poll.task_id, Place::from_u64(keys.place)) {
                    black_box.add_text(kind::TASK, poll.task_id, &name);
                }
            }
        }
    }
}

/// The state that the thread that takes snapshots keeps from one sample to the next.
#[derive(Default)]
pub(super) struct Samples {
    /// Collects the recorder's events, for their texts. Created anew with each log of texts.
    drain: Option<(u64, Drain)>,
}

impl Samples {
    /// Writes a sample, and the texts that are new.
    pub(super) fn write(&mut self, shared: &Shared, snapshot: Snapshot) {
        let Some(black_box) = shared.recorder.black_box() else { return };
        let generation = black_box.generation();
        let drain = match self.drain.take() {
            Some((of, drain)) if of == generation => drain,
            _ => Drain::since(&shared.recorder, clock::now_ns().saturating_sub(HISTORY_NS)),
        };
        let (_, drain) = self.drain.insert((generation, drain));
        for text in drain.collect(shared).texts {
            let kind = match text.table {
                Table::Task => kind::TASK,
                Table::Incident => kind::INCIDENT,
                Table::Process => kind::PROCESS,
                // The sentinel adds locations, and there are no other tables.
                _ => continue,
            };
            black_box.add_text(kind, text.number, &text.text);
        }
        let mut cuts_made = 0;
        black_box.write_sample(snapshot, |snapshot| {
            cuts_made += 1;
            cuts::cut(snapshot, cuts_made - 1)
        });
    }
}

/// A new log of texts gets the names for this much history. Older names are in the previous log.
const HISTORY_NS: u64 = 1_000_000_000;
