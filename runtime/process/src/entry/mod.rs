//! The entry of a process: its state word, mailbox, relations and counters, which any thread may
//! use.
//!
//! The registry keeps the entry while the process is alive. The runner keeps it, too, and so does
//! each thread that has just looked the process up. The state machine is not part of the entry:
//! only the runner uses it.
//!
//! An exit takes these steps (`end`), in this order:
//!
//! 1. The mailbox is closed: nothing enters it any more.
//! 2. The pid and the name are released.
//! 3. The relations are taken out, and the process is marked as dead.
//! 4. Monitors and linked processes are notified. A process that is notified can take the name, and
//!    finds the pid dead.
//! 5. The contents of the mailbox are dropped, each value behind its own panic barrier. This comes
//!    last because it runs user code.

pub(crate) mod mailbox;

pub(crate) mod delivery;
pub(crate) mod relations;

use std::panic::Location;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Wake, Waker};

use volt_telemetry::recording::event::Loss;

use crate::entry::mailbox::{Mailbox, Refused, Taken};
use crate::entry::relations::{Life, PendingUpgrade, Upgrade, Watcher};
use crate::messages::event::{Event, Message, MonitorId};
use crate::messages::failure::{ExitReason, Failure, dropped};
use crate::messages::payload::Payload;
use crate::messages::pid::{Node, Pid};
use crate::registry::Named;
use crate::state::State;
use volt::sync::oneshot;
use volt::task::AbortHandle;

/// The entry of a process. See the module's documentation.
///
/// In this order, the fields that every sender changes are next to the reference counts, which
/// every sender changes, too. So senders on several processors exchange few cache lines.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Entry<S> {
    pub state: State,
    is_sending: AtomicBool,
    is_cancelled: AtomicBool,
    has_upgrade: AtomicBool,
    traps_exits: bool,
    pub mailbox: Mailbox,
    /// The waker of its task. It is set in the first poll, and so before any thread can find the
    /// process waiting.
    waker: OnceLock<Waker>,
    steps: AtomicU64,
    system: S,
    location: &'static Location<'static>,
    life: Mutex<Life>,
    name: OnceLock<Arc<str>>,
    task: OnceLock<AbortHandle>,
    pid: Pid,
    parent: Option<Pid>,
}

/// The part of a system that an entry uses: finds other processes of the node, notifies processes
/// of other nodes, and counts.
///
/// Entries use this trait and not `System`, because a system consists of entries.
pub(crate) trait Home: Sized + Send + Sync + 'static {
    /// Returns the process, if it is alive.
    fn find(&self, pid: Pid) -> Option<Arc<Entry<Self>>>;

    /// Releases the pid and the name of a process that exits.
    fn remove(&self, pid: Pid);

    /// Whether a process is reached through the relay.
    fn is_remote(&self, pid: Pid) -> bool;

    /// Notifies `node`, which watches a process by its monitor `id`, that the process has exited.
    fn down_remote(&self, node: Node, id: u64, local: MonitorId, reason: &ExitReason);

    /// Notifies `theirs`, a process of another node that was linked with `ours`, that `ours` has
    /// exited.
    fn exit_remote(&self, ours: Pid, theirs: Pid, reason: &ExitReason);

    /// Removes the monitor of a process that has exited from a process of another node.
    fn demonitor_remote(&self, monitor: MonitorId, pid: Pid);

    /// Counts a restart that a supervisor has decided on.
    fn count_restart(&self, supervisor: Pid);

    /// Counts a message that found no room.
    fn count_lost(&self, pid: Pid, loss: Loss);

    /// Counts an exit. Called before any process is notified, so that a process that is notified
    /// finds the exit counted.
    fn count_end(&self, entry: &Entry<Self>, reason: &ExitReason);

    /// Called when a process has exited and all its monitors and links have been notified.
    fn ended(&self, entry: &Entry<Self>, reason: &ExitReason);
}

