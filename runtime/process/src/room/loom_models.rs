//! loom models of the room of a mailbox. They call the methods of [`Room`] under a lock, as a
//! mailbox does. For each property there are twins with one step done wrong, in which loom must
//! find an error. W1 to W3, L1 and L2, G1 and G2, C1 and C2 are the steps of the parent module.
//!
//! A sender that is woken is polled after all threads have finished, as if its task had been
//! queued.

use std::task::Wake;

use loom::sync::atomic::{AtomicBool, Ordering};
use loom::sync::{Arc, Mutex};
use loom::thread;
use volt_explore::{breaks, holds};

use super::*;

/// A sender: whether it was woken, its ticket, and whether its message has entered.
struct Sender {
    woken: std::sync::Arc<Woken>,
    ticket: Option<Ticket>,
    is_in: bool,
}

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Sender {
    fn new() -> Self {
        Self { woken: std::sync::Arc::new(Woken(AtomicBool::new(false))), ticket: None, is_in: false }
    }

    fn waker(&self) -> Waker {
        self.woken.clone().into()
    }

    fn is_woken(&self) -> bool {
        self.woken.0.load(Ordering::Relaxed)
    }

    /// Polls the sender again, which must be woken, and whose message must then enter.
    fn finish(&mut self, room: &Mutex<Room>) {
        if !self.is_in {
            assert!(self.is_woken(), "a sender waits beside free room");
            AsBuilt::poll(room, self);
            assert!(self.is_in, "a sender is woken without room");
        }
    }
}

/// The steps that a twin can replace with a faulty one.
trait Steps: 'static {
    /// W1 or W3.
    fn poll(room: &Mutex<Room>, sender: &mut Sender) {
        let mut room = room.lock().unwrap();
        match &sender.ticket {
            Some(ticket) => sender.is_in = room.claim(ticket, &sender.waker()).is_ok(),
            None if room.enter() => sender.is_in = true,
            None => sender.ticket = Some(room.wait(sender.waker())),
        }
    }

    /// Takes a message out, L1 and L2.
    fn take_out(room: &Mutex<Room>) {
        let mut woken = Vec::new();
        room.lock().unwrap().leave(1, &mut woken);
        woken.into_iter().for_each(Waker::wake);
    }

    /// G1 and G2.
    fn give_up(room: &Mutex<Room>, sender: Sender) {
        let mut woken = Vec::new();
        let Some(ticket) = sender.ticket else { return };
        drop(room.lock().unwrap().give_up(ticket, &mut woken));
        woken.into_iter().for_each(Waker::wake);
    }

    fn enter(room: &Mutex<Room>) -> bool {
        room.lock().unwrap().enter()
    }

    /// C1 and C2.
    fn close(room: &Mutex<Room>) {
        let woken = room.lock().unwrap().close();
        woken.for_each(Waker::wake);
    }
}

struct AsBuilt;

impl Steps for AsBuilt {}

/// A full mailbox with room for one message.
fn full() -> Arc<Mutex<Room>> {
    let mut room = Room::new(1);
    assert!(room.enter());
    Arc::new(Mutex::new(room))
}

/// A sender that waits.
fn waiting(room: &Mutex<Room>) -> Sender {
    let mut sender = Sender::new();
    AsBuilt::poll(room, &mut sender);
    sender
}

// ---- a sender that begins to wait while a message is taken out ----------------------------------

fn begins_to_wait<S: Steps>() {
    let room = full();
    let runner = thread::spawn({
        let room = room.clone();
        move || S::take_out(&room)
    });
    let mut sender = Sender::new();
    S::poll(&room, &mut sender);
    runner.join().unwrap();
    sender.finish(&room);
}

#[test]
fn a_sender_that_begins_to_wait_receives_the_room() {
    holds(None, begins_to_wait::<AsBuilt>);
}

/// W1 in two parts: the lock is released between the check for room and the queue.
struct ChecksBefore;

impl Steps for ChecksBefore {
    fn poll(room: &Mutex<Room>, sender: &mut Sender) {
        if room.lock().unwrap().enter() {
            sender.is_in = true;
            return;
        }
        let mut room = room.lock().unwrap();
        // Not `wait`, which asserts that there is no room.
        let waiters = room.waiters.get_or_insert_default();
        waiters.issued += 1;
        waiters.queue.push_back(Waiter { ticket: waiters.issued, waker: Some(sender.waker()) });
        sender.ticket = Some(Ticket(waiters.issued));
    }
}

