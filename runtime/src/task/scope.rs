//! Structured concurrency: children that cannot outlive the stretch of code that started them.
//!
//! Shape. The future of [`scope`] owns the *child set*: the children's handles. Clones of [`Scope`]
//! share little with it: the children that have *arrived* since it last checked, how many are *on
//! their way*, the waker that reports them, and the phase. So a clone, such as the one that a child
//! holds, does not keep the child set alive.
//!
//! | phase | a child that arrives | left when |
//! |---|---|---|
//! | `Open` | is adopted | the first error comes, or the body panics |
//! | `Cancelled` | is adopted and aborted: it is waited for like its siblings | nobody is left |
//! | `Over` | is dropped, or aborted if it arrives just then, and nobody waits | never |
//!
//! A [`Child`] that will never have a value is pending for as long as its scope goes on, since the
//! scope drops whoever awaits it inside. At the end, `over`, those who await it outside are woken,
//! and panic: nobody else would ever wake them.
//!
//! Protocol of a spawn: (1) under the lock: the scope is not over, and one more child is on its
//! way; (2) start its task, without the lock; (3) under the lock: it has arrived, or, if the phase
//! is `Over` by now, it is dropped; (4) abort it, unless the phase is `Open`; (5) under the lock:
//! one fewer is on its way; wake the scope's future, or, if the phase is `Over` and that was the
//! last, say that the scope has ended. The child set is not done before nobody is on the way; a
//! scope whose future is dropped does not wait, and its last child says that it has ended. So
//! *Aborted first*: when those who await a child are told of the end, every child has ended, or is
//! aborted. A child that is running already between (2) and (4), and awaits one that it was
//! refused, would panic otherwise.
//!
//! Who writes: anybody who holds a clone (arrivals), the child set (all of it). Who reads: the
//! child set.
//!
//! Invariants. *Unlocked code*: what is the user's (futures, errors, outputs, wakers) is neither
//! run nor cloned nor dropped under the lock, since each of them may start a child. *Nobody is
//! forgotten*: the child set returns pending only if nobody has arrived, which it sees in the hold
//! of the lock in which it leaves its waker.
//!
//! Rejected: one set behind the lock, shared by all clones: a child that holds a clone keeps the
//! set alive, and so itself, when the future is dropped; and every error that comes too late is
//! dropped under the lock.

use std::fmt;
use std::future::{Future, poll_fn};
use std::mem;
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker, ready};
use std::thread;

use tokio::sync::{SetOnce, oneshot};

use super::join_set::JoinSet;
use volt_core::context;
use volt_core::task::contain::contain;
use volt_core::task::current;
use volt_core::task::join::{JoinError, JoinHandle};

/// Runs `body` and every child that it starts on its [`Scope`], and returns when all of them have
/// ended. The first error, of the body or of a child, cancels the others; it is returned after they
/// are gone. A child that panics counts as an error.
///
/// Children are tasks of the runtime and run in parallel; they must own what they use, since a
/// future may be forgotten at any await.
///
/// # Errors
/// The first error of the body or of a child.
///
/// # Panics
/// If the body panics; its children are cancelled, and gone by then.
///
/// # Cancel safety
/// Dropping the future aborts the body and all children without waiting for them.
///
/// ```
/// # let runtime = volt::Builder::new_multi_thread().worker_threads(2).build().unwrap();
/// let total = runtime.block_on(volt::task::scope(async |scope| {
///     let parts: Vec<_> = (0..4).map(|n| scope.spawn(async move { Ok::<_, String>(n) })).collect();
///     let mut total = 0;
///     for part in parts {
///         total += part.await;
///     }
///     Ok(total)
/// }));
/// assert_eq!(total.unwrap(), 6);
/// ```
pub async fn scope<T, E, F>(body: F) -> Result<T, ScopeError<E>>
where
    F: AsyncFnOnce(Scope<E>) -> Result<T, E>,
    E: Send + 'static,
{
    let mut set = ChildSet { scope: Scope::new(), children: JoinSet::new() };
    let ended = {
        let mut body = pin!(Some(body(set.scope.clone())));
        let mut output = None;
        let ended = poll_fn(|cx| set.poll(cx, body.as_mut(), &mut output)).await;
        // The body goes here, before the children are waited for: what it holds may be what they
        // wait for.
        catch_unwind(AssertUnwindSafe(|| body.set(None))).and(ended)
    };
    if !matches!(ended, Ok(Ok(_))) {
        set.cancel();
        set.wait_for_rest().await;
    }
    ended.unwrap_or_else(|panic| resume_unwind(panic))
}

