//! The HTTP routes of a runtime: what the requests of each route cost, and how long they took.
//!
//! A *route* is a method and the path that a router matched, such as `GET /users/{id}`. It is never
//! the path of a request, of which there may be any number. `volt::axum` counts the requests of its
//! routers; other frameworks can count theirs.
//!
//! Invariants:
//! * BOUNDED: at most [`MAX_ROUTES`] routes per runtime. Those beyond are counted as one route with
//!   the method and the path `other`.
//! * COUNTERS ONLY GROW.

use serde::{Deserialize, Deserializer, Serialize};

use crate::bounded;
use crate::histogram::Histogram;

/// Maximum number of routes that a runtime counts separately.
pub const MAX_ROUTES: usize = 256;
/// The method and the path of the route in which requests of further routes are counted.
pub const OTHER: &str = "other";
/// The path of requests that no route matched.
pub const UNMATCHED: &str = "unmatched";

/// One route.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Route {
    /// `GET`, `POST`, …; [`OTHER`] for methods that HTTP does not define.
    pub method: String,
    /// The path with its parameters in braces: `/users/{id}`; with a star if only its beginning is
    /// known: `/files/*`; [`UNMATCHED`] if no route matched.
    pub path: String,
    /// Requests that are being handled now.
    pub active: u64,
    /// Requests that were answered with a status below 500.
    pub succeeded: u64,
    /// Requests that were answered with a status of 500 or above.
    pub failed: u64,
    /// Requests that ended without an answer: the client disconnected, the handler panicked, or
    /// a time limit outside the route dropped it.
    pub abandoned: u64,
    /// Time from the call of the handler to its response, without the body, of answered requests.
    pub duration: Histogram,
    /// Time that the handlers' polls took on workers, ns.
    pub busy_ns: u64,
    /// Time that the requests' tasks were ready to run and waited for a worker, ns: before the
    /// handler was called, and between its polls.
    pub delay_ns: u64,
    /// The longest poll of a handler, ns.
    pub longest_poll_ns: u64,
}

impl Route {
    /// Returns the method and the path: `GET /users/{id}`.
    ///
    /// ```
    /// use volt_telemetry::routes::Route;
    ///
    /// let route = Route { method: "GET".into(), path: "/users/{id}".into(), ..Route::default() };
    /// assert_eq!(route.name(), "GET /users/{id}");
    /// ```
    pub fn name(&self) -> String {
        format!("{} {}", self.method, self.path)
    }

    /// Returns the number of requests that have ended.
    pub fn ended(&self) -> u64 {
        self.succeeded.saturating_add(self.failed).saturating_add(self.abandoned)
    }
}

/// Deserializes the routes of a snapshot.
pub(crate) fn routes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Route>, D::Error> {
    bounded::list(deserializer, MAX_ROUTES + 1, |_| 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::Snapshot;

    #[test]
    fn more_routes_than_a_runtime_counts_are_refused() {
        let json = |count| serde_json::json!({ "routes": vec![Route::default(); count] }).to_string();
        let read = |count| serde_json::from_str::<Snapshot>(&json(count));
        assert_eq!(read(MAX_ROUTES + 1).unwrap().routes.len(), MAX_ROUTES + 1);
        assert!(read(MAX_ROUTES + 2).unwrap_err().to_string().contains("a list of more than 257"));
    }
}
