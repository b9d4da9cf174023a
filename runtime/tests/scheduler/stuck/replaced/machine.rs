//! The machine is the cause: the program was stopped, or no thread can be started.

use super::*;

/// Set in a child process that runs one test.
const IN_CHILD: &str = "VOLT_HEALING_CHILD";

fn child(test: &str) -> Option<Child> {
    if std::env::var_os(IN_CHILD).is_some() {
        return None;
    }
    let child = Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture"])
        .env(IN_CHILD, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    Some(child)
}

#[test]
#[cfg(target_os = "linux")]
fn a_sigstop_pause_blames_the_machine_and_no_task() {
    const STOPPED_FOR: Duration = Duration::from_millis(400);
    const STOPS: u64 = 5;
    let test = "stuck::replaced::machine::a_sigstop_pause_blames_the_machine_and_no_task";
    if let Some(mut child) = child(test) {
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut output = String::new();
        while !output.contains("works") {
            assert_ne!(stdout.read_line(&mut output).unwrap(), 0, "the child works: {output}");
        }
        let pid = rustix::process::Pid::from_raw(child.id() as i32).unwrap();
        // Several times, so that one of them falls into a check: in a debug build, the sentinel
        // waits for stacks half of the time.
        for stop in 1..=STOPS {
            rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
            std::thread::sleep(STOPPED_FOR);
            rustix::process::kill_process(pid, rustix::process::Signal::CONT).unwrap();
            while !output.contains(&format!("noticed {stop}\n")) {
                assert_ne!(stdout.read_line(&mut output).unwrap(), 0, "the child notices: {output}");
            }
        }
        stdout.read_to_string(&mut output).unwrap();
        assert!(child.wait().unwrap().success(), "{output}");
        return;
    }
    watched(|| {
        let runtime = runtime(2);
        let is_over = Arc::new(AtomicBool::new(false));
        // Polls that are long enough that the stop falls into one, and short enough to be no stall.
        let workers: Vec<_> = (0..4)
            .map(|_| {
                let is_over = is_over.clone();
                runtime.spawn(async move {
                    while !is_over.load(Ordering::Relaxed) {
                        std::thread::sleep(Duration::from_micros(700));
                        volt::task::yield_now().await;
                    }
                })
            })
            .collect();
        // And one task that computes for so long that the stop certainly falls into its poll, which
        // continues afterwards.
        let burner = {
            let is_over = is_over.clone();
            runtime.spawn(async move {
                while !is_over.load(Ordering::Relaxed) {
                    let began = cpu_time();
                    while cpu_time() - began < Duration::from_millis(30) {}
                    volt::task::yield_now().await;
                }
            })
        };
        wait_until(&runtime, |snapshot| snapshot.sentinel.checks > 2);
        let mut before = pauses(&runtime);
        println!("works");
        let stopped_for_ns = STOPPED_FOR.as_nanos() as u64;
        // On a busy machine, the wait for a processor may be the longer part.
        let machine = [Cause::Stopped, Cause::NotScheduled, Cause::Throttled];
        for stop in 1..=STOPS {
            let pauses_before = loop {
                std::thread::sleep(Duration::from_millis(1));
                let earlier = std::mem::replace(&mut before, pauses(&runtime));
                if before.1 - earlier.1 >= STOPPED_FOR / 2 {
                    break earlier.0;
                }
            };
            let paused = wait_until(&runtime, |snapshot| snapshot.sentinel.pauses > pauses_before);
            before = pauses(&runtime);
            println!("noticed {stop}");
            assert!(paused.sentinel.last_pause.is_some_and(|cause| machine.contains(&cause)), "{:?}", paused.sentinel);
        }
        // Not a synchronisation: any reaction comes within a few checks.
        std::thread::sleep(Duration::from_millis(100));
        let after = runtime.handle().snapshot();
        is_over.store(true, Ordering::Relaxed);
        workers.into_iter().chain([burner]).for_each(|worker| runtime.block_on(worker).unwrap());
        let is_charged = |incident: &&Incident| incident.for_ns >= stopped_for_ns && !machine.contains(&incident.cause);
        assert_eq!(after.incidents.latest.iter().find(is_charged), None, "{:#?}", after.incidents);
        assert_eq!(after.sentinel.capped, 0, "no storm of replacements");
    });
}

/// Returns how many pauses the sentinel has noticed, and the time after that was read.
fn pauses(runtime: &Runtime) -> (u64, Instant) {
    (runtime.handle().snapshot().sentinel.pauses, Instant::now())
}

/// Returns the processor time of this thread.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[test]
#[cfg(target_os = "linux")]
fn failed_spare_starts_are_counted_and_the_worker_resumes() {
    alone(|| {
        watched(|| {
            let runtime = builder(1)
                .sentinel_interval(Some(Duration::from_millis(10)))
                .incident_after(None)
                .thread_stack_size(512 << 20)
                .build()
                .unwrap();
            runtime.block_on(runtime.spawn(async {})).unwrap();
            // Room for ordinary allocations, not for one more stack. The size may be read while a
            // thread that starts has 128 MB more for a moment, because of how glibc lays out its
            // heap.
            let status = std::fs::read_to_string("/proc/self/status").unwrap();
            let size = status.lines().find_map(|line| line.strip_prefix("VmSize:")).unwrap();
            let size_kib: u64 = size.trim().trim_end_matches(" kB").parse().unwrap();
            let limit = size_kib * 1024 + (192 << 20);
            let limit = rustix::process::Rlimit { current: Some(limit), maximum: None };
            rustix::process::setrlimit(rustix::process::Resource::As, limit).unwrap();
            let (open, blocker) = block_all(&runtime, 1).pop().unwrap();
            let waiting = runtime.spawn(async { 5 });
            // Read as often as possible, so that some readings fall between a call and its failure.
            let mut failures = 0;
            while failures < 10 {
                let sentinel = runtime.handle().snapshot().sentinel;
                assert_eq!((sentinel.spare_calls, sentinel.spares_in_use), (0, 0), "no spare worker was started");
                failures = sentinel.spare_failures;
            }
            open.send(()).unwrap();
            runtime.block_on(blocker).unwrap();
            assert_eq!(runtime.block_on(waiting).unwrap(), 5);
            wait_until(&runtime, is_at_rest);
        });
    });
}