/// How a child has ended.
type Ended<E> = Result<Result<(), E>, JoinError>;

/// What the future of a scope owns; see the header of this file.
struct ChildSet<E: Send + 'static> {
    scope: Scope<E>,
    children: JoinSet<Result<(), E>>,
}

impl<E: Send + 'static> ChildSet<E> {
    /// Polls the body and the children; ready with the first error, or with the body's output when
    /// nobody is left, or with the body's panic.
    fn poll<T>(
        &mut self,
        cx: &mut Context<'_>,
        mut body: Pin<&mut Option<impl Future<Output = Result<T, E>>>>,
        output: &mut Option<T>,
    ) -> Poll<thread::Result<Result<T, ScopeError<E>>>> {
        if let Some(running) = body.as_mut().as_pin_mut() {
            match catch_unwind(AssertUnwindSafe(|| running.poll(cx))) {
                Ok(Poll::Pending) => {}
                Ok(Poll::Ready(Ok(value))) => {
                    *output = Some(value);
                    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| body.set(None))) {
                        return Poll::Ready(Err(panic));
                    }
                }
                Ok(Poll::Ready(Err(error))) => return Poll::Ready(Ok(Err(ScopeError::Failed(error)))),
                Err(panic) => return Poll::Ready(Err(panic)),
            }
        }
        loop {
            match ready!(self.poll_next(cx, output.is_some())) {
                Some(Ok(Ok(()))) => {}
                Some(Ok(Err(error))) => return Poll::Ready(Ok(Err(ScopeError::Failed(error)))),
                Some(Err(error)) => return Poll::Ready(Ok(Err(ScopeError::Panicked(error)))),
                None => return Poll::Ready(Ok(Ok(output.take().expect("nobody is left only after the body")))),
            }
        }
    }

    /// The next child that has ended; `None` when nobody is left and the scope `may_end`: then it
    /// is over.
    fn poll_next(&mut self, cx: &mut Context<'_>, may_end: bool) -> Poll<Option<Ended<E>>> {
        loop {
            let next = self.children.poll_join_next(cx);
            if let Poll::Ready(Some(ended)) = next {
                return Poll::Ready(Some(ended));
            }
            let waker = cx.waker().clone();
            let mut state = self.scope.lock();
            let arrivals = mem::take(&mut state.arrivals);
            if !arrivals.is_empty() {
                drop(state);
                self.adopt(arrivals);
                continue;
            }
            // *Nobody is forgotten*: whoever arrives after this hold of the lock finds the waker,
            // or the scope over.
            let is_over = may_end && next.is_ready() && state.on_the_way == 0;
            let former = if is_over {
                state.phase = Phase::Over;
                state.waker.take()
            } else {
                state.waker.replace(waker)
            };
            drop(state);
            drop(former);
            if is_over {
                self.scope.end();
            }
            return if is_over { Poll::Ready(None) } else { Poll::Pending };
        }
    }

    fn adopt(&mut self, arrivals: Vec<JoinHandle<Result<(), E>>>) {
        for child in arrivals {
            self.children.insert(child);
        }
    }

    /// Aborts all children, and those who come from now on.
    fn cancel(&mut self) {
        let arrivals = self.scope.enter(Phase::Cancelled);
        self.adopt(arrivals);
        self.children.abort_all();
    }

    async fn wait_for_rest(&mut self) {
        poll_fn(|cx| {
            while let Some(ended) = ready!(self.poll_next(cx, true)) {
                // Too late to be the first error. Its destructor may panic, and there are still
                // children to be waited for.
                contain(|| drop(ended));
            }
            Poll::Ready(())
        })
        .await;
    }
}

impl<E: Send + 'static> Drop for ChildSet<E> {
    fn drop(&mut self) {
        // *Aborted first*
        self.cancel();
        self.scope.enter(Phase::Over).iter().for_each(JoinHandle::abort);
        let is_anybody_on_the_way = self.scope.lock().on_the_way > 0;
        if !is_anybody_on_the_way {
            self.scope.end();
        }
    }
}

