//! Records which task holds a lock, and which tasks wait for it: the data behind *held by* in a
//! dump and the rule `deadlock`.
//!
//! A lock contains a [`Holder`]: which task acquired it, where, and when. An operation that waits
//! for the lock has a [`Wait`]: an entry in a table of the program, by the address of the holder.
//! From both follow the edges *task → lock → task* of the wait-for graph.
//!
//! Terms. The *owner* of a lock is the task that acquired it last and has not released it. The
//! *entry* is the record of an operation that waits. The *copy* is that of the holder, which all
//! entries of a lock share. A lock is *handed* to a waiter if its owner releases it while the
//! waiter is in the queue of the lock.
//!
//! An ordinary case: task 1 acquires lock A. Task 2 calls `lock` on A, and its poll is pending. It
//! adds an entry for A to the table, with a copy of the holder: task 1. Task 1 releases A, which
//! clears the holder, and the lock is handed to task 2. When task 2 is polled, it writes itself
//! into the holder, and its entry is removed. If task 3 waits, too, the copy in the table then
//! names task 2.
//!
//! The race: while task 2 makes its copy, which names task 1, task 1 releases A, and task 3
//! acquires A. If the copy named task 1 for as long as task 3 has the lock, the doctor would report
//! a wait that does not exist. So task 2 joins the queue of the lock first, and makes its copy
//! after that. Once it is in the queue, A is handed from one waiter to the next, and each of them
//! corrects the copy at the end of its wait. If task 3 took A before task 2 joined the queue, task
//! 1 had cleared the holder before, and the copy has task 3 or nothing. Hence the order of the two
//! steps in (3), and of (2) and the release. A waiter that ends its wait records itself (1) before
//! it copies the holder (4); otherwise the copy would be empty.
//!
//! A second race: task 1 takes the free lock A, but its budget is spent, so it yields before it
//! stores itself into the holder. Task 2 begins to wait meanwhile, and its copy is empty. Neither
//! of them would correct it: task 1 has no entry, and task 2 is not polled before it gets the lock.
//! So task 1 copies the holder when it has stored itself (5).
//!
//! Protocol:
//! 1. Acquire: the new owner stores *task* and *since*, and then *at*.
//! 2. Release: the owner clears *at*, before the lock is free.
//! 3. Wait: a pending operation, after it joined the queue of the lock, adds its entry and copies
//!    the holder, under the lock of the table's shard. It does so again in each further poll.
//! 4. End of the wait, by success or cancellation: the entry is removed, and the holder is copied
//!    again if others wait. On success that is after *Acquire*.
//! 5. Correction: code that changes the record, and would leave the copy wrong for the rest of a
//!    wait, copies the holder again, under the lock of the shard. Two cases need it: an owner that
//!    yielded between taking a free lock and (1); and a semaphore that ceases to be a lock, because
//!    its permit is forgotten or others are added. Then (2) hands the permit to no waiter.
//!
//! Acquire and release cost two loads and four stores to memory that the lock has in the
//! cache anyway; everything else happens only in operations that are pending.
//!
//! Writers: the task that acquires or releases; operations that wait. Readers: threads that list
//! tasks or take snapshots, which read only the table.
//!
//! Invariants:
//! * *No pointer to a lock is followed*: the table contains copies, and addresses only as keys. A
//!   lock may be moved or freed while an operation that was leaked (`mem::forget`) still has its
//!   entry.
//! * *Fair locks*: while an operation waits in the queue of a lock, every acquisition comes out of
//!   that queue. So (4) updates the copy in the table.
//! * *One permit each*: a release hands the lock to the first waiter. If that one waits for several
//!   permits of a semaphore of one permit, it goes on waiting. So its entry is like one of a
//!   semaphore of several permits: no edge of the graph.
//! * *A copy may be outdated, which can be seen*: after a release, the copy names the former owner
//!   until the waiter to whom the lock was handed is polled. That waiter has been woken. So the
//!   copy is right if all tasks that wait for the lock have waited, unwoken, since their entries
//!   were made.
//! * *A copy may be missing*: an owner that acquired the lock at the same moment has not stored
//!   *at* yet. Then nothing is known, and nothing is reported.
//!
//! The owner is the task that acquired the lock. An owned guard is meant to be moved to other
//! tasks, so *owned* is recorded. A reader of a reader-writer lock is recorded as *shared*, while
//! it is alone: a second reader clears *at* in (1), and each reader does so in (2). So several
//! readers may write at the same time, and *at* never names a reader that has released the lock.
//!
//! A bounded channel has a holder, too: the task that receives from it ([`Guard::Receiver`]), which
//! stays recorded until another one receives. An operation that waits for room in the channel has a
//! wait, if its task also receives from a channel (`receivers`). The receiver may be moved to
//! another task that has not received yet, so an edge through a channel is never certain.
//!
//! A semaphore of several permits has no holder, but a record for each acquisition (`permits`). An
//! operation that waits for it has an entry, too, with the number of the semaphore instead of a
//! copy of the holder. It is no edge of the graph, since any of the permits may end the wait.
//!
//! Rejected: an entry per guard (a look-up for each acquisition); a pointer from the table to the
//! lock (an operation that was leaked keeps it beyond the life of the lock); a field in the task's
//! header (16 bytes per task, after the allocator's rounding).

mod holder;
mod record;

#[cfg(not(loom))]
mod permits;
#[cfg(not(loom))]
mod receivers;
mod shard;
#[cfg(not(loom))]
mod table;

#[cfg(all(test, loom))]
mod loom_models;
#[cfg(all(test, not(loom)))]
mod tests;

pub use holder::{Guard, Holder};
#[cfg(not(loom))]
pub use permits::{Acquired, SemaphoreId};
#[cfg(not(loom))]
pub use table::Wait;

pub(crate) use holder::Holding;
#[cfg(not(loom))]
pub(crate) use permits::acquisitions;
#[cfg(not(loom))]
pub(crate) use record::Acquisition;
#[cfg(not(loom))]
pub(crate) use table::{Held, Waiter, held, is_any};
