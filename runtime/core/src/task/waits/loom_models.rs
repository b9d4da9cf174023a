//! loom models of the table of waits. When every task that still waits for a lock is unwoken, the
//! table names its owner if the lock was handed on. If the owner took a free lock, the table names
//! it or nothing: *A copy may be missing* in the parent module. After a correction, it names that
//! owner, too. It never names a former owner.
//!
//! The holder and the table are the shipped code, with a shard of the model instead of the static
//! table. The lock is a fair queue, as Tokio's semaphore is. Steps, with the numbers of the parent
//! module:
//!
//! 1. Acquire: the owner stores itself into the holder.
//! 2. Release: the owner clears the holder. Then the lock is handed to the first of its queue,
//!    which is woken, or is free.
//! 3. Wait: a pending operation joins the queue, and then adds its entry.
//! 4. End of the wait: the woken operation acquires, and then removes its entry.
//! 5. Correction: the owner that took a free lock copies the holder after it has stored itself.
//!
//! Each twin has one incorrect step, and must fail with the message of the assertion that it
//! breaks.

use std::collections::VecDeque;
use std::panic::Location;

use loom::sync::Arc;
use loom::thread;
use volt_explore::{breaks, holds};
use volt_shim::Mutex;

use super::holder::{Guard, Holder};
use super::shard::{Shard, Ticketed};

/// The operation that owns the lock at first.
const FIRST: usize = 0;
/// The first owner, and two operations that lock.
const OPERATIONS: usize = 3;

/// A separate location for each operation: they differ in the column.
const LINES: [fn() -> &'static Location<'static>; OPERATIONS] =
    [|| Location::caller(), || Location::caller(), || Location::caller()];

fn line(operation: usize) -> &'static Location<'static> {
    LINES[operation]()
}

/// A lock, its holder and the table.
struct Model {
    holder: Holder,
    queue: Mutex<Queue>,
    shard: Mutex<Shard<Waiter>>,
}

/// An operation in the table, with its ticket.
struct Waiter(u64);

impl Ticketed for Waiter {
    fn ticket(&self) -> u64 {
        self.0
    }

    fn numbered(self, ticket: u64, _: Option<&Self>) -> Self {
        Self(ticket)
    }
}

#[derive(Default)]
struct Queue {
    /// The operation that owns the lock, or to which it was handed.
    owner: Option<usize>,
    waiting: VecDeque<usize>,
    /// Whether the owner got the lock from the former one, by way of the queue.
    was_handed_on: bool,
}

/// The steps that a fault can replace.
trait Steps: 'static {
    /// Whether the owner that takes a free lock makes a correction.
    const IS_CORRECTED: bool = false;

    /// (3). Returns whether the lock was free; if not, the ticket of the entry.
    fn lock(model: &Model, operation: usize) -> Result<(), u64> {
        model.join(operation)
    }

    /// (4)
    fn end_wait(model: &Model, operation: usize, ticket: u64) {
        model.acquired(operation);
        model.leave(ticket);
    }
}

struct AsBuilt;

impl Steps for AsBuilt {}

impl Model {
    /// Returns a lock that the first operation owns.
    fn new() -> Self {
        let queue = Queue { owner: Some(FIRST), ..Queue::default() };
        let model = Self { holder: Holder::new(), queue: Mutex::new(queue), shard: Mutex::new(Shard::new()) };
        model.acquired(FIRST);
        model
    }

    /// (1)
    fn acquired(&self, operation: usize) {
        self.holder.acquired_by(operation as u64 + 1, 0, line(operation), Guard::Borrowed);
    }

    /// Acquires the lock if it is free; otherwise joins the queue and adds an entry.
    fn join(&self, operation: usize) -> Result<(), u64> {
        if self.try_lock_or_queue(operation) {
            self.acquired(operation);
            return Ok(());
        }
        Err(self.enter())
    }

    fn try_lock_or_queue(&self, operation: usize) -> bool {
        let mut queue = self.queue.lock();
        if queue.owner.is_none() {
            queue.owner = Some(operation);
            return true;
        }
        queue.waiting.push_back(operation);
        false
    }

    fn enter(&self) -> u64 {
        self.shard.lock().enter(&self.holder, None, Waiter(0))
    }

    /// (5)
    fn correct(&self) {
        self.shard.lock().copy_again(&self.holder);
    }

