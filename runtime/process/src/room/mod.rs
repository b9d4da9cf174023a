//! The room of a mailbox: how many messages it contains, and which senders wait for room.
//!
//! A mailbox has a capacity. A sender that finds it full waits in a queue. The *runner*, which
//! takes messages out for the process, *lends* the free room to the senders at the front of the
//! queue, one place each, and wakes them. A sender to whom room was lent puts its message in. Each
//! sender in the queue has a ticket. Tickets are numbered, so one number shows how far the queue
//! was served.
//!
//! An ordinary case: a mailbox of capacity 1 is full, and sender A waits (W1, W2). The runner takes
//! the message out, and lends the room to A (L1, L2). Sender B arrives before A runs: it finds no
//! room, since the room is lent, and waits behind A. Then A puts its message in (W3).
//!
//! The race: A gives up after room was lent to it and before it runs. G1 finds the ticket served,
//! and lends the room to B.
//!
//! # Protocol
//!
//! Each step is one method. All steps but W2, L2, G2 and C2 are under the lock of the mailbox.
//!
//! * Waiting: a sender that finds no room joins the queue with its waker, and receives a ticket
//!   (W1, `wait`). It is polled when it is woken (W2). If its ticket was served, it uses up the
//!   room that was lent, and its message enters (W3, `claim`). If not, it stays in the queue.
//! * Lending: the runner has taken messages out. While there is room, it removes the first sender
//!   from the queue and lends it a place (L1, `leave`). Then it wakes these senders (L2).
//! * Giving up: a sender whose future is dropped leaves the queue. If room was lent to it, that is
//!   free again, and is lent as in L1 (G1, `give_up`). Then the next sender is woken (G2).
//! * Closing: when the process exits, the queue is emptied (C1, `close`), and its senders are woken
//!   (C2). They find the mailbox closed, as does a sender that arrives later.
//!
//! # Invariants
//!
//! * *ROOM*: messages in the mailbox + places lent ≤ capacity.
//! * *NO FREE ROOM BESIDE A QUEUE*: while a sender is in the queue, both sides of *ROOM* are equal.
//!   So a sender that finds room overtakes no other.
//! * *SERVED IN ORDER*: tickets in the queue ascend, and senders leave it at the front, except if
//!   they give up. So room was lent to a ticket if and only if its number is at most `served`.
//! * *BOUNDED*: at most half of a queue of more than `SPARSE` are senders that gave up.
//!
//! # Rejected
//!
//! * A semaphore: its queue has a lock, too, so a message that waits takes four locks instead of
//!   two. A sender that gave up left a permit behind, which a later sender had to take back.
//! * The runner takes the message of the waiting sender, instead of waking it: the message of a
//!   sender that gives up could then be in the mailbox.
//! * Several places for a sender that is woken: its later messages would overtake those of senders
//!   that have waited for longer.

use std::collections::VecDeque;
use std::task::Waker;

#[cfg(all(test, loom))]
mod loom_models;

/// A queue of at most this many senders is not searched for those that gave up.
const SPARSE: usize = 16;
/// An empty queue with space for more than this many senders is freed.
const KEEP: usize = 16;

/// The room of a mailbox. See the module's documentation.
#[derive(Debug)]
pub(crate) struct Room {
    /// Set while senders wait, and possibly after.
    waiters: Option<Box<Waiters>>,
    messages: u32,
    capacity: u32,
}

#[derive(Debug, Default)]
struct Waiters {
    /// The senders that wait and to which no room was lent.
    queue: VecDeque<Waiter>,
    /// How many in `queue` gave up.
    gone: usize,
    /// The number of the ticket that was issued last.
    issued: u64,
    /// The number of the ticket to which room was lent last.
    served: u64,
    /// Places that were lent and are not used yet.
    lent: u32,
}

#[derive(Debug)]
struct Waiter {
    ticket: u64,
    /// `None` if the sender gave up.
    waker: Option<Waker>,
}

