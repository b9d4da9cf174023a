//! The mailbox of a process: the queue of events that wait for its next step. Many threads put
//! events in; only the process's runner takes them out.
//!
//! The mailbox has a capacity, which counts messages only. Its policy ([`Overflow`]) defines what
//! happens to a message when it is full. Events other than messages are never refused: a process
//! would wait forever for a completion that found no room. Their number is bounded by other means.
//! There is at most one for each yield that another thread completes (`Output::YIELDS_MAX`), for
//! each monitor and for each link, and one cancellation.
//!
//! # Waiting for room, under `Block`
//!
//! A sender that finds no room counts itself as waiting (W1), waits for a permit (W2), and puts its
//! message in (W3). W3 also decrements the number of waiting senders and of permits. When the
//! runner takes messages out, it lends the free room to senders that wait and have no permit yet
//! (L1, under the lock). Then it adds as many permits to the semaphore (L2, without the lock).
//!
//! An ordinary case: a mailbox of capacity 1 is full, and sender A waits (W1, W2). The runner takes
//! the message out, and lends the room to A (L1, L2). Sender B arrives before A runs: it finds no
//! room, since the room is lent, and waits behind A. Then A puts its message in (W3).
//!
//! A sender that gives up between W1 and W3 undoes only its W1. If it had a permit, that goes to
//! the next waiting sender. A permit for which no sender waits is a surplus; the next sender that
//! checks for room takes it back.
//!
//! # Invariants
//!
//! * *ORDER*: events leave in the order in which they entered, so messages of one sender stay in
//!   order.
//! * *ROOM*: messages in the mailbox + permits lent ≤ capacity. The two sides are equal while more
//!   senders wait than have permits. So a sender that finds room does not overtake one that waits.
//! * *CLOSED IS EMPTY*: nothing enters after `close`. `close` returns the contents, and its caller
//!   drops them without the lock: dropping a value runs user code, and dropping a call fails it for
//!   its caller.
//!
//! # Rejected
//!
//! * A permit for each free place of every mailbox: four more read-modify-writes per message and 40
//!   bytes per process, for senders that rarely wait.
//! * A lock-free list of blocks, as in channels. A process that never received a message would hold
//!   a block, which costs 2 GB for a million processes. The short lock costs one more
//!   read-modify-write per message, and takes a whole batch out at a time.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::messages::event::{Event, Message};
use volt::sync::Semaphore;
use volt::task::consume_budget;

/// The default capacity, in messages.
pub(crate) const CAPACITY: usize = 1024;
/// The largest capacity. A process that is a million messages behind does not catch up.
pub(crate) const CAPACITY_MAX: usize = 1 << 20;
/// A queue that has grown beyond this many events is freed once it is empty, so that a burst does
/// not hold memory forever.
const KEEP: usize = 4;

/// What happens to a message for which a mailbox has no room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overflow {
    /// The sender waits, in order of arrival. A sender that cannot wait gets an error. Two
    /// processes that only wait for room in each other's mailboxes wait forever; a
    /// [call](crate::System::call) ends that with its timeout.
    #[default]
    Block,
    /// The message is dropped and counted. The sender gets no error.
    DropNewest,
    /// The sender gets an error.
    Error,
}

/// The mailbox of a process. See the module's documentation.
#[derive(Debug)]
pub(crate) struct Mailbox(Mutex<Queue>);

/// The small fields come last, next to each other: each of a million processes has one of these.
#[derive(Debug)]
struct Queue {
    events: VecDeque<Event>,
    /// Set when a sender has to wait for the first time.
    waiters: Option<Box<Waiters>>,
    dropped: u64,
    messages: u32,
    high_water: u32,
    capacity: u32,
    overflow: Overflow,
    is_closed: bool,
}

#[derive(Debug)]
struct Waiters {
    /// Each permit is room for one message, reserved for a sender that waits.
    room: Arc<Semaphore>,
    /// Senders between W1 and W3.
    waiting: u32,
    /// Permits that are not used yet, including those between L1 and L2.
    lent: u32,
}

/// How full a mailbox is, and was.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Depth {
    pub messages: u32,
    pub high_water: u32,
    /// Messages that were dropped or refused since the process started.
    pub dropped: u64,
}

/// What happened to a message that the mailbox accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    In,
    /// It was dropped, as the policy demands.
    Dropped,
}

/// What is in a mailbox.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Left {
    pub has_mail: bool,
    /// Whether it contains an event other than a message.
    pub has_events: bool,
}

/// Why a message was refused.
#[derive(Debug)]
pub(crate) enum Refused {
    /// There is no room. Contains the message.
    Full(Message),
    /// The process has exited. Contains the message, which must be dropped without a lock.
    Closed(Message),
}

