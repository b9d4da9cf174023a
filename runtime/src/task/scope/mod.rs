//! Structured concurrency: a scope whose child tasks cannot outlive it.
//!
//! [`scope`] runs an async closure, the *body*, which spawns *children* through a [`Scope`] handle.
//! The scope returns when the body and all children have ended. The first error cancels the others.
//!
//! Terms. The future of [`scope`] owns the *child set*: the join handles of the children. Clones of
//! [`Scope`] share only a small [`State`] with it: the children that have *arrived* since the child
//! set last checked, the number of children *on the way* (being spawned), the child set's waker,
//! and the phase. A clone, for example the one that a child owns, therefore does not keep the child
//! set alive.
//!
//! | phase | a child that arrives | ends when |
//! |---|---|---|
//! | `Open` | is adopted by the child set | the first error occurs, or the body panics |
//! | `Cancelled` | is adopted and aborted; the scope waits for it as for the other children | no child is left |
//! | `Over` | is refused in step 1; or, if it was on the way already, is aborted | never |
//!
//! Ordinary case: the body spawns a child, which arrives and wakes the scope's future. The child
//! set adopts it and joins it when it ends. When the body has ended and no child is left, the phase
//! becomes `Over`.
//!
//! Awaiting a child. A [`Child`] whose task gave no value stays pending while the scope runs: code
//! inside the scope is dropped with the scope. When the scope ends, `over` is set. This wakes code
//! outside the scope that awaits such a `Child`; it panics, since nothing else would ever wake it.
//!
//! The race: a child can be spawned while another thread cancels or drops the scope. A spawn takes
//! these steps, Spawn (1) to Spawn (5):
//!
//! 1. Under the lock: check that the scope is not over, and count one more child on the way.
//! 2. Without the lock: spawn the task.
//! 3. Under the lock: add the child to the arrivals, or drop its handle if the phase is `Over`.
//! 4. Abort the child, unless the phase is `Open`.
//! 5. Under the lock: count one fewer on the way. Then wake the scope's future; or, if the phase is
//!    `Over` and this was the last child on the way, set `over`.
//!
//! The child set does not complete while a child is on the way. A scope whose future is dropped
//! does not wait; the last child on the way then sets `over`.
//!
//! Any thread that has a clone of [`Scope`] can add arrivals. Only the child set takes them.
//!
//! Invariants:
//! * ABORTED FIRST: when `over` is set, every child has ended or has been aborted. Otherwise a
//!   child that already runs between Spawn (2) and Spawn (4), and awaits a child whose spawn was
//!   refused, would panic.
//! * UNLOCKED CODE: user code (futures, errors, outputs, wakers) is neither run nor cloned nor
//!   dropped under the lock, because any of it may spawn a child.
//! * NO LOST CHILD: the child set returns pending only if no child has arrived. It checks this in
//!   the same critical section in which it stores its waker.
//!
//! Rejected design: one child set behind the lock, shared by all clones. A child that owns a clone
//! would then keep the set, and thereby itself, alive after the scope's future is dropped. Also,
//! errors that arrive late would be dropped under the lock.

mod child;

use std::fmt;
use std::future::{Future, poll_fn};
use std::mem;
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker, ready};
use std::thread;

use self::child::Awaits;
pub use self::child::Child;
use tokio::sync::{SetOnce, oneshot};

use super::join_set::JoinSet;
use volt_core::context;
use volt_core::task::contain::contain;
use volt_core::task::{JoinError, JoinHandle};

/// Runs `body` and all children that it spawns on its [`Scope`], and returns when all of them have
/// ended.
///
/// The first error, of the body or of a child, cancels the body and all children. The scope returns
/// the error after they have ended. A child that panics counts as an error.
///
/// Children are tasks of the runtime and run in parallel. They must own their data (`'static`): a
/// future can be leaked at any `.await`, so a scope cannot lend borrowed data to its children.
///
/// # Errors
/// Returns the first error of the body or of a child.
///
/// # Panics
/// Resumes the panic of the body, after all children are cancelled and have ended.
///
/// # Cancel safety
/// Dropping the future drops the body and aborts all children, without waiting for them.
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
        // Drop the body before waiting for the children: they may wait for something that the body
        // owns.
        catch_unwind(AssertUnwindSafe(|| body.set(None))).and(ended)
    };
    if !matches!(ended, Ok(Ok(_))) {
        set.cancel();
        set.wait_for_rest().await;
    }
    ended.unwrap_or_else(|panic| resume_unwind(panic))
}

