//! A request to a server, counted under its route: see [`Request`].

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Handle;
use crate::clock;
use crate::scheduler::current::with_worker;
use crate::scheduler::shared::Shared;
use crate::stats::routes::{Outcome, Place};
use crate::task::current;

/// A request that a server handles, counted under its route.
///
/// `volt::axum` makes one for each request that a router handles. A server that is built on another
/// framework can make its own. The console, the metrics and
/// [`Snapshot::routes`](volt_telemetry::Snapshot::routes) then have for each route: the requests
/// and how they ended, how long they took, the time that their polls took on workers, and for how
/// long their tasks waited for a worker. While a poll of the request is in progress, the console
/// and the records of stuck polls name the route.
///
/// Dropping it without [`end`](Self::end) counts the request as abandoned.
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
#[must_use = "a request that is dropped at once is counted as abandoned"]
pub struct Request {
    shared: Arc<Shared>,
    /// The index of its route in the table of the runtime.
    route: usize,
    began_at_ns: u64,
    /// The number of the task's poll whose delay was added last.
    poll_seq: u64,
    outcome: Outcome,
}

impl Request {
    /// Begins a request of the current runtime: one with this HTTP method, for which the router
    /// found the route `path`.
    ///
    /// `path` must be the pattern of the route, not the path of the request, of which there may be
    /// any number. A runtime counts at most [`MAX_ROUTES`](volt_telemetry::routes::MAX_ROUTES)
    /// routes separately, and all others together as one with the name `other`. Methods that HTTP
    /// does not define are counted as `other`. A path longer than 256 bytes is cut.
    ///
    /// # Panics
    /// If called outside a runtime.
    #[track_caller]
    pub fn begin(method: &str, path: &str) -> Self {
        let shared = Handle::current().shared;
        let route = shared.routes.index_of(method, path);
        let request = Self { shared, route, began_at_ns: clock::now_ns(), poll_seq: 0, outcome: Outcome::Abandoned };
        // ORDERING: Relaxed; the end, which comes after it, is published.
        request.place().begun.fetch_add(1, Ordering::Relaxed);
        request
    }

    /// Calls `poll`, which polls the handler of this request, and adds the time that it takes to
    /// the time of the route on workers. Returns what `poll` returns.
    pub fn poll<R>(&mut self, poll: impl FnOnce() -> R) -> R {
        self.add_delay();
        let _named = Named::begin(self);
        poll()
    }

    /// Ends the request, which was answered: with success, or with an error of the server.
    pub fn end(mut self, is_success: bool) {
        self.outcome = if is_success { Outcome::Succeeded } else { Outcome::Failed };
    }

    fn place(&self) -> &Place {
        self.shared.routes.get(self.route).expect("places are never freed")
    }

    /// Adds the time for which the task waited for this poll, once for each poll of the task.
    fn add_delay(&mut self) {
        let submitted_at_ns = current::with(|task| Some(task?.header().submitted_at_ns()));
        let poll = with_worker(|worker| {
            let worker = worker.filter(|worker| worker.is_of(&self.shared))?;
            worker.cells().poll_after(submitted_at_ns?)
        });
        if let Some((poll_seq, delay_ns)) = poll
            && poll_seq != self.poll_seq
        {
            self.poll_seq = poll_seq;
            // ORDERING: Relaxed; only a statistic.
            self.place().delay_ns.fetch_add(delay_ns, Ordering::Relaxed);
        }
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

/// A poll of a request: while this lives, the worker's cells have the route.
struct Named<'a> {
    request: &'a Request,
    began_at_ns: u64,
    /// The route that the cells had before.
    former: u64,
}

impl<'a> Named<'a> {
    fn begin(request: &'a Request) -> Self {
        let former = name(request, request.route as u64 + 1);
        Self { request, began_at_ns: clock::now_ns(), former }
    }
}

impl Drop for Named<'_> {
    fn drop(&mut self) {
        name(self.request, self.former);
        let took_ns = clock::now_ns().saturating_sub(self.began_at_ns);
        let place = self.request.place();
        // ORDERING: Relaxed, both; only statistics.
        place.busy_ns.fetch_add(took_ns, Ordering::Relaxed);
        if took_ns > place.longest_poll_ns.load(Ordering::Relaxed) {
            place.longest_poll_ns.fetch_max(took_ns, Ordering::Relaxed);
        }
    }
}

/// Stores a route in the cells of the worker of this thread, if that is one of the request's
/// runtime. Returns the former one.
fn name(request: &Request, route: u64) -> u64 {
    with_worker(|worker| {
        worker.filter(|worker| worker.is_of(&request.shared)).map_or(0, |worker| worker.cells().set_route(route))
    })
}