/// The parts of a new [`Entry`].
pub(crate) struct Birth<S> {
    pub parent: Option<Pid>,
    pub system: S,
    pub kind: &'static str,
    pub traps_exits: bool,
    pub location: &'static Location<'static>,
    pub mailbox: Mailbox,
}

impl<S: Home> Entry<S> {
    pub(crate) fn new(pid: Pid, birth: Birth<S>) -> Self {
        let Birth { parent, system, kind, traps_exits, location, mailbox } = birth;
        Self {
            pid,
            parent,
            system,
            traps_exits,
            location,
            state: State::new(),
            mailbox,
            life: Mutex::new(Life::new(kind)),
            name: OnceLock::new(),
            waker: OnceLock::new(),
            task: OnceLock::new(),
            steps: AtomicU64::new(0),
            is_sending: AtomicBool::new(false),
            is_cancelled: AtomicBool::new(false),
            has_upgrade: AtomicBool::new(false),
        }
    }

    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    pub(crate) fn parent(&self) -> Option<Pid> {
        self.parent
    }

    /// Where the process was spawned.
    pub(crate) fn location(&self) -> &'static Location<'static> {
        self.location
    }

    pub(crate) fn system(&self) -> &S {
        &self.system
    }

    pub(crate) fn name(&self) -> Option<&str> {
        self.name.get().map(|name| &**name)
    }

    /// Sets the name. Returns false if the process has one already.
    pub(crate) fn set_name(&self, name: Arc<str>) -> bool {
        self.name.set(name).is_ok()
    }

    /// Returns the task of the process; `None` while the process is being started on another
    /// thread.
    pub(crate) fn task(&self) -> Option<&AbortHandle> {
        self.task.get()
    }

    pub(crate) fn set_task(&self, task: AbortHandle) {
        let set = self.task.set(task);
        debug_assert!(set.is_ok(), "a process has one task");
    }

    /// Returns the waker of its task; `None` before the first poll.
    pub(crate) fn waker(&self) -> Option<&Waker> {
        self.waker.get()
    }

    /// Stores the waker of the task's first poll. Called by the runner in each poll. Returns
    /// whether this is a poll for a task dump: its waker wakes the same task, and records the stack
    /// when it is cloned.
    pub(crate) fn set_waker(&self, waker: &Waker) -> bool {
        let known = self.waker.get_or_init(|| waker.clone());
        let is_traced = !known.will_wake(waker);
        debug_assert!(!is_traced || known.data() == waker.data(), "all wakers of a task have the same data");
        is_traced
    }

    /// Returns the number of steps so far, including `init`.
    pub(crate) fn steps(&self) -> u64 {
        // ORDERING: Relaxed; only the runner writes it, and the value is only displayed.
        self.steps.load(Ordering::Relaxed)
    }