/// The result of a child.
type Ended<E> = Result<Result<(), E>, JoinError>;

/// The join handles of a scope's children, owned by the scope's future; see the module header.
struct ChildSet<E: Send + 'static> {
    scope: Scope<E>,
    children: JoinSet<Result<(), E>>,
}

impl<E: Send + 'static> ChildSet<E> {
    /// Polls the body and the children.
    ///
    /// Ready with the first error, with the body's output once no child is left, or with the body's
    /// panic.
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
                None => {
                    return Poll::Ready(Ok(Ok(output.take().expect("no child is left only after the body has ended"))));
                }
            }
        }
    }

    /// Polls for the next child that has ended.
    ///
    /// `None` if no child is left and `may_end` is true; the phase is then `Over`.
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
            // NO LOST CHILD: a child that arrives after this critical section finds the waker, or
            // the phase `Over`.
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

    /// Aborts all children, including those that arrive from now on.
    fn cancel(&mut self) {
        let arrivals = self.scope.enter(Phase::Cancelled);
        self.adopt(arrivals);
        self.children.abort_all();
    }

    async fn wait_for_rest(&mut self) {
        poll_fn(|cx| {
            while let Some(ended) = ready!(self.poll_next(cx, true)) {
                // Too late to be the first error. Its destructor may panic, and there are still
                // children to wait for.
                contain(|| drop(ended));
            }
            Poll::Ready(())
        })
        .await;
    }
}

impl<E: Send + 'static> Drop for ChildSet<E> {
    fn drop(&mut self) {
        // ABORTED FIRST
        self.cancel();
        self.scope.enter(Phase::Over).iter().for_each(JoinHandle::abort);
        let is_any_on_the_way = self.scope.lock().on_the_way > 0;
        if !is_any_on_the_way {
            self.scope.end();
        }
    }
}

/// Spawns the children of a [`scope`]. Clones spawn children of the same scope.
pub struct Scope<E> {
    state: Arc<Mutex<State<E>>>,
    /// Set when the scope has ended; see the module header.
    over: Arc<SetOnce<()>>,
}

struct State<E> {
    arrivals: Vec<JoinHandle<Result<(), E>>>,
    /// Number of children between Spawn (1) and Spawn (5).
    on_the_way: usize,
    /// Woken when a child arrives, so that the child set adopts it.
    waker: Option<Waker>,
    phase: Phase,
}

/// See the module header. A phase changes only to a later one.
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

    /// Wakes the code outside the scope that awaits a [`Child`].
    fn end(&self) {
        // It may be set already: dropping the child set calls this again.
        let _sent = self.over.set(());
    }

    fn lock(&self) -> MutexGuard<'_, State<E>> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Changes the phase to `phase`, unless the present one is later. Returns the children that
    /// have arrived.
    ///
    /// Also removes the waker: the caller is the scope's future, which needs no wake-up.
    fn enter(&self, phase: Phase) -> Vec<JoinHandle<Result<(), E>>> {
        let mut state = self.lock();
        state.phase = state.phase.max(phase);
        let arrivals = mem::take(&mut state.arrivals);
        let waker = state.waker.take();
        drop(state);
        drop(waker);
        arrivals
    }

    /// Spawns a child onto the current runtime, and returns a [`Child`] that can be awaited for its
    /// value.
    ///
    /// Dropping the [`Child`] does not affect the task. If the task fails, the `Child` never
    /// resolves: the scope ends instead, and drops the code inside it that awaits the `Child`.
    /// After the scope has ended, `spawn` drops the future without starting it.
    ///
    /// # Panics
    /// Panics if called outside a runtime.
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
            // The `Child` may have been dropped.
            let _unclaimed = sender.send(child.await?);
            Ok(())
        };
        // Spawn (2)
        // UNLOCKED CODE: a runtime that is shut down drops the future inside this call.
        on_the_way.arrive(runtime.spawn_at(reports, None, Location::caller()));
        value
    }
}

/// A child that is being spawned.
struct OnTheWay<'s, E: Send + 'static>(&'s Scope<E>);

impl<'s, E: Send + 'static> OnTheWay<'s, E> {
    /// Spawn (1). Returns `None` if the scope is over, which is final.
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

/// Error returned by a [`scope`] that ended early.
#[derive(Debug)]
#[non_exhaustive]
pub enum ScopeError<E> {
    /// The body or a child returned this error, before any other error occurred.
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

    /// A child that runs before it is aborted may await a child whose spawn was refused, and would
    /// panic.
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