impl Mailbox {
    pub(crate) fn new(capacity: u32, overflow: Overflow) -> Self {
        Self(Mutex::new(Queue {
            events: VecDeque::new(),
            waiters: None,
            dropped: 0,
            messages: 0,
            high_water: 0,
            capacity,
            overflow,
            is_closed: false,
        }))
    }

    /// Puts `message` in; under `Block`, waits for room.
    ///
    /// Cancel safe: if the future is dropped before it completes, the message is dropped, and has
    /// not entered the mailbox.
    pub(crate) async fn push(&self, message: Message) -> Result<Taken, Refused> {
        // A sender that always finds room must yield to other tasks, too.
        consume_budget().await;
        let (message, room) = {
            let mut queue = self.lock();
            match queue.put_if_room(message) {
                // W1.
                Err(Refused::Full(message)) if queue.overflow == Overflow::Block => (message, queue.wait()),
                Err(Refused::Full(message)) => {
                    drop(queue);
                    return self.try_push(message);
                }
                put => return put,
            }
        };
        let place = Place(self);
        // W2. If this sender gives up here, its permit is returned before its `Place` is dropped.
        let Ok(permit) = room.acquire().await else { return Err(Refused::Closed(message)) };
        permit.forget();
        std::mem::forget(place);
        // W3.
        let mut queue = self.lock();
        if let Some(waiters) = &mut queue.waiters {
            waiters.waiting -= 1;
            waiters.lent -= 1;
        }
        queue.put(message)
    }

    /// Puts `message` in, or applies the policy without waiting. A refusal under `Block` is not
    /// counted, since the sender may wait.
    pub(crate) fn try_push(&self, message: Message) -> Result<Taken, Refused> {
        let mut queue = self.lock();
        match queue.put_if_room(message) {
            Err(Refused::Full(message)) => {
                queue.dropped += u64::from(queue.overflow != Overflow::Block);
                let is_told = queue.overflow != Overflow::DropNewest;
                drop(queue);
                if is_told { Err(Refused::Full(message)) } else { Ok(Taken::Dropped) }
            }
            put => put,
        }
    }

    /// Puts in an event other than a message.
    pub(crate) fn push_event(&self, event: Event) {
        let mut queue = self.lock();
        if !queue.is_closed {
            queue.events.push_back(event);
            return;
        }
        drop(queue);
        drop(event);
    }

    /// Counts a message that was refused because its sender does not wait.
    pub(crate) fn count_refused(&self) {
        self.lock().dropped += 1;
    }

    /// Moves at most `max` events to `batch`. Returns what is left.
    pub(crate) fn drain(&self, batch: &mut VecDeque<Event>, max: usize) -> Left {
        let mut queue = self.lock();
        let count = queue.events.len().min(max);
        batch.reserve(count);
        for _ in 0..count {
            if let Some(event) = queue.events.pop_front() {
                queue.messages -= u32::from(matches!(event, Event::Message(_)));
                batch.push_back(event);
            }
        }
        let left = queue.left();
        if queue.events.is_empty() && queue.events.capacity() > KEEP {
            queue.events = VecDeque::new();
        }
        let lent = queue.lend();
        drop(queue);
        if let Some((room, permits)) = lent {
            // L2.
            room.add_permits(permits as usize);
        }
        left
    }

    /// Refuses everything from now on. Returns the contents.
    pub(crate) fn close(&self) -> VecDeque<Event> {
        let mut queue = self.lock();
        queue.is_closed = true;
        queue.messages = 0;
        let left = std::mem::take(&mut queue.events);
        // A sender that begins to wait after this finds the mailbox closed.
        let waiters = queue.waiters.take();
        drop(queue);
        if let Some(waiters) = waiters {
            waiters.room.close();
        }
        left
    }

    pub(crate) fn depth(&self) -> Depth {
        let queue = self.lock();
        Depth { messages: queue.messages, high_water: queue.high_water, dropped: queue.dropped }
    }

    /// Returns what is in the mailbox.
    pub(crate) fn left(&self) -> Left {
        self.lock().left()
    }

    pub(crate) fn overflow(&self) -> Overflow {
        self.lock().overflow
    }

    pub(crate) fn capacity(&self) -> usize {
        self.lock().capacity as usize
    }

    /// No user code runs under this lock, so a panic leaves nothing half-done.
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    fn left(&self) -> Left {
        Left { has_mail: self.messages > 0, has_events: self.events.len() > self.messages as usize }
    }

    /// Puts `message` in if there is room, whatever the policy.
    fn put_if_room(&mut self, message: Message) -> Result<Taken, Refused> {
        if !self.is_closed && !self.has_room() {
            return Err(Refused::Full(message));
        }
        self.put(message)
    }

