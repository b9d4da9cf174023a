//! The mailbox of a process: the queue of events that wait for its next step. Many threads put
//! events in; only the process's runner takes them out.
//!
//! The mailbox has a capacity, which counts messages only. Its policy ([`Overflow`]) defines what
//! happens to a message when it is full. Events other than messages are never refused: a process
//! would wait forever for a completion that found no room. Their number is bounded by other means.
//! There is at most one for each yield that another thread completes (`Output::YIELDS_MAX`), for
//! each monitor and for each link, and one cancellation.
//!
//! Under `Block`, a sender that finds no room waits in a queue, in order of arrival: see `room`,
//! whose steps take place under the lock of the mailbox. `poll_push` has W1 to W3, `drain` L1 and
//! L2, `give_up` G1 and G2, and `close` C1 and C2.
//!
//! # Invariants
//!
//! * *ORDER*: events leave in the order in which they entered, so messages of one sender stay in
//!   order.
//! * *ROOM*, and others, of `room`.
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
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use crate::messages::event::{Event, Message};
use crate::room::{Room, Ticket};

/// The default capacity, in messages.
pub(crate) const CAPACITY: usize = 1024;
/// The largest capacity. A process that is a million messages behind does not catch up.
pub(crate) const CAPACITY_MAX: usize = 1 << 20;
/// A queue that has grown beyond this many events is freed once it is empty, so that a burst does
/// not hold memory forever.
const KEEP: usize = 4;

/// The policy of a mailbox for messages that find it full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overflow {
    /// The sender waits for room, behind senders that came before it. A sender that cannot wait,
    /// such as [`try_send`](crate::System::try_send), gets an error. Two processes that wait for
    /// room in each other's mailboxes wait forever, unless one of the sends is a
    /// [call](crate::System::call), which has a timeout.
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
    room: Room,
    dropped: u64,
    high_water: u32,
    overflow: Overflow,
    is_closed: bool,
}

/// How full a mailbox is, and was.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Depth {
    pub messages: u32,
    pub high_water: u32,
    /// Messages that were dropped or refused since the process started.
    pub dropped: u64,
}

/// The result for a message that the mailbox accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    In,
    /// It was dropped, as the policy demands.
    Dropped,
}

/// The content of a mailbox.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Left {
    pub has_mail: bool,
    /// Whether it contains an event other than a message.
    pub has_events: bool,
}

/// Why a message was refused.
#[derive(Debug)]
pub(crate) enum Refused {
    /// There is no room, and the sender does not wait. Contains the message.
    Full(Message),
    /// The process has exited. Contains the message, which must be dropped without a lock.
    Closed(Message),
}

impl Mailbox {
    pub(crate) fn new(capacity: u32, overflow: Overflow) -> Self {
        Self(Mutex::new(Queue {
            events: VecDeque::new(),
            room: Room::new(capacity),
            dropped: 0,
            high_water: 0,
            overflow,
            is_closed: false,
        }))
    }

    /// Puts in the message of a sender that can wait for room, or applies the policy. `Delivery`
    /// calls it again, with the same arguments, until the result is ready. Under `Block`, if there
    /// is no room, the message stays in `message`, and the place of the sender in the queue is in
    /// `ticket`. `waker` is woken when room was lent to the sender.
    pub(crate) fn poll_push(
        &self,
        message: &mut Option<Message>,
        ticket: &mut Option<Ticket>,
        waker: &Waker,
    ) -> Poll<Result<Taken, Refused>> {
        let Some(pushed) = message.take() else { unreachable!("a send was polled after it completed") };
        let mut queue = self.lock();
        let has_room = match &ticket {
            _ if queue.is_closed => true,
            None => queue.room.enter(),
            // W3.
            Some(ticket) => match queue.room.claim(ticket, waker) {
                Ok(()) => true,
                Err(former) => {
                    drop(queue);
                    drop(former);
                    *message = Some(pushed);
                    return Poll::Pending;
                }
            },
        };
        if has_room {
            *ticket = None;
            Poll::Ready(queue.put(pushed))
        } else if queue.overflow == Overflow::Block {
            // W1. The clone of a waker is foreign code, but nothing is half-done if it panics.
            *ticket = Some(queue.room.wait(waker.clone()));
            *message = Some(pushed);
            Poll::Pending
        } else {
            Poll::Ready(refuse(queue, pushed))
        }
    }

    /// Puts `message` in, or applies the policy without waiting.
    pub(crate) fn try_push(&self, message: Message) -> Result<Taken, Refused> {
        let mut queue = self.lock();
        if queue.is_closed || queue.room.enter() { queue.put(message) } else { refuse(queue, message) }
    }

