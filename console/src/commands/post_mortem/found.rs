//! A black box that was read, and what is known of its program's end.

use std::path::PathBuf;

use volt_recording::black_box::BlackBox;
use volt_recording::timeline::{Item, Merge, What};
use volt_telemetry::snapshot::Program;

use super::ending::{How, memory_kills_since};
use crate::text::clean;

/// A black box and where it is.
pub(super) struct Found {
    pub(super) path: PathBuf,
    pub(super) black_box: BlackBox,
    pub(super) how: How,
    /// See [`memory_kills_since`].
    pub(super) memory_kills: Option<u64>,
}

impl Found {
    pub(super) fn new(path: PathBuf, black_box: BlackBox) -> Self {
        let (how, memory_kills) = (How::of(&path, &black_box), memory_kills_since(&black_box));
        Self { path, black_box: cleaned(black_box), how, memory_kills }
    }

    /// The last state as that of a program, with one runtime or none.
    pub(super) fn program(&self) -> Program {
        let identity = &self.black_box.identity;
        let runtimes = self.black_box.samples.last().map(|sample| (*sample.snapshot).clone());
        Program {
            pid: identity.pid,
            name: identity.program.clone(),
            runtimes: runtimes.into_iter().collect(),
            ..Program::default()
        }
    }

    /// The events in order of time.
    pub(super) fn events(&self) -> Vec<Item> {
        let mut merge = Merge::default();
        self.black_box.flushes().into_iter().for_each(|flush| merge.add(flush));
        merge.finish();
        let is_event = |item: &Item| matches!(item.what, What::Event { .. });
        std::iter::from_fn(|| merge.next_item()).filter(is_event).collect()
    }
}

/// Returns a black box whose strings are safe to print. The texts of events are cleaned when they
/// are printed.
pub(super) fn cleaned(mut black_box: BlackBox) -> BlackBox {
    let identity = &mut black_box.identity;
    let optional =
        [&mut identity.executable, &mut identity.build_id, &mut identity.boot_id, &mut identity.memory_group];
    let names = [&mut identity.program, &mut identity.runtime, &mut identity.volt];
    names.into_iter().chain(optional.into_iter().flatten()).for_each(|name| *name = clean::text(name));
    for poll in black_box.workers.iter_mut().filter_map(|worker| worker.poll.as_mut()) {
        poll.task_name.iter_mut().chain(&mut poll.spawned_at).for_each(|text| *text = clean::text(text));
    }
    for sample in &mut black_box.samples {
        let program = Program { runtimes: vec![std::mem::take(&mut *sample.snapshot)], ..Program::default() };
        *sample.snapshot = clean::program(program).runtimes.remove(0);
    }
    black_box
}