#[test]
fn twin_a_check_for_room_under_another_lock_is_found() {
    breaks("a sender waits beside free room", None, begins_to_wait::<ChecksBefore>);
}

// ---- a sender that gives up while room is lent to it --------------------------------------------

fn gives_up<S: Steps>() {
    let room = full();
    let (first, mut second) = (waiting(&room), waiting(&room));
    let runner = thread::spawn({
        let room = room.clone();
        move || S::take_out(&room)
    });
    S::give_up(&room, first);
    runner.join().unwrap();
    second.finish(&room);
}

#[test]
fn the_room_of_a_sender_that_gives_up_reaches_the_next() {
    holds(None, gives_up::<AsBuilt>);
}

/// G1 without L1.
struct KeepsRoom;

impl Steps for KeepsRoom {
    fn give_up(room: &Mutex<Room>, sender: Sender) {
        let Some(ticket) = sender.ticket else { return };
        let mut room = room.lock().unwrap();
        let waiters = room.waiters.as_mut().unwrap();
        if waiters.is_served(&ticket) {
            waiters.lent -= 1;
        } else {
            drop(room.give_up(ticket, &mut Vec::new()));
        }
    }
}

#[test]
fn twin_a_sender_that_gives_up_and_wakes_none_is_found() {
    breaks("a sender waits beside free room", None, gives_up::<KeepsRoom>);
}

/// G1 decides by a check under another lock whether room was lent.
struct GivesUpLate;

impl Steps for GivesUpLate {
    fn give_up(room: &Mutex<Room>, sender: Sender) {
        let Some(ticket) = sender.ticket else { return };
        let is_served = room.lock().unwrap().waiters.as_ref().unwrap().is_served(&ticket);
        if is_served {
            AsBuilt::give_up(room, Sender { ticket: Some(ticket), ..Sender::new() });
        } else {
            let mut room = room.lock().unwrap();
            let queue = &mut room.waiters.as_mut().unwrap().queue;
            queue.retain(|waiter| waiter.ticket != ticket.0);
        }
    }
}

#[test]
fn twin_a_sender_that_gives_up_by_an_old_check_is_found() {
    breaks("a sender waits beside free room", None, gives_up::<GivesUpLate>);
}

// ---- a sender that arrives while room is lent to another ----------------------------------------

fn arrives<S: Steps>() {
    let room = full();
    let mut first = waiting(&room);
    let runner = thread::spawn({
        let room = room.clone();
        move || S::take_out(&room)
    });
    assert!(!S::enter(&room), "a sender overtakes another");
    runner.join().unwrap();
    first.finish(&room);
    assert_eq!(room.lock().unwrap().messages(), 1);
}

#[test]
fn a_sender_that_arrives_does_not_take_lent_room() {
    holds(None, arrives::<AsBuilt>);
}

/// A check for room that ignores what is lent.
struct IgnoresLent;

impl Steps for IgnoresLent {
    fn enter(room: &Mutex<Room>) -> bool {
        let room = room.lock().unwrap();
        room.messages() < room.capacity()
    }
}

#[test]
fn twin_a_sender_that_takes_lent_room_is_found() {
    breaks("a sender overtakes another", None, arrives::<IgnoresLent>);
}

// ---- a sender that begins to wait while the process exits ---------------------------------------

/// In a closed mailbox there is room, so the sender either waits and is woken, or need not wait.
fn closes<S: Steps>() {
    let room = full();
    let runner = thread::spawn({
        let room = room.clone();
        move || S::close(&room)
    });
    let mut sender = Sender::new();
    S::poll(&room, &mut sender);
    runner.join().unwrap();
    assert!(sender.is_in || sender.is_woken(), "a sender waits for a process that has exited");
}

#[test]
fn a_sender_that_begins_to_wait_is_notified_of_an_exit() {
    holds(None, closes::<AsBuilt>);
}

#[test]
fn twin_a_sender_that_queues_at_an_exited_process_is_found() {
    breaks("a sender waits for a process that has exited", None, closes::<ChecksBefore>);
}

/// C1 without the queue.
struct ClosesForLaterSenders;

impl Steps for ClosesForLaterSenders {
    fn close(room: &Mutex<Room>) {
        room.lock().unwrap().messages = 0;
    }
}

#[test]
fn twin_a_close_that_forgets_the_queue_is_found() {
    breaks("a sender waits for a process that has exited", None, closes::<ClosesForLaterSenders>);
}
