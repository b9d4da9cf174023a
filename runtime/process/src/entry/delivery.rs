//! The delivery of one message to a process: the future of a sender that may have to wait for room.
//!
//! The future is cancel safe: if it is dropped before it completes, the message has not entered the
//! mailbox, and the sender leaves the queue of those that wait.

use std::future::Future;
use std::ops::Deref;
use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use crate::entry::mailbox::Refused;
use crate::entry::{Entry, Home};
use crate::messages::event::Message;
use crate::room::Ticket;
use volt::observe::{Awaits, Pending};
use volt::task::coop::poll_proceed;

/// The delivery of a message to the process of `E`, which is a pointer to its entry. See the
/// module's documentation.
#[must_use = "a message is sent when its delivery is polled"]
pub(crate) struct Delivery<S: Home, E: Deref<Target = Entry<S>>> {
    entry: E,
    /// `None` once the message has been sent or refused.
    message: Option<Message>,
    /// Set while the sender waits for room.
    ticket: Option<Ticket>,
    /// Whether the sender has begun to wait in this poll of its task, which need not try again.
    has_tried: bool,
    /// Records in each pending poll that the task awaits room.
    pending: Pending,
}

impl<S: Home, E: Deref<Target = Entry<S>>> Delivery<S, E> {
    pub(crate) fn new(entry: E, message: Message) -> Self {
        let pending = Pending::new(Awaits::Room, Location::caller());
        Self { entry, message: Some(message), ticket: None, has_tried: false, pending }
    }

    /// Tries to send before the first poll. If the sender has to wait, the poll that follows only
    /// returns. `waker` is that of the task which polls the future.
    pub(crate) fn try_now(&mut self, waker: &Waker) -> Poll<Result<(), Refused>> {
        let sent = self.attempt(waker);
        self.has_tried = sent.is_pending();
        sent
    }

    fn attempt(&mut self, waker: &Waker) -> Poll<Result<(), Refused>> {
        let pushed = ready!(self.entry.mailbox.poll_push(&mut self.message, &mut self.ticket, waker));
        Poll::Ready(self.entry.sent(pushed).map(|_taken| ()))
    }
}

impl<S: Home, E: Deref<Target = Entry<S>> + Unpin> Future for Delivery<S, E> {
    type Output = Result<(), Refused>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if !std::mem::take(&mut self.has_tried) {
            // A sender that always finds room must yield to other tasks, too.
            let unit = ready!(poll_proceed(cx));
            if let Poll::Ready(sent) = self.attempt(cx.waker()) {
                self.pending.end();
                unit.made_progress();
                return Poll::Ready(sent);
            }
        }
        self.pending.note();
        Poll::Pending
    }
}

impl<S: Home, E: Deref<Target = Entry<S>>> Drop for Delivery<S, E> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.entry.mailbox.give_up(ticket);
        }
    }
}
