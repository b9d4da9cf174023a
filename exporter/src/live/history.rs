//! The recent past of each runtime, for the charts of the live page: someone who opens the page
//! after a problem sees what came before.
//!
//! The exporter takes a snapshot every [`STEP`], also while no browser shows the page, and adds a
//! [`Point`] for each runtime. The page requests all points when it opens (`/live/history.json`),
//! and from then on adds the point of each response that it gets (`/live.json`).
//!
//! Bounds: [`POINTS_MAX`] points of [`RUNTIMES_MAX`] runtimes, about 1.5 MB. A runtime that was
//! shut down stays until its points are older than [`KEPT`], or until another needs its place.

use std::collections::VecDeque;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;
use volt_diagnosis::rates::Rates;
use volt_telemetry::snapshot::{Snapshot, Worker};

/// Time between two points.
pub(crate) const STEP: Duration = Duration::from_secs(5);
/// How far the history goes back.
const KEPT: Duration = Duration::from_secs(600);
const POINTS_MAX: usize = (KEPT.as_secs() / STEP.as_secs()) as usize;
/// Runtimes beyond these have no history until others have ended.
const RUNTIMES_MAX: usize = 64;
/// A runtime without points for longer has ended, or its program does not reply.
const ENDED_AFTER: Duration = Duration::from_secs(3 * STEP.as_secs());

/// The values of a runtime that the charts show. `None` if there is no rate yet, or no value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Point {
    /// When it was made: seconds since 1970.
    at: f64,
    polls_per_second: Option<f64>,
    busy_percent: Option<f64>,
    searching_percent: Option<f64>,
    idle_percent: Option<f64>,
    delay_p50_ns: Option<u64>,
    delay_p99_ns: Option<u64>,
    poll_p50_ns: Option<u64>,
    poll_p99_ns: Option<u64>,
    in_flight_ns: u64,
    global_queue_len: u64,
    local_queues_len: u64,
    tasks_stolen_per_second: Option<f64>,
    parks_per_second: Option<f64>,
}

/// The points of all runtimes. See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct History(Vec<Past>);

/// The points of one runtime, the latest last.
#[derive(Debug, Serialize)]
struct Past {
    pid: u32,
    runtime: String,
    started_at_ns: u64,
    points: VecDeque<Point>,
}

impl Point {
    /// Returns the values of a snapshot, with the rates since the one before.
    pub(crate) fn of(runtime: &Snapshot, rates: Option<&Rates>, now: SystemTime) -> Self {
        let rate = |of: fn(&Rates) -> f64| rates.map(of);
        let percent = |of: fn(&Rates) -> f64| rates.map(|rates| 100.0 * of(rates));
        let time = |of: fn(&Rates) -> Option<u64>| rates.and_then(of);
        let in_worker = |worker: &Worker| {
            u64::from(worker.ring_len)
                + u64::from(worker.batch_len)
                + u64::from(worker.inbox_len)
                + u64::from(worker.is_lifo_filled)
        };
        let in_flight = runtime.workers.iter().filter_map(|worker| Some(worker.in_flight.as_ref()?.for_ns));
        Self {
            at: seconds(now),
            polls_per_second: rate(|rates| rates.polls_per_second),
            busy_percent: percent(|rates| rates.shares.busy_ratio),
            searching_percent: percent(|rates| rates.shares.searching_ratio),
            idle_percent: percent(|rates| rates.shares.parked_ratio + rates.shares.driver_ratio),
            delay_p50_ns: time(|rates| rates.schedule_delay.p50_ns),
            delay_p99_ns: time(|rates| rates.schedule_delay.p99_ns),
            poll_p50_ns: time(|rates| rates.poll_time.p50_ns),
            poll_p99_ns: time(|rates| rates.poll_time.p99_ns),
            in_flight_ns: in_flight.max().unwrap_or(0),
            global_queue_len: runtime.global_queue.len,
            local_queues_len: runtime.workers.iter().map(in_worker).sum(),
            tasks_stolen_per_second: rate(|rates| rates.tasks_stolen_per_second),
            parks_per_second: rate(|rates| rates.parks_per_second),
        }
    }
}

