//! Runs an async function as a process.
//!
//! A step is a poll of the function's future, with a waker that makes the process step. The process
//! takes events from its mailbox only after the function has received all earlier ones. A backlog
//! therefore accumulates in the mailbox, where it is bounded and reported. While the function waits
//! in `recv` or `next`, the process is Idle. Otherwise it is Blocked, and messages do not wake it.

use std::collections::VecDeque;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context as TaskContext, Poll, Waker};

use crate::messages::event::{Event, Events, Message};
use crate::messages::failure::{Failure, dropped};
use crate::messages::payload::Payload;
use crate::output::Output;
use crate::steps::context::Context;
use crate::steps::machine::{Function, Process};
use volt::task::consume_budget;

/// Turns an async function into a process. The function receives the process's [`Inbox`] and its
/// input. What it returns is the [result](crate::System::exec) of the process. The process has one
/// entry method, `main`.
///
/// The process exits when the function returns. When the process is cancelled,
/// [`recv`](Inbox::recv) returns `None`. If the function does not return in time, the process is
/// killed: its future is dropped at the current await point.
///
/// ```
/// use volt_process::{Payload, Spawn, System};
///
/// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build()?;
/// # runtime.block_on(async {
/// let system = System::new(&volt::Handle::current());
/// let sum = volt_process::from_fn(async |_inbox, input: Payload| {
///     let numbers: Vec<u64> = input.downcast().map_err(|_| volt_process::Failure::new("no numbers"))?;
///     Ok(Payload::new(numbers.iter().sum::<u64>()))
/// });
/// let result = system.exec(Spawn::new(sum).input(Payload::new(vec![1_u64, 2, 3]))).await.unwrap();
/// assert_eq!(result.downcast::<u64>().unwrap(), 6);
/// # });
/// # Ok::<(), volt::BuildError>(())
/// ```
pub fn from_fn<F, Fut>(function: F) -> impl Process
where
    F: FnOnce(Inbox, Payload) -> Fut + Send + 'static,
    Fut: Future<Output = Result<Payload, Failure>> + Send + 'static,
{
    AsyncFunction { function: Some(function), future: None, waker: Waker::noop().clone(), queue: Arc::default() }
}

struct AsyncFunction<F, Fut> {
    function: Option<F>,
    future: Option<Pin<Box<Fut>>>,
    waker: Waker,
    queue: Arc<Mutex<Queue>>,
}

/// Events that the process has taken from its mailbox and the function has not received.
#[derive(Debug, Default)]
struct Queue {
    events: VecDeque<Event>,
    /// The waker of the function while it waits for an event.
    receiver: Option<Waker>,
    is_cancelled: bool,
}

impl<F, Fut> Process for AsyncFunction<F, Fut>
where
    F: FnOnce(Inbox, Payload) -> Fut + Send + 'static,
    Fut: Future<Output = Result<Payload, Failure>> + Send + 'static,
{
    fn init(&mut self, context: &Context, _method: &str, input: Payload) -> Result<(), Failure> {
        self.waker = context.waker();
        let inbox = Inbox { context: context.clone(), queue: self.queue.clone(), waker: self.waker.clone() };
        self.future = self.function.take().map(|function| Box::pin(function(inbox, input)));
        // The first step polls the future.
        self.waker.wake_by_ref();
        Ok(())
    }

    fn step(&mut self, events: Events<'_>, out: &mut Output) -> Result<(), Failure> {
        let waker = self.waker.clone();
        self.step_with(&mut TaskContext::from_waker(&waker), events, out)
    }

    fn close(&mut self) {
        // Another task may have the inbox. It is notified of the exit. Dropping the remaining
        // events fails the calls among them.
        let mut queue = lock(&self.queue);
        queue.is_cancelled = true;
        let (left, receiver) = (std::mem::take(&mut queue.events), queue.receiver.take());
        drop(queue);
        for event in left {
            dropped(event);
        }
        if let Some(receiver) = receiver {
            receiver.wake();
        }
        self.future = None;
    }

    fn takes_events(&self) -> bool {
        lock(&self.queue).events.is_empty()
    }

    fn function(&mut self) -> Option<&mut dyn Function> {
        Some(self)
    }
}