    fn put(&mut self, message: Message) -> Result<Taken, Refused> {
        if self.is_closed {
            return Err(Refused::Closed(message));
        }
        self.events.push_back(Event::Message(message));
        self.messages += 1;
        self.high_water = self.high_water.max(self.messages);
        Ok(Taken::In)
    }

    /// Whether there is room that is not lent to a waiting sender.
    fn has_room(&mut self) -> bool {
        let Some(waiters) = &mut self.waiters else { return self.messages < self.capacity };
        // Takes back the permits of senders that gave up. One that L2 has not added yet is taken
        // back the next time.
        let surplus = waiters.lent.saturating_sub(waiters.waiting);
        if surplus > 0 {
            waiters.lent -= waiters.room.forget_permits(surplus as usize) as u32;
        }
        self.messages + waiters.lent < self.capacity
    }

    /// W1. Returns the semaphore to wait for.
    fn wait(&mut self) -> Arc<Semaphore> {
        let waiters = self
            .waiters
            .get_or_insert_with(|| Box::new(Waiters { room: Arc::new(Semaphore::new(0)), waiting: 0, lent: 0 }));
        waiters.waiting += 1;
        waiters.room.clone()
    }

    /// L1. Returns how many permits must be added, and to which semaphore.
    fn lend(&mut self) -> Option<(Arc<Semaphore>, u32)> {
        let waiters = self.waiters.as_mut()?;
        let free = self.capacity - self.messages - waiters.lent;
        let permits = free.min(waiters.waiting.saturating_sub(waiters.lent));
        waiters.lent += permits;
        (permits > 0).then(|| (waiters.room.clone(), permits))
    }
}

/// A sender between W1 and W3. Dropped if the sender gives up.
struct Place<'a>(&'a Mailbox);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if let Some(waiters) = &mut self.0.lock().waiters {
            waiters.waiting -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::{Pin, pin};
    use std::task::{Context, Poll, Waker};

    use super::*;
    use crate::messages::payload::Payload;

    fn message() -> Message {
        Message { from: None, payload: Payload::empty(), reply: None }
    }

    /// A mailbox with room for one message, and one message in it.
    fn full() -> Mailbox {
        let mailbox = Mailbox::new(1, Overflow::Block);
        mailbox.try_push(message()).unwrap();
        mailbox
    }

    fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    fn drained(mailbox: &Mailbox) -> usize {
        let mut batch = VecDeque::new();
        assert!(!mailbox.drain(&mut batch, usize::MAX).has_mail);
        batch.len()
    }

    #[test]
    fn no_sender_takes_the_room_of_a_waiting_sender() {
        let mailbox = full();
        let mut waits = pin!(mailbox.push(message()));
        assert!(poll(waits.as_mut()).is_pending());
        assert_eq!(drained(&mailbox), 1);
        assert!(matches!(mailbox.try_push(message()), Err(Refused::Full(_))));
        assert!(matches!(poll(waits.as_mut()), Poll::Ready(Ok(Taken::In))));
        assert_eq!(drained(&mailbox), 1);
        assert_eq!(mailbox.depth().high_water, 1);
    }

    #[test]
    fn cancelling_a_blocked_send_passes_its_slot_to_the_next_sender() {
        let mailbox = full();
        let mut first = Box::pin(mailbox.push(message()));
        let mut second = pin!(mailbox.push(message()));
        assert!(poll(first.as_mut()).is_pending());
        assert!(poll(second.as_mut()).is_pending());
        assert_eq!(drained(&mailbox), 1);
        drop(first);
        assert!(matches!(poll(second.as_mut()), Poll::Ready(Ok(Taken::In))));
        assert_eq!(drained(&mailbox), 1);
        mailbox.try_push(message()).unwrap();
    }

    #[test]
    fn the_room_of_a_sender_that_gave_up_is_free_if_none_waits() {
        let mailbox = full();
        for _ in 0..3 {
            let mut gives_up = Box::pin(mailbox.push(message()));
            assert!(poll(gives_up.as_mut()).is_pending());
            assert_eq!(drained(&mailbox), 1);
            drop(gives_up);
            mailbox.try_push(message()).unwrap();
            assert!(matches!(mailbox.try_push(message()), Err(Refused::Full(_))), "it has room for one");
        }
    }

    #[test]
    fn a_waiting_sender_is_notified_of_the_exit() {
        let mailbox = full();
        let mut waits = pin!(mailbox.push(message()));
        assert!(poll(waits.as_mut()).is_pending());
        drop(mailbox.close());
        assert!(matches!(poll(waits.as_mut()), Poll::Ready(Err(Refused::Closed(_)))));
        assert!(matches!(mailbox.try_push(message()), Err(Refused::Closed(_))));
    }
}
