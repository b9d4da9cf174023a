//! Tests of when a long poll becomes an incident, and when it is recorded.

use super::*;

/// The steps of the sentinel, one by one, while the only worker is in its second poll, which
/// blocks.
#[test]
#[cfg(all(target_os = "linux", not(miri)))]
fn a_finished_poll_opens_no_incident_for_the_next_poll() {
    use std::sync::mpsc;

    const STUCK_FOR_NS: u64 = 20_000_000;
    let runtime = crate::builder::Builder::new_multi_thread()
        .worker_threads(1)
        .sentinel_interval(None)
        .control_socket(false)
        .build()
        .unwrap();
    let shared = runtime.handle().shared();
    runtime.block_on(runtime.spawn(async {})).unwrap();
    let (open, is_open) = mpsc::channel::<()>();
    let (entered, has_entered) = mpsc::channel();
    let stuck = runtime.spawn(async move {
        entered.send(()).unwrap();
        assert!(is_open.recv().is_err(), "nothing is sent");
    });
    has_entered.recv().unwrap();
    let (mut stalls, now_ns) = (Stalls::new(shared), clock::now_ns());
    let mut incidents_of = |poll_seq: u64, now_ns: u64| {
        stalls.enter_poll(0, poll_seq, now_ns);
        assert!(stalls.watched[0].thread.is_none());
        stalls.handle_stuck(0, STUCK_FOR_NS, now_ns);
        stalls.handle_stuck(0, STUCK_FOR_NS, now_ns + 2 * SAMPLES_APART_NS);
        assert!(stalls.watched[0].thread.is_some());
        shared.sentinel.incidents.telemetry().total()
    };
    let poll_seq = shared.workers.remotes[0].cells.poll_seq();
    assert_eq!(incidents_of(poll_seq - 2, now_ns), 0);
    assert_eq!(incidents_of(poll_seq, now_ns), 1);
    drop(open);
    runtime.block_on(stuck).unwrap();
}

/// Two polls of one kind within a second: the second one is only counted, until it lasts long
/// enough to be an outage.
#[test]
#[cfg(all(target_os = "linux", not(miri)))]
fn a_suppressed_incident_is_recorded_if_it_lasts() {
    use std::sync::mpsc;

    const MS: u64 = 1_000_000;
    let runtime = crate::builder::Builder::new_multi_thread()
        .worker_threads(1)
        .sentinel_interval(None)
        .control_socket(false)
        .build()
        .unwrap();
    let shared = runtime.handle().shared();
    let (mut stalls, now_ns) = (Stalls::new(shared), clock::now_ns());
    for is_second in [false, true] {
        let (open, is_open) = mpsc::channel::<()>();
        let (entered, has_entered) = mpsc::channel();
        let stuck = runtime.spawn(async move {
            entered.send(()).unwrap();
            assert!(is_open.recv().is_err(), "nothing is sent");
        });
        has_entered.recv().unwrap();
        // While the thread is about to sleep it is in no system call, which would be a different
        // cause.
        let id = u32::try_from(shared.workers.remotes[0].cells.thread_id.get()).unwrap();
        while !ThreadProbe::new(id).sample().unwrap().is_blocked() {
            std::thread::yield_now();
        }
        let now_ns = now_ns + 100 * MS * u64::from(is_second);
        stalls.enter_poll(0, shared.workers.remotes[0].cells.poll_seq(), now_ns);
        stalls.handle_stuck(0, 20 * MS, now_ns);
        stalls.handle_stuck(0, 22 * MS, now_ns + 2 * MS);
        let reported = shared.sentinel.incidents.telemetry();
        assert_eq!((reported.total(), reported.latest.len()), (1 + u64::from(is_second), 1), "{reported:#?}");
        if is_second {
            stalls.handle_stuck(0, 90 * MS, now_ns + 70 * MS);
            assert_eq!(shared.sentinel.incidents.telemetry().latest.len(), 1, "it is no outage yet");
            stalls.handle_stuck(0, 150 * MS, now_ns + 130 * MS);
            let reported = shared.sentinel.incidents.telemetry();
            assert_eq!((reported.total(), reported.latest.len()), (2, 2), "counted once: {reported:#?}");
            let (first, late) = (&reported.latest[0], &reported.latest[1]);
            assert_eq!((late.cause, &late.spawned_at), (first.cause, &first.spawned_at));
            assert_ne!(late.task_id, first.task_id);
            assert!(!late.is_over && late.for_ns == 150 * MS, "{late:#?}");
        }
        drop(open);
        runtime.block_on(stuck).unwrap();
        stalls.close(0, now_ns + 200 * MS);
    }
    assert!(shared.sentinel.incidents.telemetry().latest.iter().all(|incident| incident.is_over));
}