impl<F, Fut> Function for AsyncFunction<F, Fut>
where
    Fut: Future<Output = Result<Payload, Failure>>,
{
    fn step_traced(&mut self, cx: &mut TaskContext<'_>, events: Events<'_>, out: &mut Output) -> Result<(), Failure> {
        self.step_with(cx, events, out)
    }
}

impl<F, Fut> AsyncFunction<F, Fut>
where
    Fut: Future<Output = Result<Payload, Failure>>,
{
    /// Passes the events on, and polls the future with this waker.
    fn step_with(&mut self, cx: &mut TaskContext<'_>, events: Events<'_>, out: &mut Output) -> Result<(), Failure> {
        let mut queue = lock(&self.queue);
        queue.events.extend(events);
        let receiver = if queue.events.is_empty() { None } else { queue.receiver.take() };
        drop(queue);
        // The future is polled below in any case. But a combinator inside it may poll only those of
        // its parts that were woken.
        if let Some(receiver) = receiver.filter(|receiver| !receiver.will_wake(&self.waker)) {
            receiver.wake();
        }
        let Some(future) = &mut self.future else { return Err(Failure::new("the function has returned")) };
        match future.as_mut().poll(cx) {
            Poll::Ready(result) => {
                self.future = None;
                out.done_with(result?);
            }
            Poll::Pending => {
                if lock(&self.queue).receiver.is_none() {
                    out.wait();
                    out.has_waker = true;
                }
            }
        }
        Ok(())
    }
}

/// The inbox of an async function: receives the events of its process.
pub struct Inbox {
    context: Context,
    queue: Arc<Mutex<Queue>>,
    /// The waker of the process.
    waker: Waker,
}

impl Inbox {
    /// Returns the context of the process.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Waits for a message.
    ///
    /// Returns `None`, now and from then on, in these cases:
    ///
    /// * The process was cancelled.
    /// * The process [traps exits](crate::Spawn::trap_exits), and its parent, with which it is
    ///   linked, has exited abnormally.
    /// * The process has exited, and another task uses the inbox.
    ///
    /// Other events are dropped. A process receives those only if it monitors processes or traps
    /// exits; such a process should use [`next`](Self::next).
    ///
    /// # Cancel safety
    /// This method is cancel safe: no message is lost.
    pub async fn recv(&mut self) -> Option<Message> {
        loop {
            match self.next().await {
                Event::Message(message) => return Some(message),
                Event::Cancel => return None,
                // A process that traps exits and does not handle them ends with its parent, like
                // any other.
                Event::Exit { pid, reason } if reason.is_abnormal() && Some(pid) == self.context.parent() => {
                    lock(&self.queue).is_cancelled = true;
                    return None;
                }
                _ => {}
            }
        }
    }

    /// Waits for an event. Returns [`Event::Cancel`] when the process is cancelled or has exited,
    /// and from then on whenever there is no other event.
    ///
    /// # Cancel safety
    /// This method is cancel safe: no event is lost.
    pub async fn next(&mut self) -> Event {
        // After a cancellation there is always an event. A function that ignores it must yield to
        // other tasks, too.
        consume_budget().await;
        poll_fn(|cx| self.poll_next(cx)).await
    }

    fn poll_next(&mut self, cx: &mut TaskContext<'_>) -> Poll<Event> {
        let mut queue = lock(&self.queue);
        if let Some(event) = queue.events.pop_front() {
            queue.is_cancelled |= matches!(event, Event::Cancel);
            return Poll::Ready(event);
        }
        if queue.is_cancelled {
            return Poll::Ready(Event::Cancel);
        }
        let former = queue.receiver.replace(cx.waker().clone());
        drop(queue);
        // The receiver is another task, or a part of the function with its own waker. The
        // process may have stepped before this, and be Blocked: wake it, so that it becomes Idle.
        if former.is_none() && !cx.waker().will_wake(&self.waker) {
            self.waker.wake_by_ref();
        }
        Poll::Pending
    }
}

/// No user code runs under this lock, so a panic leaves nothing half-done.
fn lock(queue: &Mutex<Queue>) -> MutexGuard<'_, Queue> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Inbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbox").field("pid", &self.context.pid()).finish_non_exhaustive()
    }
}
