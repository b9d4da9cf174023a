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
fn a_sigstop_pause_blames_the_machine_and_replaces_no_worker() {
    const STOPPED_FOR: Duration = Duration::from_millis(400);
    let test = "stuck::healing::machine::a_sigstop_pause_blames_the_machine_and_replaces_no_worker";
    if let Some(mut child) = child(test) {
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (lines, printed) = mpsc::channel();
        std::thread::spawn(move || stdout.lines().for_each(|line| lines.send(line.unwrap() + "\n").unwrap()));
        let mut output = String::new();
        while !output.contains("works") {
            output += &printed.recv().expect("the child works");
        }
        let pid = rustix::process::Pid::from_raw(child.id() as i32).unwrap();
        // The sentinel may be in the middle of a check during the first stop, and not notice it.
        while !output.contains("noticed") {
            rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
            std::thread::sleep(STOPPED_FOR);
            rustix::process::kill_process(pid, rustix::process::Signal::CONT).unwrap();
            while let Ok(line) = printed.recv_timeout(Duration::from_secs(1)) {
                output += &line;
            }
            assert!(output.contains("noticed") || child.try_wait().unwrap().is_none(), "{output}");
        }
        output.extend(printed);
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
        println!("works");
        let stopped = wait_until(&runtime, |snapshot| snapshot.sentinel.pauses > 0);
        println!("noticed");
        std::thread::sleep(Duration::from_millis(100));
        let after = runtime.handle().snapshot();
        is_over.store(true, Ordering::Relaxed);
        workers.into_iter().chain([burner]).for_each(|worker| runtime.block_on(worker).unwrap());
        // On a busy machine, the wait for a processor may be the longer part. A stop that the
        // sentinel did not notice, because it waited for a stack at that time, may be attributed to
        // such a wait, or to nothing, but not to the task.
        let machine = [Cause::Stopped, Cause::NotScheduled, Cause::Throttled];
        let blames_task = |cause| !machine.contains(&cause) && cause != Cause::Unknown;
        // Later, other programs may keep a poll from the processors for as long as that.
        let (stopped_for_ns, seen_at_ns) = (STOPPED_FOR.as_nanos() as u64, stopped.at_ns);
        let is_charged_with_it = |incident: &&Incident| {
            let contains_it = incident.for_ns >= stopped_for_ns && incident.began_at_ns + stopped_for_ns <= seen_at_ns;
            contains_it && blames_task(incident.cause)
        };
        let long = after.incidents.latest.iter().filter(is_charged_with_it);
        assert_eq!(long.count(), 0, "{:#?}", after.incidents);
        assert!(stopped.sentinel.pauses >= 1);
        assert!(stopped.sentinel.last_pause.is_some_and(|cause| machine.contains(&cause)), "{:?}", stopped.sentinel);
        assert_eq!(after.sentinel.capped, 0, "no storm of replacements");
    });
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
                assert_eq!((sentinel.spare_calls, sentinel.spares_on_duty), (0, 0), "nobody is there");
                failures = sentinel.spare_failures;
            }
            open.send(()).unwrap();
            runtime.block_on(blocker).unwrap();
            assert_eq!(runtime.block_on(waiting).unwrap(), 5);
            wait_until(&runtime, is_at_rest);
        });
    });
}