/// Starts the children of a [`scope`]; clones start children of the same one.
pub struct Scope<E> {
    state: Arc<Mutex<State<E>>>,
    /// Set once nobody inside is left.
    over: Arc<SetOnce<()>>,
}

struct State<E> {
    arrivals: Vec<JoinHandle<Result<(), E>>>,
    /// Children between Spawn (1) and Spawn (5).
    on_the_way: usize,
    /// Woken when a child arrives, so that it is adopted.
    waker: Option<Waker>,
    phase: Phase,
}

/// See the header of this file. From one to the next and never back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Open,
    Cancelled,
    Over,
}

impl<E: Send + 'static> Scope<E> {
    fn new() -> Self {
        let state = State { arrivals: Vec::new(), on_the_way: 0, waker: None, phase: Phase::Open };
        Self { state: Arc::new(Mutex::new(state)), over: Arc::new(SetOnce::new()) }
    }

    /// Tells those who await a child outside that the scope has ended.
    fn end(&self) {
        // It may be set already: the child set is dropped after its last child too.
        let _told = self.over.set(());
    }

    fn lock(&self) -> MutexGuard<'_, State<E>> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Goes over to `phase`, if it comes after the present one; those who had arrived before. The
    /// waker goes: the scope's future is awake.
    fn enter(&self, phase: Phase) -> Vec<JoinHandle<Result<(), E>>> {
        let mut state = self.lock();
        state.phase = state.phase.max(phase);
        let arrivals = mem::take(&mut state.arrivals);
        let waker = state.waker.take();
        drop(state);
        drop(waker);
        arrivals
    }

    /// Starts a child in the current runtime. Awaiting the returned [`Child`] gives the child's
    /// value; dropping it changes nothing. If the child fails, the `Child` never resolves: the
    /// scope ends instead, and drops whoever awaits it. After the scope has ended, the child is
    /// dropped without being started.
    ///
    /// # Panics
    /// Outside a runtime.
    #[track_caller]
    pub fn spawn<T, F>(&self, child: F) -> Child<T>
    where
        F: Future<Output = Result<T, E>> + Send + 'static,
        T: Send + 'static,
    {
        let (sender, receiver) = oneshot::channel();
        let value = Child(Awaits::Value(receiver, self.over.clone()));
        let runtime = context::handle();
        // Spawn (1)
        let Some(on_the_way) = OnTheWay::new(self) else { return value };
        let reports = async move {
            // Nobody may want the value.
            let _unclaimed = sender.send(child.await?);
            Ok(())
        };
        // Spawn (2)
        // *Unlocked code*: a runtime that is shut down drops the future at once.
        on_the_way.arrive(runtime.spawn_at(reports, None, Location::caller()));
        value
    }
}

/// A child that is being started.
struct OnTheWay<'s, E: Send + 'static>(&'s Scope<E>);

impl<'s, E: Send + 'static> OnTheWay<'s, E> {
    /// Spawn (1); `None` = the scope is over, for good.
    fn new(scope: &'s Scope<E>) -> Option<Self> {
        let mut state = scope.lock();
        let is_over = state.phase == Phase::Over;
        state.on_the_way += usize::from(!is_over);
        drop(state);
        (!is_over).then(|| Self(scope))
    }

    fn arrive(self, child: JoinHandle<Result<(), E>>) {
        let to_abort = child.abort_handle();
        // Spawn (3)
        let mut state = self.0.lock();
        let phase = state.phase;
        let refused = if phase == Phase::Over {
            Some(child)
        } else {
            state.arrivals.push(child);
            None
        };
        drop(state);
        drop(refused);
        // Spawn (4)
        if phase != Phase::Open {
            to_abort.abort();
        }
    }
}

impl<E: Send + 'static> Drop for OnTheWay<'_, E> {
    fn drop(&mut self) {
        // Spawn (5)
        let mut state = self.0.lock();
        state.on_the_way -= 1;
        let is_end = state.phase == Phase::Over && state.on_the_way == 0;
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        if is_end {
            self.0.end();
        }
    }
}

impl<E> Clone for Scope<E> {
    fn clone(&self) -> Self {
        Self { state: self.state.clone(), over: self.over.clone() }
    }
}

impl<E> fmt::Debug for Scope<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope").finish_non_exhaustive()
    }
}