/// The place of a sender in the queue.
#[derive(Debug)]
#[must_use = "room that is lent to a ticket stays reserved until the ticket is used or dropped by `give_up`"]
pub(crate) struct Ticket(u64);

impl Room {
    pub(crate) fn new(capacity: u32) -> Self {
        Self { waiters: None, messages: 0, capacity }
    }

    /// Returns the number of messages in the mailbox.
    pub(crate) fn messages(&self) -> u32 {
        self.messages
    }

    pub(crate) fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Returns whether there was room for a message, which then enters.
    pub(crate) fn enter(&mut self) -> bool {
        let has_room = self.free() > 0;
        self.messages += u32::from(has_room);
        has_room
    }

    /// W1: adds a sender to the queue. Called if there is no room.
    pub(crate) fn wait(&mut self, waker: Waker) -> Ticket {
        debug_assert_eq!(self.free(), 0, "a sender that finds room does not wait");
        let waiters = self.waiters.get_or_insert_default();
        waiters.issued += 1;
        waiters.queue.push_back(Waiter { ticket: waiters.issued, waker: Some(waker) });
        Ticket(waiters.issued)
    }

    /// W3: uses up the room that was lent to `ticket`; a message then enters.
    ///
    /// # Errors
    /// If no room was lent, stores `waker` instead, and returns the former waker, which must be
    /// dropped without the lock.
    pub(crate) fn claim(&mut self, ticket: &Ticket, waker: &Waker) -> Result<(), Option<Waker>> {
        let Some(waiters) = &mut self.waiters else { return Err(None) };
        if waiters.is_served(ticket) {
            waiters.lent -= 1;
            self.messages += 1;
            self.tidy();
            return Ok(());
        }
        let stored = waiters.find(ticket).and_then(|waiter| waiter.waker.as_mut());
        Err(stored.filter(|stored| !stored.will_wake(waker)).map(|stored| std::mem::replace(stored, waker.clone())))
    }

    /// `count` messages have left the mailbox. L1: lends the free room to senders that wait, and
    /// adds their wakers to `woken`.
    pub(crate) fn leave(&mut self, count: u32, woken: &mut Vec<Waker>) {
        self.messages -= count;
        self.lend(woken);
    }

    /// G1: removes a sender from the queue. If room was lent to it, lends that to the next sender,
    /// whose waker is added to `woken`. Returns the waker of the sender, which must be dropped
    /// without the lock.
    pub(crate) fn give_up(&mut self, ticket: Ticket, woken: &mut Vec<Waker>) -> Option<Waker> {
        let waiters = self.waiters.as_mut()?;
        if waiters.is_served(&ticket) {
            waiters.lent -= 1;
            self.lend(woken);
            return None;
        }
        let waker = waiters.find(&ticket)?.waker.take();
        waiters.gone += 1;
        if waiters.queue.len() > SPARSE && waiters.gone * 2 > waiters.queue.len() {
            waiters.queue.retain(|waiter| waiter.waker.is_some());
            waiters.queue.shrink_to(KEEP);
            waiters.gone = 0;
        }
        waker
    }

    /// C1: removes everything. Returns the wakers of the senders that waited.
    pub(crate) fn close(&mut self) -> impl Iterator<Item = Waker> + use<> {
        self.messages = 0;
        let waiters = self.waiters.take().unwrap_or_default();
        waiters.queue.into_iter().filter_map(|waiter| waiter.waker)
    }

    /// Room that is neither used nor lent.
    fn free(&self) -> u32 {
        self.capacity - self.messages - self.waiters.as_ref().map_or(0, |waiters| waiters.lent)
    }

    /// L1.
    fn lend(&mut self, woken: &mut Vec<Waker>) {
        let mut free = self.free();
        let Some(waiters) = &mut self.waiters else { return };
        woken.reserve(waiters.queue.len().min(free as usize));
        while free > 0
            && let Some(Waiter { ticket, waker }) = waiters.queue.pop_front()
        {
            match waker {
                Some(waker) => {
                    waiters.served = ticket;
                    waiters.lent += 1;
                    free -= 1;
                    woken.push(waker);
                }
                None => waiters.gone -= 1,
            }
        }
        self.tidy();
    }

