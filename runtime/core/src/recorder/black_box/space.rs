//! The black box of one runtime: gives places for cells and rings, and writes the rest.

use std::any::Any;
use std::mem::{align_of, size_of};
use std::os::fd::AsFd;
use std::panic::Location;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use volt_telemetry::recording::black_box::{
    CELL_BYTES, HEAD_BYTES, IDENTITY_AT, Layout, MAGIC, PAGE_BYTES, RING_HEAD_WORDS, RING_MAGIC, SAMPLE_BYTES,
    SAMPLE_HEAD_WORDS, Sample, VERSION, checksum, end, ring_bytes, word,
};
use volt_telemetry::recording::record::WORDS;
use volt_telemetry::snapshot::Snapshot;
use volt_telemetry::wire;

use super::SAMPLE_INTERVAL;
use super::mapping::{Mapping, mark_end};
use super::texts::{Texts, store_bytes};
use super::{facts, file};
use crate::config::DOCTOR_INTERVAL;
use crate::stats::cells::WorkerCells;
use crate::stats::placed::Placed;

/// How long samples pause after one, as a multiple of its time. 100 limits them to 1 % of one
/// processor, unless the doctor takes a snapshot anyway.
const SAMPLE_REST: u64 = 100;
/// The maximum size of a sample, in bytes.
const MAX_SAMPLE_BYTES: usize = SAMPLE_BYTES - SAMPLE_HEAD_WORDS * 8;

/// See the header of this folder.
#[derive(Debug)]
pub(crate) struct BlackBox {
    mapping: Arc<Mapping>,
    layout: Layout,
    path: PathBuf,
    /// The directory of the program's memory control group.
    memory_group: Option<PathBuf>,
    texts: Mutex<Texts>,
    /// The number of samples ever begun. The lock also protects the samples' part of the mapping:
    /// one thread at a time writes a sample.
    samples: Mutex<u64>,
    /// Rings for which there was no room.
    rings_refused: AtomicUsize,
    /// How long the last snapshot with its sample took.
    sample_took_ns: AtomicU64,
}

impl BlackBox {
    /// Creates the black box of a runtime of this name in a directory.
    ///
    /// # Errors
    /// Returns an error if the directory cannot be used. The text includes the remedy.
    pub(crate) fn create(dir: &Path, program: &str, runtime: &str, layout: Layout) -> Result<Arc<Self>, String> {
        if !PAGE_BYTES.is_multiple_of(rustix::param::page_size()) {
            return Err(format!("the page size of {} bytes is not supported", rustix::param::page_size()));
        }
        let (file, name) = file::create(dir, program, runtime, layout)?;
        let identity = facts::identity(program, runtime);
        let path = dir.join(name.to_string());
        let mapping = Mapping::new(file, layout.file_bytes()).map_err(|error| {
            let _best_effort = std::fs::remove_file(&path);
            format!("{} cannot be mapped: {error}", path.display())
        })?;
        if !file::is_in_memory(mapping.file().as_fd()) {
            tracing::warn!(
                target: "volt::observe", path = %path.display(),
                "the black box is on a disk: the kernel may delay workers while it writes pages back; use a directory \
                 in memory, such as /dev/shm"
            );
        }
        let memory_group = identity.memory_group.as_ref().map(PathBuf::from);
        let frame = wire::encode(&identity, HEAD_BYTES - IDENTITY_AT).map_err(|error| {
            let _best_effort = std::fs::remove_file(&path);
            error.to_string()
        })?;
        let identity = &frame[4..];
        store_bytes(mapping.words(IDENTITY_AT, identity.len().div_ceil(8)), identity);
        let head = mapping.words(0, word::END_NS + 1);
        let set = |index: usize, value: u64| {
            // ORDERING: Release; orders the magic after the rest. The reader runs after the program
            // has exited, or accepts a black box only with the magic.
            head[index].store(value, Ordering::Release);
        };
        set(word::VERSION, VERSION);
        set(word::WORKERS, layout.workers as u64);
        set(word::SPARES, layout.spares as u64);
        set(word::RING_RECORDS, layout.ring_records as u64);
        set(word::IDENTITY_BYTES, identity.len() as u64);
        set(word::IDENTITY_CHECKSUM, checksum(identity));
        set(word::BEAT_NS, crate::clock::now_ns());
        set(word::MAGIC, MAGIC);
        Ok(Arc::new(Self {
            mapping: Arc::new(mapping),
            layout,
            path,
            memory_group,
            texts: Mutex::new(Texts::new(layout)),
            samples: Mutex::new(0),
            rings_refused: AtomicUsize::new(0),
            sample_took_ns: AtomicU64::new(0),
        }))
    }

    /// Returns the path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Creates the cells of a worker or spare, once for each.
    pub(crate) fn cells(&self, slot: usize) -> Placed<WorkerCells> {
        const { assert!(size_of::<WorkerCells>() <= CELL_BYTES && PAGE_BYTES.is_multiple_of(align_of::<WorkerCells>())) };
        let place = self.mapping.place(self.layout.cells_at(slot)).cast::<WorkerCells>();
        // SAFETY: inside the mapping, aligned, and large enough: see the assertion. It is called
        // once for each slot, so nothing else refers to this part.
        unsafe { place.write(WorkerCells::new()) };
        let owner = Arc::new(CellsOwner { cells: place, mapping: self.mapping.clone() });
        // SAFETY: Alive: the owner drops the cells, and keeps the mapping until then. A process of
        // the same user could write to the file, as it could to the memory of this program
        // (`ptrace`); others cannot.
        unsafe { Placed::of(place, owner) }
    }

