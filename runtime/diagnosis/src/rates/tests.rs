//! Tests of rates between two handmade snapshots.

use volt_telemetry::snapshot::Tasks;

use super::*;

const SECOND: u64 = 1_000_000_000;

fn snapshot(at_ns: u64, polls: u64) -> Snapshot {
    let mut worker = Worker { polls, busy_ns: at_ns / 4, parked_ns: at_ns / 2, ..Worker::default() };
    (0..polls).for_each(|poll| worker.poll_time.record(1_000 + poll));
    let tasks = Tasks { spawned: polls, completed: polls / 2, cancelled: 1, panicked: 1, alive: 0 };
    Snapshot { runtime: "app".into(), at_ns, tasks, workers: vec![worker.clone(), worker], ..Snapshot::default() }
}

#[test]
fn counters_become_rates_over_the_programs_own_clock() {
    let rates = Rates::between(&snapshot(2 * SECOND, 100), &snapshot(4 * SECOND, 300)).unwrap();
    assert_eq!(rates.interval_ns, 2 * SECOND);
    assert_eq!(rates.workers[1].polls_per_second, 100.0);
    assert_eq!(rates.polls_per_second, 200.0);
    assert_eq!((rates.spawned_per_second, rates.ended_per_second), (100.0, 50.0));
}

#[test]
fn shares_are_of_the_interval_and_the_runtimes_are_the_mean() {
    let mut later = snapshot(4 * SECOND, 300);
    later.workers[1].busy_ns = 900 * SECOND;
    let rates = Rates::between(&snapshot(2 * SECOND, 100), &later).unwrap();
    assert_eq!(rates.workers[0].shares.busy_ratio, 0.25);
    assert_eq!(rates.workers[1].shares.busy_ratio, 1.0, "a torn reading is still a ratio");
    assert_eq!((rates.shares.busy_ratio, rates.shares.parked_ratio), (0.625, 0.5));
}

#[test]
fn quantiles_are_those_of_the_interval_alone() {
    let earlier = snapshot(2 * SECOND, 1_000);
    let mut later = snapshot(4 * SECOND, 1_000);
    assert_eq!(Rates::between(&earlier, &later).unwrap().poll_time.p50_ns, None);
    (0..10).for_each(|_| later.workers[0].poll_time.record(1 << 20));
    let rates = Rates::between(&earlier, &later).unwrap();
    assert_eq!(rates.poll_time.count, 10);
    assert_eq!(rates.poll_time.mean_ns, Some(1 << 20));
    assert!(rates.poll_time.p50_ns.unwrap() >= 1 << 20, "the thousand short polls came before");
    assert_eq!(rates.workers[1].poll_time, Quantiles::default());
}

#[test]
fn a_runtime_that_was_built_anew_has_no_rates() {
    let earlier = snapshot(2 * SECOND, 100);
    let later = Snapshot { started_at_ns: 3 * SECOND, ..snapshot(4 * SECOND, 3) };
    assert_eq!(Rates::between(&earlier, &later), None);
    assert_eq!(Rates::between(&earlier, &earlier), None, "no time has passed");
}

#[test]
fn rates_cover_only_runtimes_present_in_both_snapshots() {
    let program = |pid, runtimes| Program { pid, runtimes, ..Program::default() };
    let exporter = Snapshot { runtime: "exporter".into(), ..snapshot(4 * SECOND, 5) };
    let later = program(7, vec![exporter, snapshot(4 * SECOND, 300)]);
    let rates = Rates::of_program(&program(7, vec![snapshot(2 * SECOND, 100)]), &later);
    assert_eq!(rates[0], None);
    assert_eq!(rates[1].as_ref().unwrap().polls_per_second, 200.0);
    let other = program(8, vec![snapshot(2 * SECOND, 100)]);
    assert_eq!(Rates::of_program(&other, &later), [None, None], "another program by the same name");
}

#[test]
fn a_worker_missing_from_the_first_snapshot_starts_at_zero() {
    let mut earlier = snapshot(2 * SECOND, 100);
    earlier.workers.pop();
    let rates = Rates::between(&earlier, &snapshot(4 * SECOND, 300)).unwrap();
    assert_eq!(rates.workers[1].polls_per_second, 150.0);
}

#[test]
fn half_of_the_workers_may_search_and_one_alone_may_too() {
    assert_eq!([1, 2, 3, 4, 64].map(searchers_max), [1, 1, 2, 2, 32]);
}

#[test]
fn the_largest_value_is_not_below_the_mean() {
    let mut histogram = Histogram::default();
    histogram.record(1_023);
    let quantiles = Quantiles::of(&histogram);
    assert_eq!((quantiles.mean_ns, quantiles.max_ns), (Some(1_023), Some(1_023)));
}

#[test]
fn inactive_spares_do_not_lower_the_mean() {
    let (earlier, mut later) = (snapshot(2 * SECOND, 100), snapshot(4 * SECOND, 300));
    let spare = Worker { is_spare: true, duty: Duty::Off, ..Worker::default() };
    later.workers.push(spare);
    let mean = Rates::between(&earlier, &later).unwrap().shares.busy_ratio;
    assert_eq!(mean, 0.25);
    later.workers[2].duty = Duty::Present;
    assert!(Rates::between(&earlier, &later).unwrap().shares.busy_ratio < mean, "an active one counts");
    assert_eq!(worker_count(&later), 2);
}