    /// Frees a large queue when it is empty. No ticket is left that could be compared with the
    /// numbers of a new queue.
    fn tidy(&mut self) {
        self.waiters
            .take_if(|waiters| waiters.lent == 0 && waiters.queue.is_empty() && waiters.queue.capacity() > KEEP);
    }
}

impl Waiters {
    fn is_served(&self, ticket: &Ticket) -> bool {
        ticket.0 <= self.served
    }

    /// Returns the sender with `ticket`, if it is in the queue.
    fn find(&mut self, ticket: &Ticket) -> Option<&mut Waiter> {
        let at = self.queue.binary_search_by_key(&ticket.0, |waiter| waiter.ticket).ok()?;
        self.queue.get_mut(at)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn full(capacity: u32) -> Room {
        let mut room = Room::new(capacity);
        while room.enter() {}
        room
    }

    fn wait(room: &mut Room) -> Ticket {
        room.wait(Waker::noop().clone())
    }

    fn claim(room: &mut Room, ticket: &Ticket) -> bool {
        room.claim(ticket, Waker::noop()).is_ok()
    }

    #[test]
    fn room_is_lent_in_the_order_of_the_tickets() {
        let mut room = full(2);
        let tickets = [(); 3].map(|()| wait(&mut room));
        let mut woken = Vec::new();
        room.leave(2, &mut woken);
        assert_eq!(woken.len(), 2);
        assert!(!room.enter(), "the room is lent");
        assert_eq!(tickets.each_ref().map(|ticket| claim(&mut room, ticket)), [true, true, false]);
        room.leave(1, &mut woken);
        assert!(!room.enter() && claim(&mut room, &tickets[2]));
        assert_eq!((woken.len(), room.messages()), (3, 2));
    }

    #[test]
    fn a_sender_that_gives_up_passes_its_room_on() {
        let mut room = full(1);
        let [first, second, third] = [(); 3].map(|()| wait(&mut room));
        let mut woken = Vec::new();
        // The second is in the queue: it only leaves.
        assert!(room.give_up(second, &mut woken).is_some() && woken.is_empty());
        room.leave(1, &mut woken);
        assert_eq!(woken.len(), 1);
        // Room was lent to the first.
        assert!(room.give_up(first, &mut woken).is_none());
        assert!(woken.len() == 2 && claim(&mut room, &third));
        room.leave(1, &mut woken);
        assert!(woken.len() == 2 && room.enter() && !room.enter());
    }

    #[test]
    fn senders_that_gave_up_do_not_accumulate() {
        let mut room = full(1);
        let first = wait(&mut room);
        let mut woken = Vec::new();
        for _ in 0..10 * SPARSE {
            let ticket = wait(&mut room);
            drop(room.give_up(ticket, &mut woken));
            assert!(room.waiters.as_ref().unwrap().queue.len() <= SPARSE + 1);
        }
        let crowd: Vec<_> = (0..10 * SPARSE).map(|_| wait(&mut room)).collect();
        crowd.into_iter().for_each(|ticket| drop(room.give_up(ticket, &mut woken)));
        assert!(
            room.waiters.as_ref().unwrap().queue.capacity() <= 2 * SPARSE.max(KEEP),
            "of the crowd, nothing is kept"
        );
        let last = wait(&mut room);
        room.leave(1, &mut woken);
        assert!(claim(&mut room, &first) && !claim(&mut room, &last));
        room.leave(1, &mut woken);
        assert!(claim(&mut room, &last) && woken.len() == 2);
    }

    #[test]
    fn an_empty_queue_frees_its_memory() {
        let mut room = full(1);
        let tickets: Vec<_> = (0..2 * KEEP).map(|_| wait(&mut room)).collect();
        let mut woken = Vec::new();
        for ticket in &tickets {
            room.leave(1, &mut woken);
            assert!(claim(&mut room, ticket));
        }
        assert!(room.waiters.is_none());
    }
}