    /// Creates the words of a lane's ring, once for each. Returns `None` if there is no room for
    /// them.
    pub(crate) fn ring(&self, lane: usize) -> Option<Placed<[AtomicU64]>> {
        let at_byte = self.layout.ring_at(lane);
        if let Err(error) = file::allocate(self.mapping.file(), at_byte, ring_bytes(self.layout.ring_records)) {
            // ORDERING: Relaxed; only a count.
            if self.rings_refused.fetch_add(1, Ordering::Relaxed) == 0 {
                let path = self.path.display();
                tracing::warn!(
                    target: "volt::observe", %path, %error,
                    "the black box has no room for the events of some threads: free some space in its directory before the \
                     next start"
                );
            }
            return None;
        }
        let words = self.mapping.words(at_byte, RING_HEAD_WORDS + self.layout.ring_records * WORDS);
        // ORDERING: Relaxed; the reader runs after the program has exited.
        words[1].store(RING_MAGIC, Ordering::Relaxed);
        let owner: Arc<dyn Any + Send + Sync> = self.mapping.clone();
        // SAFETY: Alive: the owner is the mapping. The words are atomics, which need no drop.
        Some(unsafe { Placed::of(NonNull::from(words), owner) })
    }

    /// Records that the sentinel has checked the runtime, and adds the lines of locations that are
    /// new. For the sentinel's thread.
    pub(crate) fn beat(&self, now_ns: u64, in_flight: impl Iterator<Item = &'static Location<'static>>) {
        // ORDERING: Relaxed; the reader runs after the program has exited, or takes either value.
        self.mapping.words(0, word::END_NS + 1)[word::BEAT_NS].store(now_ns, Ordering::Relaxed);
        let mut texts = self.texts.lock().unwrap_or_else(PoisonError::into_inner);
        in_flight.for_each(|location| texts.add_address(&self.mapping, location));
        texts.add_numbers(&self.mapping);
    }

    /// Adds a text of a [`kind`](volt_telemetry::recording::black_box::kind).
    pub(crate) fn add_text(&self, kind: u64, number: u64, text: &str) {
        self.texts.lock().unwrap_or_else(PoisonError::into_inner).add(&self.mapping, kind, number, text);
    }

    /// Returns how often a new log of texts was begun.
    pub(crate) fn generation(&self) -> u64 {
        self.texts.lock().unwrap_or_else(PoisonError::into_inner).generation()
    }

    /// Writes a sample. `cut` makes a snapshot smaller that does not fit, and returns whether it
    /// could.
    pub(crate) fn write_sample(&self, snapshot: Snapshot, mut cut: impl FnMut(&mut Snapshot) -> bool) {
        let began_at_ns = snapshot.at_ns;
        let memory = facts::memory(self.memory_group.as_deref());
        let mut sample = Sample { snapshot: Box::new(snapshot), memory };
        let frame = loop {
            match wire::encode(&sample, MAX_SAMPLE_BYTES) {
                Ok(frame) => break frame,
                Err(_) if cut(&mut sample.snapshot) => {}
                // The memory is worth more than nothing.
                Err(_) => *sample.snapshot = Snapshot::default(),
            }
        };
        let (bytes, mut number) = (&frame[4..], self.samples.lock().unwrap_or_else(PoisonError::into_inner));
        *number += 1;
        let words = self.mapping.words(self.layout.sample_at((*number % 2) as usize), SAMPLE_BYTES / 8);
        let set = |index: usize, value: u64| {
            // ORDERING: Release; each of these stores comes after the steps before it. The first is
            // not ordered before the bytes, but a reader discards a sample that does not match its
            // checksum.
            words[index].store(value, Ordering::Release);
        };
        set(0, 2 * *number - 1);
        store_bytes(&words[SAMPLE_HEAD_WORDS..], bytes);
        set(1, bytes.len() as u64);
        set(2, checksum(bytes));
        set(0, 2 * *number);
        let took_ns = crate::clock::now_ns().saturating_sub(began_at_ns);
        // ORDERING: Relaxed; as in `sample_interval`.
        self.sample_took_ns.store(took_ns, Ordering::Relaxed);
    }

    /// Returns the time to the next sample.
    pub(crate) fn sample_interval(&self) -> Duration {
        // ORDERING: Relaxed; only a figure.
        let rest_ns = self.sample_took_ns.load(Ordering::Relaxed).saturating_mul(SAMPLE_REST);
        Duration::from_nanos(rest_ns).clamp(SAMPLE_INTERVAL, DOCTOR_INTERVAL)
    }

    /// Marks that the runtime was shut down.
    pub(crate) fn shut_down(&self) {
        mark_end(self.mapping.words(0, word::END_NS + 1), end::SHUT_DOWN);
    }
}

impl Drop for BlackBox {
    /// Also of a runtime that was never completely built.
    fn drop(&mut self) {
        self.shut_down();
    }
}

/// Drops the cells of a worker in a mapping.
struct CellsOwner {
    cells: NonNull<WorkerCells>,
    mapping: Arc<Mapping>,
}

// SAFETY: `WorkerCells` is `Send` and `Sync`, and this only drops it.
unsafe impl Send for CellsOwner {}
// SAFETY: as above.
unsafe impl Sync for CellsOwner {}

impl Drop for CellsOwner {
    fn drop(&mut self) {
        // Nothing is freed in a child: see `mapping`.
        if self.mapping.is_here() {
            // SAFETY: written in `cells`, and no reference is left: `Placed` drops its owner last.
            unsafe { self.cells.drop_in_place() };
        }
    }
}