impl History {
    /// Adds the point of a runtime, if its last one is old enough.
    pub(crate) fn add(&mut self, pid: u32, runtime: &Snapshot, point: Point) {
        // A clock that is set far back begins a new history. Otherwise the runtimes that were shut
        // down would stay until it reaches their last point again.
        self.0.retain(|past| past.silence(point.at) < KEPT);
        let is_it = |past: &&mut Past| {
            (past.pid, &past.runtime, past.started_at_ns) == (pid, &runtime.runtime, runtime.started_at_ns)
        };
        let Some(past) = self.0.iter_mut().find(is_it) else {
            self.make_room(point.at);
            if self.0.len() < RUNTIMES_MAX {
                let (runtime, started_at_ns) = (runtime.runtime.clone(), runtime.started_at_ns);
                self.0.push(Past { pid, runtime, started_at_ns, points: VecDeque::from([point]) });
            }
            return;
        };
        // The clock may be set back.
        if past.points.back().is_some_and(|last| (0.0..STEP.as_secs_f64() * 0.9).contains(&(point.at - last.at))) {
            return;
        }
        if past.points.len() == POINTS_MAX {
            past.points.pop_front();
        }
        past.points.push_back(point);
    }

    /// If all places are taken, drops the runtime that ended first.
    fn make_room(&mut self, now: f64) {
        if self.0.len() < RUNTIMES_MAX {
            return;
        }
        let ended =
            self.0.iter().map(|past| past.silence(now)).enumerate().filter(|(_, silence)| *silence > ENDED_AFTER);
        if let Some((index, _)) = ended.max_by_key(|(_, silence)| *silence) {
            self.0.remove(index);
        }
    }

    /// Returns all points as JSON.
    pub(crate) fn json(&self) -> String {
        serde_json::to_string(&self.0).expect("plain data has a JSON form")
    }
}

impl Past {
    /// Returns the time between the last point and `now`, which may be before it.
    fn silence(&self, now: f64) -> Duration {
        let seconds = self.points.back().map(|last| (now - last.at).abs());
        seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()).unwrap_or(Duration::MAX)
    }
}

fn seconds(now: SystemTime) -> f64 {
    now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(second: u64) -> Point {
        Point { at: second as f64, ..Point::default() }
    }

    fn runtime(name: &str) -> Snapshot {
        Snapshot { runtime: name.into(), ..Snapshot::default() }
    }

    #[test]
    fn the_history_is_ten_minutes_long_with_a_point_every_5_s() {
        let mut history = History::default();
        (0..2_000).for_each(|second| history.add(7, &runtime("main"), point(second)));
        let [past] = &history.0[..] else { panic!("one runtime") };
        let at: Vec<_> = past.points.iter().map(|point| point.at).collect();
        assert_eq!((at.len(), at[0], at[1], at[119]), (120, 1_400.0, 1_405.0, 1_995.0));
    }

    #[test]
    fn runtimes_are_distinguished_and_their_number_is_bounded() {
        let mut history = History::default();
        for pid in 0..100 {
            history.add(pid, &runtime("main"), point(1));
        }
        history.add(0, &runtime("main"), point(11));
        assert_eq!((history.0.len(), history.0[0].points.len()), (RUNTIMES_MAX, 2));
        // The others have sent nothing for longer than the history goes back.
        history.add(0, &runtime("other"), point(605));
        let left: Vec<_> = history.0.iter().map(|past| (past.pid, past.runtime.as_str())).collect();
        assert_eq!(left, [(0, "main"), (0, "other")]);
    }

    #[test]
    fn a_new_runtime_takes_the_place_of_one_that_has_ended() {
        let mut history = History::default();
        for pid in 0..RUNTIMES_MAX as u32 {
            history.add(pid, &runtime("main"), point(u64::from(pid.min(2))));
        }
        for pid in 2..RUNTIMES_MAX as u32 {
            history.add(pid, &runtime("main"), point(30));
        }
        for pid in [100, 101, 102] {
            history.add(pid, &runtime("main"), point(30));
        }
        let has = |pid: u32| history.0.iter().any(|past| past.pid == pid);
        assert_eq!([0, 1, 2, 100, 101, 102].map(has), [false, false, true, true, true, false]);
        assert_eq!(history.0.len(), RUNTIMES_MAX);
    }

    #[test]
    fn a_clock_that_is_set_back_does_not_stop_the_history() {
        let mut history = History::default();
        history.add(7, &runtime("main"), point(5_000));
        history.add(7, &runtime("main"), point(4_900));
        assert_eq!(history.0[0].points.len(), 2);
    }

    #[test]
    fn a_clock_that_is_set_far_back_begins_a_new_history() {
        let mut history = History::default();
        history.add(6, &runtime("ended"), point(5_000));
        history.add(7, &runtime("main"), point(5_000));
        history.add(7, &runtime("main"), point(100));
        let left: Vec<_> = history.0.iter().map(|past| (past.pid, past.points.len())).collect();
        assert_eq!(left, [(7, 1)]);
    }
}