#[test]
fn a_thread_without_kernel_statistics_has_no_cpu_ratio() {
    let (mut earlier, mut later) = (snapshot(2 * SECOND, 1), snapshot(4 * SECOND, 2));
    (earlier.workers[0].cpu_ns, later.workers[0].cpu_ns) = (Some(SECOND), Some(2 * SECOND));
    later.workers[0].run_delay_ns = Some(SECOND);
    let rates = Rates::between(&earlier, &later).unwrap();
    assert_eq!((rates.workers[0].cpu_ratio, rates.workers[1].cpu_ratio), (Some(0.5), None));
    assert_eq!(rates.workers[0].run_delay_ratio, None, "not known before");
}

#[test]
fn locations_are_found_by_name_in_any_order() {
    let blame = |at: &str, ns: u64| Blame { spawned_at: at.into(), delay_caused_ns: ns, stalls: 1, ..Blame::default() };
    let (mut earlier, mut later) = (snapshot(2 * SECOND, 1), snapshot(4 * SECOND, 2));
    earlier.blame = vec![blame("a", 9 * SECOND), blame("b", SECOND)];
    later.blame = vec![blame("b", 11 * SECOND), blame("a", 9 * SECOND), blame("c", SECOND)];
    let rates = Rates::between(&earlier, &later).unwrap().locations;
    let caused: Vec<_> = rates.iter().map(|rates| (rates.spawned_at.as_str(), rates.delayed_by_it)).collect();
    assert_eq!(caused, [("b", 5.0), ("a", 0.0), ("c", 0.5)]);
    assert_eq!(rates[2].stalls_per_second, 0.5);
}

#[test]
fn fields_missing_in_one_snapshot_have_no_rates() {
    let (earlier, later) = (snapshot(2 * SECOND, 100), snapshot(4 * SECOND, 300));
    let mut cut = earlier.clone();
    cut.incomplete = vec!["poll_time".into(), "schedule_delay".into()];
    cut.workers.iter_mut().for_each(|worker| worker.poll_time = Histogram::default());
    let rates = Rates::between(&cut, &later).unwrap();
    assert_eq!((rates.poll_time, rates.workers[0].poll_time), (Quantiles::default(), Quantiles::default()));
    assert_eq!((rates.poll_time_histogram.count(), rates.polls_per_second), (0, 200.0));
    cut.incomplete.push("workers".into());
    cut.workers.clear();
    assert_eq!(Rates::between(&cut, &later), None);
    let later_cut = Snapshot { incomplete: vec!["workers".into()], workers: Vec::new(), ..later };
    assert_eq!(Rates::between(&earlier, &later_cut), None);
}

#[test]
fn tasks_in_every_queue_of_a_worker_are_in_its_own_queues() {
    let worker = Worker { ring_len: 1, batch_len: 20, inbox_len: 300, is_lifo_filled: true, ..Worker::default() };
    let snapshot = Snapshot { workers: vec![worker.clone(), worker], ..Snapshot::default() };
    assert_eq!(local_queue_len(&snapshot), 2 * 322);
}

#[test]
fn the_requests_of_a_route_become_rates_of_the_interval() {
    let route = |path: &str, requests: u64, took_ns: u64| {
        let mut duration = Histogram::default();
        (0..requests).for_each(|_| duration.record(took_ns));
        let (method, path) = ("GET".to_owned(), path.to_owned());
        Route { method, path, succeeded: requests, failed: 1, busy_ns: 1_000 * requests, duration, ..Route::default() }
    };
    let earlier = Snapshot { at_ns: 0, routes: vec![route("/a", 100, 1_000)], ..Snapshot::default() };
    let mut now = route("/a", 100, 1_000);
    now.duration.merge(&route("", 50, 1_000_000).duration);
    (now.succeeded, now.failed, now.busy_ns) = (150, 3, now.busy_ns + 500_000_000);
    let later = Snapshot { at_ns: 1_000_000_000, routes: vec![route("/new", 9, 5), now], ..Snapshot::default() };
    let rates = Rates::between(&earlier, &later).unwrap().routes;
    assert_eq!((rates[0].path.as_str(), rates[0].requests_per_second), ("/new", 10.0));
    assert_eq!((rates[1].requests_per_second, rates[1].failed_per_second), (52.0, 2.0));
    assert_eq!((rates[1].busy_workers, rates[1].duration.count), (0.5, 50));
    assert!(rates[1].duration.p50_ns.unwrap().abs_diff(1_000_000) < 40_000, "only those of the interval");
    // A snapshot that was cut lacks them, and the next one must not seem to have them all anew.
    let mut cut = earlier.clone();
    cut.incomplete = vec!["routes.duration".into()];
    cut.routes[0].duration = Histogram::default();
    let rates = Rates::between(&cut, &later).unwrap().routes;
    assert_eq!((rates[1].requests_per_second, rates[1].duration), (52.0, Quantiles::default()));
    cut.incomplete.push("routes".into());
    cut.routes.clear();
    assert_eq!(Rates::between(&cut, &later).unwrap().routes, []);
}