/// The value of a child of a [`scope`], to be awaited inside the scope.
///
/// # Panics
/// If the child failed or was cancelled and the scope has ended: code outside the scope, which the
/// scope does not drop, would wait for ever.
///
/// # Cancel safety
/// Cancel safe: the value waits.
#[must_use = "awaiting it gives the child's value; the child runs in any case"]
pub struct Child<T>(Awaits<T>);

enum Awaits<T> {
    /// The child's value, or that it has none.
    Value(oneshot::Receiver<T>, Arc<SetOnce<()>>),
    /// The end of the scope.
    End(Pin<Box<dyn Future<Output = ()> + Send + Sync>>),
}

impl<T> Future for Child<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        if let Awaits::Value(value, over) = &mut self.0 {
            match ready!(Pin::new(value).poll(cx)) {
                Ok(value) => return Poll::Ready(value),
                Err(_failed) => {
                    let over = over.clone();
                    self.0 = Awaits::End(Box::pin(async move {
                        over.wait().await;
                    }));
                }
            }
        }
        if let Awaits::End(end) = &mut self.0 {
            ready!(end.as_mut().poll(cx));
        }
        // A child of a scope that was dropped may get here in the poll in which it is cancelled.
        assert!(
            current::is_cancellation_effective(),
            "the scope of this child has ended, and the child gave no value: it failed, was cancelled, or was started too late; await it inside \
             the scope"
        );
        Poll::Pending
    }
}

impl<T> fmt::Debug for Child<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Child").finish_non_exhaustive()
    }
}

/// Why a [`scope`] ended early.
#[derive(Debug)]
#[non_exhaustive]
pub enum ScopeError<E> {
    /// The body or a child returned this error, before any other did.
    Failed(E),
    /// A child panicked, or the runtime shut down.
    Panicked(JoinError),
}

impl<E: fmt::Display> fmt::Display for ScopeError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ScopeError::Failed(error) => error.fmt(f),
            ScopeError::Panicked(error) => error.fmt(f),
        }
    }
}

impl<E: std::error::Error + 'static> std::error::Error for ScopeError<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ScopeError::Failed(error) => error.source(),
            ScopeError::Panicked(error) => Some(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_that_is_over_does_not_open_again() {
        let scope = Scope::<()>::new();
        let set = ChildSet { scope: scope.clone(), children: JoinSet::new() };
        scope.enter(Phase::Over);
        scope.enter(Phase::Cancelled);
        assert_eq!(scope.lock().phase, Phase::Over);
        drop(set);
        assert!(OnTheWay::new(&scope).is_none());
    }

    #[test]
    fn a_scope_waits_for_a_child_that_is_being_started() {
        let scope = Scope::<()>::new();
        let mut set = ChildSet { scope: scope.clone(), children: JoinSet::new() };
        let mut cx = Context::from_waker(Waker::noop());
        let on_the_way = OnTheWay::new(&scope).unwrap();
        assert!(set.poll_next(&mut cx, true).is_pending(), "it may become a child");
        assert!(scope.lock().waker.is_some());
        drop(on_the_way);
        assert!(scope.lock().waker.is_none(), "the child set is woken");
        assert!(matches!(set.poll_next(&mut cx, true), Poll::Ready(None)));
        assert!(scope.over.initialized());
    }

    /// A child that runs before it is aborted may await one that was refused, and would panic.
    #[test]
    fn the_end_of_a_dropped_scope_comes_after_its_last_abort() {
        let scope = Scope::<()>::new();
        let set = ChildSet { scope: scope.clone(), children: JoinSet::new() };
        let (first, last) = (OnTheWay::new(&scope).unwrap(), OnTheWay::new(&scope).unwrap());
        drop(set);
        assert!(!scope.over.initialized());
        drop(first);
        assert!(!scope.over.initialized(), "the last one is not aborted yet");
        drop(last);
        assert!(scope.over.initialized());
    }

    #[test]
    fn a_child_that_failed_stays_pending_until_its_scope_ends() {
        let (sender, receiver) = oneshot::channel::<u32>();
        let mut child = Child(Awaits::Value(receiver, Arc::new(SetOnce::new())));
        let mut cx = Context::from_waker(Waker::noop());
        drop(sender);
        for _ in 0..3 {
            assert!(Pin::new(&mut child).poll(&mut cx).is_pending());
        }
    }
}
