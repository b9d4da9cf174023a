//! The events that wait for a process: one queue, many who put in, one who takes out.
//!
//! Messages count against the mailbox's capacity; what happens when it is reached is its policy
//! ([`Overflow`]). Other events are never refused, or a process would wait for ever for a
//! completion that found no room; there are as many of them at most as yields that others are
//! to complete (`Output::YIELDS_MAX`), monitors and links of the process, and one that asks it to
//! end.
//!
//! Invariants:
//! * *Order*: events leave in the order in which they came in; so the messages of one sender stay
//!   in the order in which it sent them.
//! * *Room*: messages inside + room that was lent to senders who waited for it ≤ capacity; equal
//!   while more senders wait than have been lent room. So who finds room overtakes nobody who
//!   waits.
//! * *Closed is empty*: nothing goes in after `close`, and what was inside is given to the closer,
//!   who drops it without the lock: a dropped call answers its caller, and a dropped value runs
//!   code of the user.
//!
//! Waiting, under `Block`: a sender that finds no room counts itself as waiting (W1), waits for a
//! permit (W2), and puts in (W3), by which it is one less that waits and one less that was lent.
//! Who makes room lends as much of it as there are senders that wait and have not been lent any
//! (L1, under the lock), and adds as many permits (L2, without). A sender that gives up between W1
//! and W3 takes back its W1 only: its permit, if it had one, goes to the next, or is found to be
//! one too many by the next process that needs room.
//!
//! Rejected: a permit for each free place of every mailbox, which costs four more
//! read-modify-writes a message and 40 bytes a process for senders that hardly ever wait; a
//! lock-free list of blocks, as channels have. A process that has never had a message would hold a
//! block, of which a million processes make 2 GB; a short lock costs one read-modify-write more a
//! message, and takes a batch out at once.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::messages::event::{Event, Message};
use volt::sync::Semaphore;
use volt::task::consume_budget;

/// Messages that wait, unless the process says otherwise.
pub(crate) const CAPACITY: usize = 1024;
/// The largest capacity. What is behind by a million messages will not catch up.
pub(crate) const CAPACITY_MAX: usize = 1 << 20;
/// A queue that has grown beyond this many events is given back once it is empty, bytes of a burst
/// should not stay for ever.
const KEEP: usize = 4;

/// What happens to a message for which a mailbox has no room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overflow {
    /// The sender waits, in the order of arrival; a sender that cannot wait is refused. Two
    /// processes that do nothing but wait for room in each other's mailboxes wait for ever; a
    /// [call](crate::System::call) ends that at its limit.
    #[default]
    Block,
    /// It is dropped, and counted; the sender does not notice.
    DropNewest,
    /// The sender is refused.
    Error,
}

/// See the header of this file.
#[derive(Debug)]
pub(crate) struct Mailbox(Mutex<Queue>);

/// The small ones together: a million processes have one each.
#[derive(Debug)]
struct Queue {
    events: VecDeque<Event>,
    /// Since a sender first had to wait.
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
    /// A permit is room for one message, for a sender that waits.
    room: Arc<Semaphore>,
    /// Senders between W1 and W3.
    waiting: u32,
    /// Permits that were added and not used yet, or are about to be added.
    lent: u32,
}

/// How full a mailbox is, and has been.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Depth {
    pub messages: u32,
    pub high_water: u32,
    /// Messages that were dropped or refused since the start.
    pub dropped: u64,
}

/// What became of a message that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    In,
    /// It is gone, by the policy.
    Dropped,
}

/// What is in a mailbox.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Left {
    pub has_mail: bool,
    /// Something that is no message.
    pub has_events: bool,
}

/// A message did not go in.
#[derive(Debug)]
pub(crate) enum Refused {
    /// There is no room; the message as it was.
    Full(Message),
    /// The process has ended; the message as it was, to be dropped where no lock is held.
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
    /// Cancel safe: dropped before it is ready, the message is dropped, and has not gone in.
    pub(crate) async fn push(&self, message: Message) -> Result<Taken, Refused> {
        // A sender that always finds room gives way to others all the same.
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
        // W2. The permit of one who gives up here is given back before its place is.
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

    /// Puts `message` in, or does with it at once what the policy says. A refusal under `Block` is
    /// not counted: the sender may wait.
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

    /// Puts in what is no message.
    pub(crate) fn push_event(&self, event: Event) {
        let mut queue = self.lock();
        if !queue.is_closed {
            queue.events.push_back(event);
            return;
        }
        drop(queue);
        drop(event);
    }

    /// A sender that could have waited does not.
    pub(crate) fn count_refused(&self) {
        self.lock().dropped += 1;
    }

    /// Moves at most `max` events to `batch`; gives what is left.
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

    /// Refuses everything from now on; gives what is inside.
    pub(crate) fn close(&self) -> VecDeque<Event> {
        let mut queue = self.lock();
        queue.is_closed = true;
        queue.messages = 0;
        let left = std::mem::take(&mut queue.events);
        // Who begins to wait from now on finds it closed.
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

    /// What is inside.
    pub(crate) fn left(&self) -> Left {
        self.lock().left()
    }

    pub(crate) fn overflow(&self) -> Overflow {
        self.lock().overflow
    }

    pub(crate) fn capacity(&self) -> usize {
        self.lock().capacity as usize
    }

    /// No code of the user runs under this lock, so a panic leaves nothing half-done.
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    fn left(&self) -> Left {
        Left { has_mail: self.messages > 0, has_events: self.events.len() > self.messages as usize }
    }

    /// Puts `message` in, if it is not refused whatever the policy says.
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

    /// Whether there is room that was not lent.
    fn has_room(&mut self) -> bool {
        let Some(waiters) = &mut self.waiters else { return self.messages < self.capacity };
        // Of those who gave up; one that is about to be added is found the next time.
        let surplus = waiters.lent.saturating_sub(waiters.waiting);
        if surplus > 0 {
            waiters.lent -= waiters.room.forget_permits(surplus as usize) as u32;
        }
        self.messages + waiters.lent < self.capacity
    }

    /// W1; gives what to wait for.
    fn wait(&mut self) -> Arc<Semaphore> {
        let waiters = self
            .waiters
            .get_or_insert_with(|| Box::new(Waiters { room: Arc::new(Semaphore::new(0)), waiting: 0, lent: 0 }));
        waiters.waiting += 1;
        waiters.room.clone()
    }

    /// L1: how many permits are to be added, and where.
    fn lend(&mut self) -> Option<(Arc<Semaphore>, u32)> {
        let waiters = self.waiters.as_mut()?;
        let free = self.capacity - self.messages - waiters.lent;
        let permits = free.min(waiters.waiting.saturating_sub(waiters.lent));
        waiters.lent += permits;
        (permits > 0).then(|| (waiters.room.clone(), permits))
    }
}

/// A sender between W1 and W3; dropped, it has given up.
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

    /// With room for one message, and one inside.
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
    fn nobody_takes_the_room_that_a_waiting_sender_was_lent() {
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
    fn the_room_of_a_sender_that_gave_up_goes_to_the_next_that_waits() {
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
    fn the_room_of_a_sender_that_gave_up_is_anybodys_if_none_waits() {
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
    fn who_waits_is_told_of_the_end() {
        let mailbox = full();
        let mut waits = pin!(mailbox.push(message()));
        assert!(poll(waits.as_mut()).is_pending());
        drop(mailbox.close());
        assert!(matches!(poll(waits.as_mut()), Poll::Ready(Err(Refused::Closed(_)))));
        assert!(matches!(mailbox.try_push(message()), Err(Refused::Closed(_))));
    }
}