    /// Counts a step. Called by the runner only.
    pub(crate) fn count_step(&self) {
        // ORDERING: Relaxed; only the runner writes it.
        self.steps.store(self.steps.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Whether a yielded send waits for room. Nothing else that the process sends may overtake it.
    pub(crate) fn is_sending(&self) -> bool {
        // ORDERING: Relaxed; the process's own runner writes it, and reads it in a step. For other
        // threads it is only a hint.
        self.is_sending.load(Ordering::Relaxed)
    }

    /// Called by the runner only.
    pub(crate) fn set_sending(&self, is_sending: bool) {
        if self.is_sending() != is_sending {
            // ORDERING: Relaxed; see `is_sending`.
            self.is_sending.store(is_sending, Ordering::Relaxed);
        }
    }

    /// Counts a restart that this process, a supervisor, has decided on: here and in the system's
    /// total.
    pub(crate) fn count_restart(&self) {
        if let Some(relations) = self.life().relations() {
            relations.restarts += 1;
        }
        self.system.count_restart(self.pid);
    }

    /// E1 to E3 (see `state`) for an event other than a message.
    pub(crate) fn deliver(&self, event: Event) {
        self.mailbox.push_event(event);
        self.wake();
    }

    /// E2 and E3: makes the process step.
    pub(crate) fn wake(&self) {
        if self.state.wake() {
            self.wake_task();
        }
    }

    /// E1 to E3 (see `state`) for a message, without waiting for room.
    pub(crate) fn try_send(&self, message: Message) -> Result<Taken, Refused> {
        self.sent(self.mailbox.try_push(message))
    }

    /// Requests that the process ends. Only the first request delivers an event.
    pub(crate) fn cancel(&self) {
        // ORDERING: Relaxed; the runner reads it after it has taken the event out, and the lock of
        // the mailbox orders the two.
        if !self.is_cancelled.swap(true, Ordering::Relaxed) {
            self.deliver(Event::Cancel);
        }
    }

    /// Whether the process was cancelled.
    pub(crate) fn is_cancelled(&self) -> bool {
        // ORDERING: Relaxed; see `cancel`.
        self.is_cancelled.load(Ordering::Relaxed)
    }

    /// Makes the process exit before its next step, with `reason` unless it has a reason already.
    pub(crate) fn request_exit(&self, reason: ExitReason) {
        self.life().exit_reason.get_or_insert_with(|| Box::new(reason));
        self.wake_to_exit();
    }

    /// Upgrades the process before its next step, which this call causes. `waiter` receives the
    /// result.
    pub(crate) fn upgrade(&self, upgrade: Upgrade, waiter: oneshot::Sender<Result<(), Failure>>) {
        let mut life = self.life();
        let (is_dead, is_taken) = (life.is_dead, life.upgrade.is_some());
        if !is_dead && !is_taken {
            life.upgrade = Some(Box::new((upgrade, waiter)));
            // ORDERING: Relaxed; this is part of E1. E2 and R1 order it, as they order everything
            // that the runner takes out.
            self.has_upgrade.store(true, Ordering::Relaxed);
            drop(life);
            return self.wake();
        }
        drop(life);
        // If the process is dead, dropping `waiter` reports that.
        if is_taken {
            drop(waiter.send(Err(Failure::new(format_args!("another upgrade of {} is pending", self.pid)))));
        }
    }

    /// Takes the pending upgrade out. Called by the runner only. The flag spares a step the lock:
    /// upgrades are rare.
    pub(crate) fn take_upgrade(&self) -> Option<Box<PendingUpgrade>> {
        // ORDERING: Relaxed; see `upgrade`.
        if !self.has_upgrade.load(Ordering::Relaxed) {
            return None;
        }
        let mut life = self.life();
        // ORDERING: Relaxed; the lock orders it with `upgrade`.
        self.has_upgrade.store(false, Ordering::Relaxed);
        life.upgrade.take()
    }

    /// Reports that a monitored process has exited.
    pub(crate) fn watched_ended(&self, monitor: MonitorId, pid: Pid, reason: ExitReason) {
        let mut life = self.life();
        if life.unwatch(monitor).is_some() {
            self.mailbox.push_event(Event::Down { monitor, pid, reason });
            drop(life);
            self.wake();
        }
    }

    /// Reports that a linked process has exited.
    pub(crate) fn linked_ended(&self, pid: Pid, reason: ExitReason) {
        let mut life = self.life();
        if life.unlink(pid) {
            self.exit(life, pid, reason);
        }
    }

    /// Applies the exit of a linked process: delivers an event if this process traps exits, or else
    /// requires it to exit if the exit is abnormal. The event or the reason is in place before
    /// `life` is unlocked.
    pub(crate) fn exit(&self, mut life: MutexGuard<'_, Life>, pid: Pid, reason: ExitReason) {
        if self.traps_exits {
            self.mailbox.push_event(Event::Exit { pid, reason });
            drop(life);
            self.wake();
        } else if reason.is_abnormal() {
            life.exit_reason.get_or_insert_with(|| Box::new(reason));
            drop(life);
            self.wake_to_exit();
        }
    }

    /// Locks both lives in the order of their pids, so that two threads that do this at the same
    /// time do not deadlock. `other` must not be `self`.
    pub(crate) fn lives<'a>(&'a self, other: &'a Self) -> (MutexGuard<'a, Life>, MutexGuard<'a, Life>) {
        if self.pid < other.pid {
            let ours = self.life();
            (ours, other.life())
        } else {
            let theirs = other.life();
            (self.life(), theirs)
        }
    }

    pub(crate) fn life(&self) -> MutexGuard<'_, Life> {
        // No user code runs under this lock, so a panic leaves nothing half-done.
        self.life.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Releases the process and notifies monitors and links. Called by the thread whose `complete`
    /// returned true. See the module's documentation.
    pub(crate) fn end(&self, reason: &ExitReason, mut result: Option<Payload>) {
        let left = self.mailbox.close();
        self.system.remove(self.pid);
        self.system.count_end(self, reason);
        let mut life = self.life();
        let relations = life.end();
        let upgrade = life.upgrade.take();
        drop(life);
        for (monitor, watcher) in relations.watchers {
            match watcher {
                Watcher::Waiter(waiter) => _ = waiter.send((reason.clone(), None)),
                Watcher::Executor(waiter) => {
                    if let Err((_, unwanted)) = waiter.send((reason.clone(), result.take())) {
                        result = unwanted;
                    }
                }
                Watcher::Remote(node, id) => self.system.down_remote(node, id, monitor, reason),
                Watcher::Process(pid) => {
                    if let Some(watcher) = self.system.find(pid) {
                        watcher.watched_ended(monitor, self.pid, reason.clone());
                    }
                }
            }
        }
        for pid in relations.links {
            if self.system.is_remote(pid) {
                self.system.exit_remote(self.pid, pid, reason);
            } else if let Some(linked) = self.system.find(pid) {
                linked.linked_ended(self.pid, reason.clone());
            }
        }
        for (monitor, pid) in relations.watched {
            if self.system.is_remote(pid) {
                self.system.demonitor_remote(monitor, pid);
            } else if let Some(watched) = self.system.find(pid) {
                let removed = watched.life().remove_watcher(monitor);
                drop(removed);
            }
        }
        // These destructors are user code; a dropped call fails for its caller. Run them last.
        for event in left {
            dropped(event);
        }
        dropped(upgrade);
        dropped(result);
        self.system.ended(self, reason);
    }

    fn wake_to_exit(&self) {
        if self.state.request_exit() {
            self.wake_task();
        }
    }

    /// E2 and E3 for a message that entered the mailbox. Counts a message that was dropped or
    /// refused because there is no room.
    pub(crate) fn sent(&self, sent: Result<Taken, Refused>) -> Result<Taken, Refused> {
        match sent {
            Ok(Taken::In) => {
                if self.state.mail() {
                    self.wake_task();
                }
            }
            Ok(Taken::Dropped) => self.system.count_lost(self.pid, Loss::Dropped),
            Err(Refused::Full(_)) => self.system.count_lost(self.pid, Loss::Refused),
            Err(Refused::Closed(_)) => {}
        }
        sent
    }

    /// E3.
    fn wake_task(&self) {
        if let Some(waker) = self.waker.get() {
            waker.wake_by_ref();
        }
    }
}

impl<S: Home> Named for Entry<S> {
    fn name(&self) -> Option<&str> {
        self.name()
    }
}

/// The waker for operations that a process awaits outside of its yields. It makes the process step
/// without an event.
impl<S: Home> Wake for Entry<S> {
    fn wake(self: Arc<Self>) {
        Entry::wake(&self);
    }

    fn wake_by_ref(self: &Arc<Self>) {
        Entry::wake(self);
    }
}
