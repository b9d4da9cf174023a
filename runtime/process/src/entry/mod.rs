//! What anybody may touch of one process: its word, its mailbox, its relations, its counts.
//!
//! Held by the registry while the process lives, by its runner, and by who has just looked it up.
//! Its state machine is the runner's alone.
//!
//! An end goes in this order (`end`): nothing comes in any more; the pid and the name are nobody's;
//! relations are taken out; then watchers and linked processes are told. Who is told can take the
//! name, and finds the pid dead. What runs code of the user, the dropping of what was inside, comes
//! last and behind a barrier.

pub(crate) mod mailbox;
pub(crate) mod relations;

use std::panic::Location;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Wake, Waker};

use volt_telemetry::recording::event::Loss;

use crate::entry::mailbox::{Mailbox, Overflow, Refused, Taken};
use crate::entry::relations::{Life, PendingUpgrade, Upgrade, Watcher};
use crate::messages::event::{Event, Message, MonitorId};
use crate::messages::failure::{ExitReason, Failure, dropped};
use crate::messages::payload::Payload;
use crate::messages::pid::{Node, Pid};
use crate::registry::Named;
use crate::state::State;
use volt::sync::oneshot;
use volt::task::AbortHandle;

/// See the header of this file.
#[derive(Debug)]
pub(crate) struct Entry<S> {
    pid: Pid,
    parent: Option<Pid>,
    system: S,
    traps_exits: bool,
    location: &'static Location<'static>,
    pub state: State,
    pub mailbox: Mailbox,
    life: Mutex<Life>,
    name: OnceLock<Arc<str>>,
    /// Of its task; there once that was polled for the first time, and so before anybody can find
    /// it waiting.
    waker: OnceLock<Waker>,
    task: OnceLock<AbortHandle>,
    steps: AtomicU64,
    is_sending: AtomicBool,
    is_cancelled: AtomicBool,
    has_upgrade: AtomicBool,
}

/// The system of an entry, as far as an entry needs it: to find other processes of the node, to
/// notify those of other nodes, and to count.
///
/// Entries name this trait and not the system itself, which is made of entries.
pub(crate) trait Home: Sized + Send + Sync + 'static {
    /// The process, if it lives.
    fn find(&self, pid: Pid) -> Option<Arc<Entry<Self>>>;

    /// Takes the pid and the name of a process that ends.
    fn remove(&self, pid: Pid);

    /// Whether a process is to be reached by the relay.
    fn is_remote(&self, pid: Pid) -> bool;

    /// A process that `node` watches, by its monitor `id`, has ended.
    fn down_remote(&self, node: Node, id: u64, local: MonitorId, reason: &ExitReason);

    /// `ours`, which was linked with `theirs`, has ended.
    fn exit_remote(&self, ours: Pid, theirs: Pid, reason: &ExitReason);

    /// A watcher of a process of another node has ended.
    fn demonitor_remote(&self, monitor: MonitorId, pid: Pid);

    /// A supervisor has decided on a restart.
    fn count_restart(&self, supervisor: Pid);

    /// A message found no room.
    fn count_lost(&self, pid: Pid, loss: Loss);

    /// A process has ended; nobody was told yet, so that whoever is finds it counted.
    fn count_end(&self, entry: &Entry<Self>, reason: &ExitReason);

    /// A process has ended, and everybody who wanted to know was told.
    fn ended(&self, entry: &Entry<Self>, reason: &ExitReason);
}