/// Waits for the lock. A function, so that the stack has it.
#[cfg(all(target_os = "linux", not(miri)))]
#[inline(never)]
fn wait_for_lock(lock: &std::sync::Mutex<()>) -> std::sync::MutexGuard<'_, ()> {
    lock.lock().unwrap()
}

/// Sleeps until something is sent.
#[cfg(all(target_os = "linux", not(miri)))]
#[inline(never)]
fn sleep_until(open: &std::sync::mpsc::Receiver<()>) {
    while open.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// A poll that waits long for a lock and then sleeps briefly while it holds the lock: the sleep is
/// not to blame until it has lasted longer than the wait.
#[test]
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
fn the_longest_cause_is_that_of_the_incident_not_the_last() {
    use std::sync::{Mutex, mpsc};

    const MS: u64 = 1_000_000;
    const SECOND: u64 = 1_000_000_000;
    let builder = crate::builder::Builder::new_multi_thread().worker_threads(1).control_socket(false);
    let runtime = builder.sentinel_interval(None).build().unwrap();
    let shared = runtime.handle().shared();
    let lock = Arc::new(Mutex::new(()));
    let held = lock.lock().unwrap();
    let ((entered, has_entered), (open, is_open)) = (mpsc::channel(), mpsc::channel());
    let stuck = runtime.spawn({
        let lock = lock.clone();
        async move {
            entered.send(()).unwrap();
            let _guard = wait_for_lock(&lock);
            sleep_until(&is_open);
        }
    });
    has_entered.recv().unwrap();
    let (mut stalls, began_at_ns) = (Stalls::new(shared), clock::now_ns());
    let poll_seq = shared.workers.remotes[0].cells.poll_seq();
    stalls.enter_poll(0, poll_seq, began_at_ns);
    let mut incident = |for_ns: u64| {
        stalls.handle_stuck(0, for_ns, began_at_ns + for_ns);
        stalls.update_durations(began_at_ns + for_ns);
        shared.sentinel.incidents.telemetry().latest.pop()
    };
    // The times are invented, the samples are real: on a busy machine the thread may also wait for
    // a processor.
    let mut for_ns = 20 * MS;
    let mut sampled_until = |step_ns: u64, is_so: &dyn Fn(&Incident) -> bool| loop {
        for_ns += step_ns;
        match incident(for_ns).filter(is_so) {
            Some(incident) => break incident,
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    // Functions of this crate are never those of an application, so there is no suspect line here.
    let is_in = |incident: &Incident, function: &str| {
        incident.stack.iter().any(|frame| frame.function.as_deref().is_some_and(|found| found.contains(function)))
    };
    let time_of = |incident: &Incident, cause: Cause| {
        incident.causes.iter().find(|part| part.cause == cause).map_or(0, |part| part.for_ns)
    };
    sampled_until(20 * SECOND, &|incident| incident.cause == Cause::Lock);
    // The thread that resolves stacks needs a while, in which the invented clock stands still.
    let waits = sampled_until(0, &|incident| is_in(incident, "wait_for_lock"));
    assert!(waits.wait_channel.is_none_or(|channel| channel.contains("futex")));
    drop(held);
    let sleeps = sampled_until(SECOND / 2, &|incident| time_of(incident, Cause::Sleep) > 0);
    assert!(sleeps.cause == Cause::Lock && is_in(&sleeps, "wait_for_lock"), "{sleeps:#?}");
    assert!(time_of(&sleeps, Cause::Lock) > time_of(&sleeps, Cause::Sleep), "{:?}", sleeps.causes);
    assert_eq!(sleeps.causes.iter().map(|part| part.for_ns).sum::<u64>(), sleeps.for_ns);
    sampled_until(20 * SECOND, &|incident| incident.cause == Cause::Sleep);
    sampled_until(0, &|incident| is_in(incident, "sleep_until"));
    open.send(()).unwrap();
    runtime.block_on(stuck).unwrap();
    stalls.close(0, began_at_ns + for_ns + SECOND);
    let over = shared.sentinel.incidents.telemetry().latest.pop().unwrap();
    assert!(over.is_over && over.for_ns == for_ns + SECOND, "{over:#?}");
}

/// The thread may have been in a system call that no signal interrupts.
#[test]
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
fn a_stack_that_was_missed_is_taken_later_in_the_poll() {
    use std::sync::mpsc;

    const SECOND: u64 = 1_000_000_000;
    let builder = crate::builder::Builder::new_multi_thread().worker_threads(1).control_socket(false);
    let runtime = builder.sentinel_interval(None).build().unwrap();
    let shared = runtime.handle().shared();
    let ((entered, has_entered), (open, is_open)) = (mpsc::channel(), mpsc::channel());
    let stuck = runtime.spawn(async move {
        entered.send(()).unwrap();
        sleep_until(&is_open);
    });
    has_entered.recv().unwrap();
    let (mut stalls, began_at_ns) = (Stalls::new(shared), clock::now_ns());
    stalls.enter_poll(0, shared.workers.remotes[0].cells.poll_seq(), began_at_ns);
    // As in the test above, the times are invented, and the samples are real.
    let mut for_ns = SECOND;
    let mut sampled_until = |step_ns: u64, is_so: &dyn Fn(&Incident) -> bool| loop {
        for_ns += step_ns;
        stalls.handle_stuck(0, for_ns, began_at_ns + for_ns);
        stalls.update_durations(began_at_ns + for_ns);
        match shared.sentinel.incidents.telemetry().latest.pop().filter(is_so) {
            Some(incident) => break incident,
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    let has_stack = |incident: &Incident| {
        let is_in = |function: &str| function.contains("sleep_until");
        incident.stack.iter().any(|frame| frame.function.as_deref().is_some_and(is_in))
    };
    let sleeps = |incident: &Incident| {
        let is_last = shared.sentinel.incidents.last_cause(incident.id) == Some(Cause::Sleep);
        is_last && incident.cause == Cause::Sleep && has_stack(incident)
    };
    let id = sampled_until(1_000 * SECOND, &sleeps).id;
    // As if the thread had not provided it.
    shared.sentinel.incidents.miss(id, Cause::Sleep, "late".to_owned(), false);
    let missed = sampled_until(0, &|_| true);
    assert!(missed.stack.is_empty() && missed.stack_error.is_none(), "{missed:#?}");
    sampled_until(1_000 * SECOND, &sleeps);
    open.send(()).unwrap();
    runtime.block_on(stuck).unwrap();
    stalls.close(0, began_at_ns + for_ns);
}

#[test]
fn a_few_polls_do_not_establish_a_usual_duration() {
    const STALL_NS: u64 = 40_000_000;
    let mut polls = Histogram::default();
    (1..USUAL_FROM_POLLS).for_each(|_| polls.record(STALL_NS));
    assert_eq!(usual_ns(&polls), 0);
    polls.record(STALL_NS);
    assert!(usual_ns(&polls) > 3 * STALL_NS);
}
