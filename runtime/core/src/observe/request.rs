//! A request to a server, counted under its route: see [`Request`].

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::clock;
use crate::context::TryCurrentError;
use crate::handle::Handle;
use crate::scheduler::shared::Shared;
use crate::scheduler::worker::current::with_worker;
use crate::stats::routes::{Outcome, Place};
use crate::task::current;
use crate::task::resources::is_traced;

/// Takes the place of the route of a request that has ended.
const ENDED: usize = usize::MAX;

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
/// # use volt_core as volt;
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
    /// The name of its route, which a [`Renamer`] may change until the request ends.
    name: Renamer,
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
        Self::begin_in(Handle::current().shared().clone(), method, path)
    }

    /// Like [`begin`](Self::begin), but does not panic.
    ///
    /// # Errors
    /// Fails outside a runtime, and in destructors of thread-locals at the end of a thread.
    pub fn try_begin(method: &str, path: &str) -> Result<Self, TryCurrentError> {
        Ok(Self::begin_in(Handle::try_current()?.shared().clone(), method, path))
    }

    fn begin_in(shared: Arc<Shared>, method: &str, path: &str) -> Self {
        let route = shared.routes.index_of(method, path);
        // ORDERING: Relaxed; the end, which comes after it, is published.
        place_of(&shared, route).begun.fetch_add(1, Ordering::Relaxed);
        let name = Renamer { shared, route: Arc::new(AtomicUsize::new(route)) };
        Self { name, began_at_ns: clock::now_ns(), outcome: Outcome::Abandoned }
    }

    /// Returns a handle that changes the route of this request, for example when a router that is
    /// nested in another one finds it.
    pub fn renamer(&self) -> Renamer {
        self.name.clone()
    }

    /// Calls `poll`, which polls the handler of this request, and adds the time of this call to the
    /// route. Returns the result of `poll`.
    ///
    /// Outside the workers of the runtime, and in a poll for a dump, it only calls `poll` and
    /// counts nothing.
    pub fn poll<R>(&mut self, poll: impl FnOnce() -> R) -> R {
        let _poll = if is_traced() { None } else { PolledHere::begin(self) };
        poll()
    }

    /// Ends the request and counts it: as succeeded if `is_success` is true, and otherwise as
    /// failed. Pass false only for an error of the server, not for one of the client.
    pub fn end(mut self, is_success: bool) {
        self.outcome = if is_success { Outcome::Succeeded } else { Outcome::Failed };
    }

    /// Returns the index of the route.
    fn route(&self) -> usize {
        // ORDERING: Acquire; pairs with the Release in `rename`, which publishes the begin in the
        // place of the new route.
        self.name.route.load(Ordering::Acquire)
    }

    fn place(&self) -> &Place {
        place_of(&self.name.shared, self.route())
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        // ORDERING: Acquire; as in `route`. A `rename` that comes later changes nothing.
        let route = self.name.route.swap(ENDED, Ordering::Acquire);
        let took_ns = clock::now_ns().saturating_sub(self.began_at_ns);
        place_of(&self.name.shared, route).count_end(self.outcome, took_ns);
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request").field("route", &self.place().name()).finish_non_exhaustive()
    }
}

/// Changes the route of a request: see [`Request::renamer`].
///
/// ```
/// # use volt_core as volt;
/// use volt::observe::Request;
///
/// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build()?;
/// runtime.block_on(async {
///     let request = Request::begin("GET", "/users/*");
///     request.renamer().rename("GET", "/users/{id}");
///     request.end(true);
/// });
/// let routes = runtime.handle().snapshot().routes;
/// assert_eq!((routes.len(), routes[0].name().as_str()), (1, "GET /users/{id}"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Renamer {
    shared: Arc<Shared>,
    /// The index of the route in the table of the runtime, or `ENDED`.
    route: Arc<AtomicUsize>,
}

impl Renamer {
    /// Changes the method and the path of the route under which the request is counted, also for
    /// the poll that is in progress. Earlier polls remain counted under the former route. Does
    /// nothing if the request has ended.
    ///
    /// The limits are those of [`Request::begin`].
    pub fn rename(&self, method: &str, path: &str) {
        let new = self.shared.routes.index_of(method, path);
        // ORDERING: Relaxed, here and for the decrements below; the end, which comes after them, is
        // published. A reader between the two counts the request in both places.
        place_of(&self.shared, new).begun.fetch_add(1, Ordering::Relaxed);
        // ORDERING: Release; pairs with the Acquire of the thread that counts the end, which
        // thereby also counts the begin above. Relaxed on failure: the request has ended.
        let renamed =
            self.route.fetch_update(Ordering::Release, Ordering::Relaxed, |route| (route != ENDED).then_some(new));
        let left = renamed.unwrap_or(new);
        place_of(&self.shared, left).begun.fetch_sub(1, Ordering::Relaxed);
        with_worker(|worker| {
            let cells = worker.filter(|worker| worker.is_of(&self.shared))?.cells();
            cells.change_route(left as u64 + 1, new as u64 + 1);
            Some(())
        });
    }
}

impl fmt::Debug for Renamer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Renamer")
    }
}

fn place_of(shared: &Shared, route: usize) -> &Place {
    shared.routes.get(route).expect("places are never freed")
}

/// A poll of a request on a worker: while this lives, the worker's cells have the route.
struct PolledHere<'a> {
    request: &'a Request,
    began_at_ns: u64,
    /// How long the task had waited for this poll, if no other request counts it. It is counted
    /// at the end of the poll, in which the route may change.
    delay_ns: Option<u64>,
    /// The route that the cells had before.
    former: u64,
}

impl<'a> PolledHere<'a> {
    /// Returns `None` if this thread is no worker of the request's runtime.
    fn begin(request: &'a Request) -> Option<Self> {
        let submitted_at_ns = current::with(|task| Some(task?.header().submitted_at_ns()));
        with_worker(|worker| {
            let cells = worker.filter(|worker| worker.is_of(&request.name.shared))?.cells();
            let delay_ns = submitted_at_ns.and_then(|at_ns| cells.take_delay(at_ns));
            let former = cells.set_route(request.route() as u64 + 1);
            Some(Self { request, began_at_ns: clock::now_ns(), delay_ns, former })
        })
    }
}

impl Drop for PolledHere<'_> {
    fn drop(&mut self) {
        with_worker(|worker| worker.map(|worker| worker.cells().set_route(self.former)));
        let took_ns = clock::now_ns().saturating_sub(self.began_at_ns);
        let place = self.request.place();
        // ORDERING: Relaxed, all; only statistics.
        if let Some(delay_ns) = self.delay_ns {
            place.delay_ns.fetch_add(delay_ns, Ordering::Relaxed);
        }
        place.busy_ns.fetch_add(took_ns, Ordering::Relaxed);
        if took_ns > place.longest_poll_ns.load(Ordering::Relaxed) {
            place.longest_poll_ns.fetch_max(took_ns, Ordering::Relaxed);
        }
    }
}
