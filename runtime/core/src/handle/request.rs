//! A request to a server, counted under its route: see [`Request`].

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Handle;
use crate::clock;
use crate::context::TryCurrentError;
use crate::scheduler::current::with_worker;
use crate::scheduler::shared::Shared;
use crate::stats::routes::{Outcome, Place};
use crate::task::current;
use crate::task::resources::is_traced;

/// A request that a server handles, counted under its route.
///
/// `volt::axum` creates one for each request that a router handles. A server that is built on
/// another framework can create its own. The console, the metrics and
/// [`Snapshot::routes`](volt_telemetry::Snapshot::routes) then report for each route how many
/// requests there were and how they ended, how long they took, how long their polls took on
/// workers, and how long their tasks waited for a worker. While a poll of the request is in
/// progress, the console and the incidents name the route.
///
/// A request that is dropped without [`end`](Self::end) counts as abandoned. If a request is polled
/// inside the poll of another one, the time of that poll counts for both, and the delay of the task
/// for the outer one only.
///
/// ```
/// use std::future::{Future, poll_fn};
/// use std::pin::pin;
/// use volt::observe::Request;
///
/// async fn handle(id: u64) -> Result<String, std::io::Error> {
///     Ok(format!("user {id}"))
/// }
///
/// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build()?;
/// runtime.block_on(async {
///     let mut request = Request::begin("GET", "/users/{id}");
///     let mut handler = pin!(handle(7));
///     let response = poll_fn(|cx| request.poll(|| handler.as_mut().poll(cx))).await;
///     request.end(response.is_ok());
/// });
/// let routes = runtime.handle().snapshot().routes;
/// assert_eq!((routes[0].name().as_str(), routes[0].succeeded), ("GET /users/{id}", 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a request that is dropped without end() counts as abandoned"]
pub struct Request {
    shared: Arc<Shared>,
    /// The index of its route in the table of the runtime.
    route: usize,
    began_at_ns: u64,
    outcome: Outcome,
}

impl Request {
    /// Begins a request on the current runtime, with its HTTP method and the `path` of its route.
    ///
    /// `path` must be the pattern of the route, such as `/users/{id}`, and not the path of the
    /// request, of which there may be any number. A runtime counts at most
    /// [`MAX_ROUTES`](volt_telemetry::routes::MAX_ROUTES) routes separately, and all others
    /// together as one with the name `other`. Methods that HTTP does not define are counted as
    /// `other`. A path longer than 256 bytes is truncated.
    ///
    /// # Panics
    /// Panics if called outside a runtime; see [`try_begin`](Self::try_begin).
    #[track_caller]
    pub fn begin(method: &str, path: &str) -> Self {
        Self::begin_in(Handle::current().shared, method, path)
    }

    /// Like [`begin`](Self::begin), but does not panic.
    ///
    /// # Errors
    /// Fails outside a runtime, and in destructors of thread-locals at the end of a thread.
    pub fn try_begin(method: &str, path: &str) -> Result<Self, TryCurrentError> {
        Ok(Self::begin_in(Handle::try_current()?.shared, method, path))
    }

    fn begin_in(shared: Arc<Shared>, method: &str, path: &str) -> Self {
        let route = shared.routes.index_of(method, path);
        let request = Self { shared, route, began_at_ns: clock::now_ns(), outcome: Outcome::Abandoned };
        // ORDERING: Relaxed; the end, which comes after it, is published.
        request.place().begun.fetch_add(1, Ordering::Relaxed);
        request
    }

    /// Calls `poll`, which polls the handler of this request, and counts the time that it takes for
    /// the route. Returns the result of `poll`.
    ///
    /// Outside the workers of the runtime, and in a poll for a dump, it only calls `poll` and
    /// counts nothing.
    pub fn poll<R>(&mut self, poll: impl FnOnce() -> R) -> R {
        let _poll = if is_traced() { None } else { PolledHere::begin(self) };
        poll()
    }

    /// Ends the request and counts it: as succeeded if `is_success`, and otherwise as failed. A
    /// request fails by an error of the server, not by one of the client.
    pub fn end(mut self, is_success: bool) {
        self.outcome = if is_success { Outcome::Succeeded } else { Outcome::Failed };
    }

    fn place(&self) -> &Place {
        self.shared.routes.get(self.route).expect("places are never freed")
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        self.place().count_end(self.outcome, clock::now_ns().saturating_sub(self.began_at_ns));
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request").field("route", &self.place().name()).finish_non_exhaustive()
    }
}

/// A poll of a request on a worker: while this lives, the worker's cells have the route.
struct PolledHere<'a> {
    request: &'a Request,
    began_at_ns: u64,
    /// The route that the cells had before.
    former: u64,
}

impl<'a> PolledHere<'a> {
    /// Returns `None` if this thread is no worker of the request's runtime.
    fn begin(request: &'a Request) -> Option<Self> {
        let submitted_at_ns = current::with(|task| Some(task?.header().submitted_at_ns()));
        let former = with_worker(|worker| {
            let cells = worker.filter(|worker| worker.is_of(&request.shared))?.cells();
            if let Some(delay_ns) = submitted_at_ns.and_then(|at_ns| cells.take_delay(at_ns)) {
                // ORDERING: Relaxed; only a statistic.
                request.place().delay_ns.fetch_add(delay_ns, Ordering::Relaxed);
            }
            Some(cells.set_route(request.route as u64 + 1))
        })?;
        Some(Self { request, began_at_ns: clock::now_ns(), former })
    }
}

impl Drop for PolledHere<'_> {
    fn drop(&mut self) {
        with_worker(|worker| worker.map(|worker| worker.cells().set_route(self.former)));
        let took_ns = clock::now_ns().saturating_sub(self.began_at_ns);
        let place = self.request.place();
        // ORDERING: Relaxed, both; only statistics.
        place.busy_ns.fetch_add(took_ns, Ordering::Relaxed);
        if took_ns > place.longest_poll_ns.load(Ordering::Relaxed) {
            place.longest_poll_ns.fetch_max(took_ns, Ordering::Relaxed);
        }
    }
}