/// What an [`Entry`] is made of.
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

    /// Where it was spawned.
    pub(crate) fn location(&self) -> &'static Location<'static> {
        self.location
    }

    pub(crate) fn system(&self) -> &S {
        &self.system
    }

    pub(crate) fn name(&self) -> Option<&str> {
        self.name.get().map(|name| &**name)
    }

    /// Gives it a name, once.
    pub(crate) fn set_name(&self, name: Arc<str>) -> bool {
        self.name.set(name).is_ok()
    }

    /// The task in which it runs; `None` before the first poll of a process that is being started
    /// on another thread.
    pub(crate) fn task(&self) -> Option<&AbortHandle> {
        self.task.get()
    }

    pub(crate) fn set_task(&self, task: AbortHandle) {
        let set = self.task.set(task);
        debug_assert!(set.is_ok(), "a process has one task");
    }

    pub(crate) fn set_waker(&self, waker: &Waker) {
        let known = self.waker.get_or_init(|| waker.clone());
        debug_assert!(known.will_wake(waker), "a task's waker is the same in all its polls");
    }

    /// Steps so far, `init` among them.
    pub(crate) fn steps(&self) -> u64 {
        // ORDERING: Relaxed; a single-writer cell, a reading for show.
        self.steps.load(Ordering::Relaxed)
    }

    /// Counts a step. Runner only.
    pub(crate) fn count_step(&self) {
        // ORDERING: Relaxed; a single-writer cell.
        self.steps.store(self.steps.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Whether a yielded send waits for room; nothing else that the process sends may overtake it.
    pub(crate) fn is_sending(&self) -> bool {
        // ORDERING: Relaxed; written by the process's own runner, and read in its step; elsewhere
        // it is a hint.
        self.is_sending.load(Ordering::Relaxed)
    }

    /// Runner only.
    pub(crate) fn set_sending(&self, is_sending: bool) {
        if self.is_sending() != is_sending {
            // ORDERING: Relaxed; see `is_sending`.
            self.is_sending.store(is_sending, Ordering::Relaxed);
        }
    }

    /// Counts a restart that this process, a supervisor, has decided on: here, and in the system's
    /// sum.
    pub(crate) fn count_restart(&self) {
        if let Some(relations) = self.life().relations() {
            relations.restarts += 1;
        }
        self.system.count_restart(self.pid);
    }

    /// E1 to E3 for what is no message.
    pub(crate) fn deliver(&self, event: Event) {
        self.mailbox.push_event(event);
        self.wake();
    }

    /// E2 and E3: it is to step.
    pub(crate) fn wake(&self) {
        if self.state.wake() {
            self.wake_task();
        }
    }

    /// E1 to E3 for a message, at once.
    pub(crate) fn try_send(&self, message: Message) -> Result<Taken, Refused> {
        self.sent(self.mailbox.try_push(message))
    }

    /// E1 to E3 for a message, once there is room.
    pub(crate) async fn send(&self, message: Message) -> Result<(), Refused> {
        self.sent(self.mailbox.push(message).await).map(|_taken| ())
    }

    /// A sender that could have waited for room does not.
    pub(crate) fn count_refused(&self) {
        self.mailbox.count_refused();
        self.system.count_lost(self.pid, Loss::Refused);
    }

    /// It is asked to end, once: whoever asks again finds it asked.
    pub(crate) fn cancel(&self) {
        // ORDERING: Relaxed; read by the runner after it has taken the event out, and the mailbox's
        // lock orders that.
        if !self.is_cancelled.swap(true, Ordering::Relaxed) {
            self.deliver(Event::Cancel);
        }
    }

    /// Whether it was asked to end.
    pub(crate) fn is_cancelled(&self) -> bool {
        // ORDERING: Relaxed; see `cancel`.
        self.is_cancelled.load(Ordering::Relaxed)
    }

    /// It is to end, for `reason` unless there is another already.
    pub(crate) fn doom(&self, reason: ExitReason) {
        self.life().doom.get_or_insert_with(|| Box::new(reason));
        self.doomed();
    }

    /// It is to be upgraded before its next step, which is now; `waiter` hears what came of it.
    pub(crate) fn upgrade(&self, upgrade: Upgrade, waiter: oneshot::Sender<Result<(), Failure>>) {
        let mut life = self.life();
        let (is_dead, is_taken) = (life.is_dead, life.upgrade.is_some());
        if !is_dead && !is_taken {
            life.upgrade = Some(Box::new((upgrade, waiter)));
            // ORDERING: Relaxed; E1, ordered by E2 and R1 of the word (`state`), as everything that
            // the runner takes out.
            self.has_upgrade.store(true, Ordering::Relaxed);
            drop(life);
            return self.wake();
        }
        drop(life);
        // Dropped, it says that the process has ended.
        if is_taken {
            drop(waiter.send(Err(Failure::new(format_args!("another upgrade of {} waits for its step", self.pid)))));
        }
    }

    /// Takes out what it is to be upgraded to. Runner only: a step takes no lock for what hardly
    /// ever comes.
    pub(crate) fn take_upgrade(&self) -> Option<Box<PendingUpgrade>> {
        // ORDERING: Relaxed; see `upgrade`.
        if !self.has_upgrade.load(Ordering::Relaxed) {
            return None;
        }
        let mut life = self.life();
        // ORDERING: Relaxed; the lock orders it with those that set it.
        self.has_upgrade.store(false, Ordering::Relaxed);
        life.upgrade.take()
    }

    /// A watched process has ended.
    pub(crate) fn watched_ended(&self, monitor: MonitorId, pid: Pid, reason: ExitReason) {
        let mut life = self.life();
        if life.unwatch(monitor).is_some() {
            self.mailbox.push_event(Event::Down { monitor, pid, reason });
            drop(life);
            self.wake();
        }
    }

    /// A linked process has ended.
    pub(crate) fn linked_ended(&self, pid: Pid, reason: ExitReason) {
        let mut life = self.life();
        if life.unlink(pid) {
            self.exit(life, pid, reason);
        }
    }

    /// Does what the end of a linked process asks for; what says so is in before `life` is given
    /// back.
    pub(crate) fn exit(&self, mut life: MutexGuard<'_, Life>, pid: Pid, reason: ExitReason) {
        if self.traps_exits {
            self.mailbox.push_event(Event::Exit { pid, reason });
            drop(life);
            self.wake();
        } else if reason.is_abnormal() {
            life.doom.get_or_insert_with(|| Box::new(reason));
            drop(life);
            self.doomed();
        }
    }

    /// Both lives, in the order of the pids, so that two who do this at once do not wait for each
    /// other. `other` is not `self`.
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
        // No code of the user runs under this lock, so a panic leaves nothing half-done.
        self.life.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells everybody; for who has completed the word. See the header of this file.
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
        // Callers whose calls are inside are answered, and values dropped, when everybody knows.
        for event in left {
            dropped(event);
        }
        dropped(upgrade);
        dropped(result);
        self.system.ended(self, reason);
    }

    fn doomed(&self) {
        if self.state.doom() {
            self.wake_task();
        }
    }

    /// E2 and E3 for a message that is in; counts one that is not for want of room, unless its
    /// sender may wait for that.
    fn sent(&self, sent: Result<Taken, Refused>) -> Result<Taken, Refused> {
        match sent {
            Ok(Taken::In) => {
                if self.state.mail() {
                    self.wake_task();
                }
            }
            Err(Refused::Full(_)) if self.mailbox.overflow() == Overflow::Block => {}
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

/// Wakes the process from outside of any event: the waker of what a process awaits by itself.
impl<S: Home> Wake for Entry<S> {
    fn wake(self: Arc<Self>) {
        Entry::wake(&self);
    }

    fn wake_by_ref(self: &Arc<Self>) {
        Entry::wake(self);
    }
}
