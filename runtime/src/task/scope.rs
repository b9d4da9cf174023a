//! Structured concurrency: children that cannot outlive the stretch of code that started them.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use tokio::sync::oneshot;

use super::join::JoinError;
use super::join_set::JoinSet;

/// Runs `body` and every child that it starts on its [`Scope`], and returns when all of them have ended. The first error, of the body or of a
/// child, cancels the others; it is returned after they are gone. A child that panics counts as an error.
///
/// Children are tasks of the runtime and run in parallel; they must own what they use, since a future may be forgotten at any await.
///
/// # Errors
/// The first error of the body or of a child.
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
    let scope = Scope::new();
    let first = {
        let mut body = pin!(body(scope.clone()));
        let mut output = None;
        poll_fn(|cx| scope.poll(cx, body.as_mut(), &mut output)).await
        // The body goes here, before the children are waited for: what it holds may be what they wait for.
    };
    if first.is_err() {
        scope.wait_for_rest().await;
    }
    first
}

/// Starts the children of a [`scope`]; clones start children of the same one.
pub struct Scope<E> {
    state: Arc<Mutex<State<E>>>,
}

struct State<E> {
    children: JoinSet<Result<(), E>>,
    /// Woken when a child is added, so that it is polled.
    waker: Option<Waker>,
    is_over: bool,
}

impl<E: Send + 'static> Scope<E> {
    fn new() -> Self {
        let state = State { children: JoinSet::new(), waker: None, is_over: false };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    fn lock(&self) -> MutexGuard<'_, State<E>> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Starts a child in the current runtime. Awaiting what is returned gives the child's value; dropping it changes nothing. If the child
    /// fails it never resolves: the scope ends instead, and with it whoever waits. After the scope has ended the child is cancelled at once.
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
        let reports = async move {
            // Nobody may want the value.
            let _unclaimed = sender.send(child.await?);
            Ok(())
        };
        let mut state = self.lock();
        let child = state.children.spawn(reports);
        if state.is_over {
            child.abort();
        }
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        Child { value: Some(receiver) }
    }

    /// Polls the body and the children; ready with the first error, or with the body's output when nobody is left.
    fn poll<T>(
        &self,
        cx: &mut Context<'_>,
        body: Pin<&mut impl Future<Output = Result<T, E>>>,
        output: &mut Option<T>,
    ) -> Poll<Result<T, ScopeError<E>>> {
        if output.is_none()
            && let Poll::Ready(ended) = body.poll(cx)
        {
            match ended {
                Ok(value) => *output = Some(value),
                Err(error) => return Poll::Ready(Err(self.fail(ScopeError::Failed(error)))),
            }
        }
        let mut state = self.lock();
        loop {
            match state.children.poll_join_next(cx) {
                Poll::Ready(Some(Ok(Ok(())))) => {}
                Poll::Ready(Some(Ok(Err(error)))) => {
                    drop(state);
                    return Poll::Ready(Err(self.fail(ScopeError::Failed(error))));
                }
                Poll::Ready(Some(Err(error))) => {
                    drop(state);
                    return Poll::Ready(Err(self.fail(ScopeError::Panicked(error))));
                }
                Poll::Ready(None) if output.is_some() => {
                    state.is_over = true;
                    return Poll::Ready(Ok(output.take().expect("it was looked at")));
                }
                Poll::Ready(None) | Poll::Pending => {
                    state.waker = Some(cx.waker().clone());
                    return Poll::Pending;
                }
            }
        }
    }

    fn fail(&self, error: ScopeError<E>) -> ScopeError<E> {
        let mut state = self.lock();
        state.is_over = true;
        state.children.abort_all();
        error
    }

    async fn wait_for_rest(&self) {
        poll_fn(|cx| {
            let mut state = self.lock();
            while let Some(_ended) = std::task::ready!(state.children.poll_join_next(cx)) {}
            Poll::Ready(())
        })
        .await;
    }
}

impl<E> Clone for Scope<E> {
    fn clone(&self) -> Self {
        Self { state: self.state.clone() }
    }
}

impl<E> fmt::Debug for Scope<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope").finish_non_exhaustive()
    }
}

/// The value of a child of a [`scope`], to be awaited.
///
/// # Cancel safety
/// Cancel safe: the value waits.
#[must_use = "awaiting it gives the child's value; the child runs in any case"]
pub struct Child<T> {
    /// `None` once the child has failed.
    value: Option<oneshot::Receiver<T>>,
}

impl<T> Future for Child<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let Some(value) = &mut self.value else { return Poll::Pending };
        match Pin::new(value).poll(cx) {
            Poll::Ready(Ok(value)) => Poll::Ready(value),
            Poll::Ready(Err(_)) => {
                // It failed: the scope is about to end, and whoever waits here with it; until then it may be polled again.
                self.value = None;
                Poll::Pending
            }
            Poll::Pending => Poll::Pending,
        }
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
    fn a_child_that_failed_stays_pending_however_often_it_is_polled() {
        let (sender, receiver) = oneshot::channel::<u32>();
        let mut child = Child { value: Some(receiver) };
        let mut cx = Context::from_waker(Waker::noop());
        drop(sender);
        for _ in 0..3 {
            assert!(Pin::new(&mut child).poll(&mut cx).is_pending());
        }
    }
}
