//! How workers sleep: the spin before a sleep, and the time-out of a park.

use super::*;

#[test]
fn tasks_before_during_and_after_a_spin_are_not_lost() {
    watched(|| {
        let limit = Duration::from_micros(20);
        let runtime = builder(2).park_spin(ParkSpin::Adaptive { at_most: limit }).build().unwrap();
        // In a row, so that all get used to short waits. Then pauses that end about when a spin
        // does, or later.
        for round in 0..6_000u32 {
            let answer = runtime.block_on(async {
                let task = volt::spawn(async move { volt::task::spawn_blocking(move || round).await.unwrap() });
                task.await.unwrap()
            });
            assert_eq!(answer, round);
            runtime.block_on(runtime.spawn(async {})).unwrap();
            if round % 20 >= 15 {
                spin(limit / 4 * (round % 8));
            }
        }
    });
}

#[test]
fn park_spin_is_counted_and_park_spin_off_disables_it() {
    watched(|| {
        let spins = |runtime: &Runtime| -> u64 {
            let workers = runtime.handle().snapshot().workers;
            workers.iter().map(|worker| worker.spins_helped + worker.spins_in_vain).sum()
        };
        let round = |runtime: &Runtime| runtime.block_on(runtime.spawn(async {})).unwrap();
        let never = builder(2).park_spin(ParkSpin::Off).build().unwrap();
        (0..1_000).for_each(|_| round(&never));
        assert_eq!(spins(&never), 0);
        if std::thread::available_parallelism().is_ok_and(|processors| processors.get() > 1) {
            let runtime = builder(2).build().unwrap();
            while spins(&runtime) == 0 {
                (0..1_000).for_each(|_| round(&runtime));
            }
        }
    });
}

#[test]
fn the_park_time_out_catches_nothing() {
    watched(|| {
        // Longer than a busy machine keeps a thread off its processors between publishing work and
        // waking a worker for it, which is indistinguishable from here.
        let timeout = Duration::from_millis(100);
        let runtime = builder(3).park_timeout(Some(timeout)).max_park_timeout(timeout).build().unwrap();
        for round in 0..2_000u64 {
            let task = runtime.spawn(async move {
                if round % 50 == 0 {
                    volt::time::sleep(Duration::from_millis(1)).await;
                }
                yield_now().await;
                volt::spawn(async {}).await.unwrap();
            });
            runtime.block_on(task).unwrap();
        }
        let time_outs = || at_rest(&runtime).workers.iter().map(|worker| worker.unparks.timeout).sum::<u64>();
        let before = time_outs();
        while time_outs() < before + 3 {
            std::thread::yield_now();
        }
        let rescues: u64 = at_rest(&runtime).workers.iter().map(|worker| worker.lost_wakeup_rescues).sum();
        assert_eq!(rescues, 0);
    });
}

#[test]
fn park_timeouts_back_off_until_only_one_worker_keeps_them() {
    watched(|| {
        // 1, 2, 4, 8 and 16 ms, and then 32 ms for the worker in the driver and none for the
        // others.
        let (first, last) = (Duration::from_millis(1), Duration::from_millis(32));
        let runtime = builder(4).park_timeout(Some(first)).max_park_timeout(last).build().unwrap();
        let time_outs = || -> Vec<u64> {
            runtime.handle().snapshot().workers.iter().map(|worker| worker.unparks.timeout).collect()
        };
        while time_outs().into_iter().max() < Some(12) {
            std::thread::yield_now();
        }
        let counts = time_outs();
        let keeper = (0..4).find(|&worker| counts[worker] >= 12).unwrap();
        let of_others = |counts: Vec<u64>| -> Vec<u64> {
            counts.into_iter().enumerate().filter(|&(worker, _)| worker != keeper).map(|(_, count)| count).collect()
        };
        assert!(of_others(counts.clone()).iter().all(|&count| count <= 5), "{counts:?}");
        // A worker that is woken for work begins anew.
        runtime.block_on(runtime.spawn(async {})).unwrap();
        while of_others(time_outs()) == of_others(counts.clone()) {
            std::thread::yield_now();
        }
        assert_eq!(at_rest(&runtime).workers.iter().map(|worker| worker.lost_wakeup_rescues).sum::<u64>(), 0);
    });
}

#[test]
fn a_timer_that_is_due_makes_no_worker_spin() {
    watched(|| {
        let runtime = runtime(8);
        let stop = Arc::new(AtomicBool::new(false));
        // Other threads want the processors, so that the kernel is late to wake the worker that
        // sleeps for the timer.
        let others: Vec<_> = (0..4)
            .map(|_| {
                let stop = stop.clone();
                std::thread::spawn(move || while !stop.load(Ordering::Relaxed) {})
            })
            .collect();
        let sleeper = |n: u64| async move {
            for round in 0..40 {
                volt::time::sleep(Duration::from_micros(500 + (n * 37 + round * 91) % 3_000)).await;
                volt::spawn(async { spin(Duration::from_micros(50)) }).await.unwrap();
            }
        };
        let tasks: Vec<_> = (0..20).map(|n| runtime.spawn(sleeper(n))).collect();
        tasks.into_iter().for_each(|task| runtime.block_on(task).unwrap());
        stop.store(true, Ordering::Relaxed);
        others.into_iter().for_each(|other| other.join().unwrap());
        let workers = at_rest(&runtime).workers;
        let sum = |of: fn(&volt::telemetry::Worker) -> u64| workers.iter().map(of).sum::<u64>();
        let (ticks, polls, parks) =
            (sum(|worker| worker.ticks), sum(|worker| worker.polls), sum(|worker| worker.parks));
        // A turn ends in a park, or its budget was used up, or it detected at the last moment that
        // it was needed.
        assert!(ticks <= 2 * (polls + parks), "{ticks} turns for {polls} polls and {parks} parks");
    });
}