    /// Removes a sender that waited, and that does not send its message.
    pub(crate) fn give_up(&self, ticket: Ticket) {
        let mut woken = Vec::new();
        // G1.
        let waker = self.lock().room.give_up(ticket, &mut woken);
        drop(waker);
        // G2.
        woken.into_iter().for_each(Waker::wake);
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

    /// Moves at most `max` events to `batch`. Returns what is left.
    pub(crate) fn drain(&self, batch: &mut VecDeque<Event>, max: usize) -> Left {
        let mut woken = Vec::new();
        let mut queue = self.lock();
        let (count, mut messages) = (queue.events.len().min(max), 0);
        batch.reserve(count);
        for _ in 0..count {
            if let Some(event) = queue.events.pop_front() {
                messages += u32::from(matches!(event, Event::Message(_)));
                batch.push_back(event);
            }
        }
        if messages > 0 {
            // L1.
            queue.room.leave(messages, &mut woken);
        }
        let left = queue.left();
        if queue.events.is_empty() && queue.events.capacity() > KEEP {
            queue.events = VecDeque::new();
        }
        drop(queue);
        // L2.
        woken.into_iter().for_each(Waker::wake);
        left
    }

    /// Refuses everything from now on. Returns the contents.
    pub(crate) fn close(&self) -> VecDeque<Event> {
        let mut queue = self.lock();
        queue.is_closed = true;
        let left = std::mem::take(&mut queue.events);
        // C1.
        let woken = queue.room.close();
        drop(queue);
        // C2. These senders find the mailbox closed.
        woken.for_each(Waker::wake);
        left
    }

    pub(crate) fn depth(&self) -> Depth {
        let queue = self.lock();
        Depth { messages: queue.room.messages(), high_water: queue.high_water, dropped: queue.dropped }
    }

    /// Returns what is in the mailbox.
    pub(crate) fn left(&self) -> Left {
        self.lock().left()
    }

    pub(crate) fn capacity(&self) -> usize {
        self.lock().room.capacity() as usize
    }

    /// A panic under this lock leaves nothing half-done: the only foreign code that runs there is
    /// the clone of a waker, in W1 and W3.
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    fn left(&self) -> Left {
        let messages = self.room.messages() as usize;
        Left { has_mail: messages > 0, has_events: self.events.len() > messages }
    }

    /// Puts in a message that has entered the room, unless the mailbox is closed.
    fn put(&mut self, message: Message) -> Result<Taken, Refused> {
        if self.is_closed {
            return Err(Refused::Closed(message));
        }
        self.events.push_back(Event::Message(message));
        self.high_water = self.high_water.max(self.room.messages());
        Ok(Taken::In)
    }
}

/// Refuses or drops a message for which there is no room and whose sender does not wait.
fn refuse(mut queue: MutexGuard<'_, Queue>, message: Message) -> Result<Taken, Refused> {
    queue.dropped += 1;
    let is_dropped = queue.overflow == Overflow::DropNewest;
    drop(queue);
    if is_dropped { Ok(Taken::Dropped) } else { Err(Refused::Full(message)) }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;
    use crate::messages::payload::Payload;

    /// Counts the wake-ups of a sender.
    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn message() -> Message {
        Message { from: None, payload: Payload::empty(), reply: None }
    }

    /// A mailbox with room for one message, and one message in it.
    fn full() -> Mailbox {
        let mailbox = Mailbox::new(1, Overflow::Block);
        mailbox.try_push(message()).unwrap();
        mailbox
    }

    /// A sender that waits for room.
    struct Sender {
        message: Option<Message>,
        ticket: Option<Ticket>,
        wakes: Arc<Wakes>,
    }

    impl Sender {
        fn waiting(mailbox: &Mailbox) -> Self {
            let mut sender = Self { message: Some(message()), ticket: None, wakes: Arc::default() };
            assert!(sender.poll(mailbox).is_pending());
            sender
        }

        fn poll(&mut self, mailbox: &Mailbox) -> Poll<Result<Taken, Refused>> {
            mailbox.poll_push(&mut self.message, &mut self.ticket, &Waker::from(self.wakes.clone()))
        }

        fn wakes(&self) -> usize {
            self.wakes.0.load(Ordering::Relaxed)
        }
    }

    fn drained(mailbox: &Mailbox) -> usize {
        let mut batch = VecDeque::new();
        assert!(!mailbox.drain(&mut batch, usize::MAX).has_mail);
        batch.len()
    }

    #[test]
    fn no_sender_takes_the_room_of_a_waiting_sender() {
        let mailbox = full();
        let mut waits = Sender::waiting(&mailbox);
        assert_eq!((drained(&mailbox), waits.wakes()), (1, 1));
        assert!(matches!(mailbox.try_push(message()), Err(Refused::Full(_))));
        assert!(matches!(waits.poll(&mailbox), Poll::Ready(Ok(Taken::In))));
        assert_eq!(drained(&mailbox), 1);
        assert_eq!(mailbox.depth().high_water, 1);
    }

    #[test]
    fn cancelling_a_blocked_send_passes_its_slot_to_the_next_sender() {
        let mailbox = full();
        let first = Sender::waiting(&mailbox);
        let mut second = Sender::waiting(&mailbox);
        assert_eq!((drained(&mailbox), second.wakes()), (1, 0));
        mailbox.give_up(first.ticket.unwrap());
        assert_eq!(second.wakes(), 1);
        assert!(matches!(second.poll(&mailbox), Poll::Ready(Ok(Taken::In))));
        assert_eq!(drained(&mailbox), 1);
        mailbox.try_push(message()).unwrap();
    }

    #[test]
    fn the_room_of_a_sender_that_gave_up_is_free_if_none_waits() {
        let mailbox = full();
        for _ in 0..3 {
            let gives_up = Sender::waiting(&mailbox);
            assert_eq!(drained(&mailbox), 1);
            mailbox.give_up(gives_up.ticket.unwrap());
            mailbox.try_push(message()).unwrap();
            assert!(matches!(mailbox.try_push(message()), Err(Refused::Full(_))), "it has room for one");
        }
    }

    #[test]
    fn a_waiting_sender_is_notified_of_the_exit() {
        let mailbox = full();
        let mut waits = Sender::waiting(&mailbox);
        drop(mailbox.close());
        assert_eq!(waits.wakes(), 1);
        assert!(matches!(waits.poll(&mailbox), Poll::Ready(Err(Refused::Closed(_)))));
        assert!(matches!(mailbox.try_push(message()), Err(Refused::Closed(_))));
    }
}