    fn leave(&self, ticket: u64) {
        self.shard.lock().leave(&self.holder, ticket);
    }

    /// (2)
    fn unlock(&self) {
        self.holder.released();
        let mut queue = self.queue.lock();
        queue.owner = queue.waiting.pop_front();
        queue.was_handed_on = queue.owner.is_some();
    }

    fn owner(&self) -> Option<usize> {
        self.queue.lock().owner
    }
}

/// Two operations lock, beside the unlock of the first owner. One of them gets the lock and keeps
/// it, and the other one waits.
fn model<S: Steps>() {
    let model = Arc::new(Model::new());
    let lockers = [1, 2].map(|operation| {
        let model = model.clone();
        thread::spawn(move || {
            let locked = S::lock(&model, operation);
            match locked {
                Err(ticket) if model.owner() == Some(operation) => {
                    S::end_wait(&model, operation, ticket);
                    None
                }
                Err(ticket) => Some((operation, ticket)),
                Ok(()) => None,
            }
        })
    });
    model.unlock();
    // The tasks that still wait. One may have been woken since it checked, and is polled now.
    let mut waiting: Vec<(usize, u64)> = lockers.map(|locker| locker.join().unwrap()).into_iter().flatten().collect();
    if let Some(index) = waiting.iter().position(|&(operation, _)| model.owner() == Some(operation)) {
        let (operation, ticket) = waiting.swap_remove(index);
        S::end_wait(&model, operation, ticket);
    }
    assert_eq!(waiting.len(), 1, "one of them has the lock");
    let owner = model.owner().expect("the lock was handed on, or was free");
    let shard = model.shard.lock();
    let resource = &shard.resources[&model.holder.key()];
    assert_eq!((resource.waiters.len(), shard.waiting), (1, 1), "each wait that ended removed its entry");
    let named = resource.holding.map(|holding| (holding.task, holding.at));
    let is_owner = named == Some((Some(owner as u64 + 1), line(owner)));
    if model.queue.lock().was_handed_on {
        assert!(is_owner, "the table names the owner after the lock was handed on");
    } else if S::IS_CORRECTED {
        assert!(is_owner, "the table names the owner after a correction");
    } else {
        assert!(is_owner || named.is_none(), "the table names no former owner");
    }
}

#[test]
fn loom_the_table_of_waits_names_the_owner_of_a_lock() {
    holds(None, model::<AsBuilt>);
}

#[test]
fn loom_a_correction_names_the_owner_that_took_a_free_lock() {
    struct Corrects;
    impl Steps for Corrects {
        const IS_CORRECTED: bool = true;

        fn lock(model: &Model, operation: usize) -> Result<(), u64> {
            model.join(operation).inspect(|()| model.correct())
        }
    }
    holds(None, model::<Corrects>);
}

#[test]
fn loom_twin_a_correction_before_the_record_names_no_owner() {
    struct CorrectsEarly;
    impl Steps for CorrectsEarly {
        const IS_CORRECTED: bool = true;

        fn lock(model: &Model, operation: usize) -> Result<(), u64> {
            if model.try_lock_or_queue(operation) {
                model.correct();
                model.acquired(operation);
                return Ok(());
            }
            Err(model.enter())
        }
    }
    breaks("the table names the owner after a correction", None, model::<CorrectsEarly>);
}

#[test]
fn loom_twin_an_entry_removed_early_names_no_owner() {
    struct LeavesEarly;
    impl Steps for LeavesEarly {
        fn end_wait(model: &Model, operation: usize, ticket: u64) {
            model.leave(ticket);
            model.acquired(operation);
        }
    }
    breaks("the table names the owner after the lock was handed on", None, model::<LeavesEarly>);
}

#[test]
fn loom_twin_an_entry_added_early_names_a_former_owner() {
    struct EntersEarly;
    impl Steps for EntersEarly {
        fn lock(model: &Model, operation: usize) -> Result<(), u64> {
            if model.owner().is_none() {
                return model.join(operation);
            }
            let ticket = model.enter();
            if model.try_lock_or_queue(operation) {
                Self::end_wait(model, operation, ticket);
                return Ok(());
            }
            Err(ticket)
        }
    }
    breaks("the table names no former owner", None, model::<EntersEarly>);
}
