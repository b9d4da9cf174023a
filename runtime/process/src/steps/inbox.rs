//! An async function as a process.
//!
//! A step of it is a poll of the future, with a waker that makes the process step. Events are taken
//! from the mailbox only when those before have been received, so that what piles up piles up
//! there, where it is bounded and seen. While the future waits in `recv` or `next` the process is
//! Idle, else it is Blocked, and messages do not disturb it.

use std::collections::VecDeque;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context as TaskContext, Poll, Waker};

use crate::messages::event::{Event, Events, Message};
use crate::messages::failure::{Failure, dropped};
use crate::messages::payload::Payload;
use crate::steps::context::Context;
use crate::steps::machine::Process;
use crate::steps::output::Output;
use volt::task::consume_budget;

/// Makes a process of an async function, which gets the process's [`Inbox`] and its input; what it
/// returns is the process's [result](crate::System::exec). It has one entry method, `main`.
///
/// The process ends when the function returns. It is asked to end by [`recv`](Inbox::recv) giving
/// `None`; the future is dropped wherever it stands if it does not in time.
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
    Function { function: Some(function), future: None, waker: Waker::noop().clone(), queue: Arc::default() }
}

struct Function<F, Fut> {
    function: Option<F>,
    future: Option<Pin<Box<Fut>>>,
    waker: Waker,
    queue: Arc<Mutex<Queue>>,
}

/// Events that the process has taken and the function has not.
#[derive(Debug, Default)]
struct Queue {
    events: VecDeque<Event>,
    /// The function waits for one.
    receiver: Option<Waker>,
    is_cancelled: bool,
}

impl<F, Fut> Process for Function<F, Fut>
where
    F: FnOnce(Inbox, Payload) -> Fut + Send + 'static,
    Fut: Future<Output = Result<Payload, Failure>> + Send + 'static,
{
    fn init(&mut self, context: &Context, _method: &str, input: Payload) -> Result<(), Failure> {
        self.waker = context.waker();
        let inbox = Inbox { context: context.clone(), queue: self.queue.clone(), waker: self.waker.clone() };
        self.future = self.function.take().map(|function| Box::pin(function(inbox, input)));
        // The future is polled in the first step.
        self.waker.wake_by_ref();
        Ok(())
    }

    fn step(&mut self, events: Events<'_>, out: &mut Output) -> Result<(), Failure> {
        let mut queue = lock(&self.queue);
        queue.events.extend(events);
        let receiver = if queue.events.is_empty() { None } else { queue.receiver.take() };
        drop(queue);
        // The future is polled now in any case, but something in it may poll only those of its
        // parts that were woken.
        if let Some(receiver) = receiver.filter(|receiver| !receiver.will_wake(&self.waker)) {
            receiver.wake();
        }
        let Some(future) = &mut self.future else { return Err(Failure::new("the function has returned")) };
        match future.as_mut().poll(&mut TaskContext::from_waker(&self.waker)) {
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

    fn close(&mut self) {
        // Another task may have the inbox: it hears of the end, and who waits for an answer to what
        // is in there, too.
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
}

/// The mailbox of an async function, and what it is as a process.
pub struct Inbox {
    context: Context,
    queue: Arc<Mutex<Queue>>,
    /// The process's.
    waker: Waker,
}

impl Inbox {
    /// The process: who it is, and what it can do with others.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Waits for a message; `None`, from then on, when the process is asked to end, when its
    /// parent, linked with it, has ended abnormally, or when it has ended itself and another
    /// task has the inbox. Other events, which only a process gets that monitors others or
    /// [traps exits](crate::Spawn::trap_exits), are dropped: such a one waits for
    /// [`next`](Self::next).
    ///
    /// # Cancel safety
    /// No message is lost.
    pub async fn recv(&mut self) -> Option<Message> {
        loop {
            match self.next().await {
                Event::Message(message) => return Some(message),
                Event::Cancel => return None,
                // Who traps exits and does not handle them ends with its parent as others do.
                Event::Exit { pid, reason } if reason.is_abnormal() && Some(pid) == self.context.parent() => {
                    lock(&self.queue).is_cancelled = true;
                    return None;
                }
                _ => {}
            }
        }
    }

    /// Waits for an event. [`Event::Cancel`] comes when the process is asked to end or has ended,
    /// and from then on whenever nothing else is there.
    ///
    /// # Cancel safety
    /// No event is lost.
    pub async fn next(&mut self) -> Event {
        // From Cancel on there is always an event: who does not mind it gives way to others all the
        // same.
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
        // Another task reads, or a part of the function with a waker of its own: the process may
        // have stepped before, and wait for no mail.
        if former.is_none() && !cx.waker().will_wake(&self.waker) {
            self.waker.wake_by_ref();
        }
        Poll::Pending
    }
}

/// No code of the user runs under this lock, so a panic leaves nothing half-done.
fn lock(queue: &Mutex<Queue>) -> MutexGuard<'_, Queue> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Inbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbox").field("pid", &self.context.pid()).finish_non_exhaustive()
    }
}
