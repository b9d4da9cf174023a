//! Tests of yields: the clock, other processes and handlers of applications. Also tests upgrades
//! between steps.

use super::*;
use volt::time::Instant;
use volt_process::{CommandId, Completion, Request};

const COMMAND: CommandId = CommandId::new(1000);
const HOUR: Duration = Duration::from_secs(3600);

/// Runs `test` with a system in which `handler` handles `COMMAND`.
fn with_handler<F: Future<Output = ()>>(handler: fn(Request<'_>), test: impl Fn(System) -> F) {
    watchdog::with_workers(|runtime| {
        runtime.block_on(async {
            let system = System::builder().handler(COMMAND, handler).build(&volt::Handle::current()).unwrap();
            test(system.clone()).await;
            assert!(system.shutdown(Some(LONG)).await.forced.is_empty());
        });
    });
}

/// Yields `COMMAND` once with each tag. Its result is the list of completions.
fn commands(tags: std::ops::Range<u64>) -> Spawn {
    let (mut began, mut completed, count) = (false, Vec::new(), tags.end - tags.start);
    scripted(move |_, events, out| {
        for event in events {
            if let Event::Completed { tag, result } = event {
                completed.push((tag, result.map(|_| ())));
            }
        }
        if !std::mem::replace(&mut began, true) {
            tags.clone().for_each(|tag| out.request(tag, COMMAND, Payload::new(tag)));
        }
        if completed.len() as u64 == count {
            out.done_with(Payload::new(std::mem::take(&mut completed)));
        } else {
            out.wait();
        }
        Ok(())
    })
}

async fn completed(system: &System, tags: std::ops::Range<u64>) -> Vec<(u64, Result<(), Failure>)> {
    system.exec(commands(tags)).await.unwrap().downcast().unwrap()
}

#[test]
fn a_handler_completes_now_by_a_future_or_from_another_thread() {
    fn carry_out(mut request: Request<'_>) {
        let tag: u64 = request.take().unwrap();
        assert_eq!(tag, request.tag());
        match tag {
            0 => request.complete_yield(Ok(Payload::empty())),
            1 => request.run(async {
                volt::task::yield_now().await;
                Ok(Payload::empty())
            }),
            2 => {
                let completion = request.defer();
                std::thread::spawn(move || completion.complete_yield(Ok(Payload::empty())));
            }
            3 => panic!("handler {tag}"),
            4 => drop(request),
            5 => drop(request.defer()),
            6 => request.run(async { panic!("future 6") }),
            _ => request.complete_yield(Err(Failure::new("no"))),
        }
    }
    with_handler(carry_out, async |system| {
        let mut report = completed(&system, 0..8).await;
        report.sort_by_key(|(tag, _)| *tag);
        let texts: Vec<_> =
            report.iter().map(|(_, result)| result.clone().map_err(|error| error.to_string())).collect();
        let errors = [
            "its handler did not complete the yield",
            "its handler did not complete the yield",
            "its handler dropped the yield without completing it",
            "future 6",
            "no",
        ];
        assert_eq!(texts[..3], [Ok(()), Ok(()), Ok(())]);
        assert_eq!(texts[3..], errors.map(|error| Err(error.to_owned())));
    });
}

#[test]
fn duplicate_handlers_and_bad_process_limits_fail_the_build() {
    watchdog::with_one_worker(|runtime| {
        let carry_out = |request: Request<'_>| request.complete_yield(Ok(Payload::empty()));
        let builder = System::builder().handler(COMMAND, carry_out).handler(COMMAND, carry_out);
        let error = builder.build(runtime.handle()).unwrap_err().to_string();
        assert!(error.starts_with("command 1000 has two handlers"), "{error}");
        for max in [0, 1 << 26] {
            assert!(System::builder().max_processes(max).build(runtime.handle()).is_err());
        }
        let system = System::builder().max_processes(2).build(runtime.handle()).unwrap();
        assert!(system.spawn(idle()).is_ok() && system.spawn(idle()).is_ok());
        assert!(system.spawn(idle()).unwrap_err().is_full());
        runtime.block_on(system.shutdown(None));
    });
}

#[test]
fn one_yield_too_many_fails_and_the_others_are_completed() {
    fn carry_out(request: Request<'_>) {
        let completion = request.defer();
        std::thread::spawn(move || completion.complete_yield(Ok(Payload::empty())));
    }
    with_handler(carry_out, async |system| {
        let report = completed(&system, 0..Output::YIELDS_MAX as u64 + 3).await;
        let failed: Vec<_> = report.iter().filter(|(_, result)| result.is_err()).map(|(tag, _)| *tag).collect();
        assert_eq!(failed, [1024, 1025, 1026]);
    });
}

#[test]
fn completions_for_an_exited_process_are_dropped() {
    with_system(async |_| {
        let (give, mut given) = volt::sync::mpsc::unbounded_channel::<Completion>();
        let later = move |request: Request<'_>| give.send(request.defer()).unwrap();
        let system = System::builder().handler(COMMAND, later).build(&volt::Handle::current()).unwrap();
        let pid = system.spawn(commands(0..2)).unwrap();
        let completions = [given.recv().await.unwrap(), given.recv().await.unwrap()];
        let ends = system.wait(pid);
        system.kill(pid);
        ends.await;
        let [first, second] = completions;
        assert_eq!(first.pid(), pid);
        let value = Dropped::default();
        first.complete_yield(Ok(Payload::new(value.clone())));
        assert_eq!(value.count(), 1);
        drop(second);
    });
}

#[test]
fn the_clock_of_processes_is_the_runtimes() {
    for workers in [1, 2, 4] {
        watchdog::watched(|| {
            let runtime = watchdog::builder(workers).start_paused(true).build().unwrap();
            runtime.block_on(async {
                let system = System::new(&volt::Handle::current());
                let began = Instant::now();
                let machine = scripted(|_, events, out| {
                    out.interval(1, Duration::ZERO);
                    out.wait();
                    events.into_iter().try_for_each(|event| match event {
                        Event::Completed { result, .. } => result.map(drop),
                        _ => Ok(()),
                    })
                });
                let error = system.exec(machine).await.unwrap_err();
                assert_eq!(error.to_string(), "failed: an interval's period must not be zero");
                // The interval ticks at 1 and 2 h, and is then cancelled. One sleep lasts until 3.5
                // h. The other would end at 0.5 h, but is cancelled.
                let (mut steps, mut report) = (0, Vec::new());
                let machine = scripted(move |_, events, out| {
                    for event in events {
                        if let Event::Completed { tag, result } = event {
                            let result = result?;
                            if tag == 1 {
                                assert_eq!(result.downcast::<Instant>().unwrap(), Instant::now());
                            }
                            report.push((tag, began.elapsed().as_secs() / 60));
                        }
                    }
                    steps += 1;
                    if steps == 1 {
                        out.interval(1, HOUR);
                        out.sleep(2, HOUR * 7 / 2);
                        out.sleep(3, HOUR / 2);
                        out.cancel(3);
                    }
                    if report.last() == Some(&(1, 120)) {
                        out.cancel(1);
                    }
                    if report.last() == Some(&(2, 210)) {
                        out.done_with(Payload::new(std::mem::take(&mut report)));
                    } else {
                        out.wait();
                    }
                    Ok(())
                });
                let report = system.exec(machine).await.unwrap().downcast::<Vec<(u64, u64)>>().unwrap();
                assert_eq!(report, [(1, 60), (1, 120), (2, 210)]);
            });
        });
    }
}

#[test]
fn processes_are_started_executed_and_terminated_by_yields() {
    with_system(async |system| {
        let mut stage = 0;
        let machine = scripted(move |context, events, out| {
            for event in events {
                let Event::Completed { tag, result } = event else { continue };
                match (tag, result) {
                    (1, Ok(pid)) => {
                        let pid = pid.downcast::<Pid>().unwrap();
                        assert_eq!(context.system().info(pid).unwrap().parent, Some(context.pid()));
                        out.terminate(2, pid, LONG);
                    }
                    (2, Ok(reason)) => {
                        assert_eq!(reason.downcast::<ExitReason>().unwrap(), ExitReason::Shutdown);
                        out.exec(
                            3,
                            Spawn::new(volt_process::from_fn(async |_, input| Ok(input))).input(Payload::new(5)),
                        );
                    }
                    (3, Ok(result)) => {
                        assert_eq!(result.downcast::<i32>().unwrap(), 5);
                        out.exec(4, scripted(|_, _, _| Err(Failure::new("fails"))));
                    }
                    (4, Err(failure)) => {
                        assert_eq!(failure.to_string(), "failed: fails");
                        out.spawn(5, idle().method("mian"));
                    }
                    (5, Err(failure)) => {
                        assert!(failure.to_string().contains("no entry method"), "{failure}");
                        out.done();
                        return Ok(());
                    }
                    other => panic!("{other:?}"),
                }
            }
            if stage == 0 {
                stage = 1;
                out.spawn(1, idle());
            }
            out.wait();
            Ok(())
        });
        system.exec(machine).await.unwrap();
    });
}

/// Accepts events only once its gate is open. Its result is the number of completions that it then
/// receives.
struct Shut {
    gate: Arc<AtomicUsize>,
    has_begun: bool,
}

impl Process for Shut {
    fn init(&mut self, context: &Context, _method: &str, _input: Payload) -> Result<(), Failure> {
        context.waker().wake();
        Ok(())
    }

    fn step(&mut self, events: Events<'_>, out: &mut Output) -> Result<(), Failure> {
        if !std::mem::replace(&mut self.has_begun, true) {
            out.interval(1, Duration::from_millis(1));
        }
        let ticks = events.filter(|event| matches!(event, Event::Completed { .. })).count();
        if ticks > 0 {
            out.done_with(Payload::new(ticks));
        }
        Ok(())
    }

    fn takes_events(&self) -> bool {
        self.gate.load(Ordering::Acquire) > 0
    }
}

#[test]
fn ticks_do_not_accumulate_for_a_process_without_events() {
    with_system(async |system| {
        let gate = Arc::new(AtomicUsize::new(0));
        let process = Shut { gate: gate.clone(), has_begun: false };
        let ends = system.exec(Spawn::new(process).name("shut"));
        let pid = system.whereis("shut").unwrap();
        // Each message causes a step without events.
        for _ in 0..20 {
            volt::time::sleep(Duration::from_millis(1)).await;
            system.try_send(pid, Payload::empty()).unwrap();
        }
        gate.store(1, Ordering::Release);
        system.try_send(pid, Payload::empty()).unwrap();
        let ticks = ends.await.unwrap().downcast::<usize>().unwrap();
        // One poll may produce two ticks: one that was late, and the next. The last step polls once
        // more.
        assert!(ticks <= 4, "{ticks}");
    });
}

#[test]
fn an_upgrade_keeps_pid_mailbox_and_state_or_changes_nothing() {
    struct Second {
        first: Collector,
    }
    impl Process for Second {
        fn init(&mut self, _context: &Context, _method: &str, _input: Payload) -> Result<(), Failure> {
            unreachable!("it goes on")
        }

        fn step(&mut self, events: Events<'_>, out: &mut Output) -> Result<(), Failure> {
            self.first.step(events, out)
        }
    }
    with_system(async |system| {
        let pid = system.spawn(Spawn::new(Collector::default())).unwrap();
        for number in 0..1000_u32 {
            system.try_send(pid, Payload::new(number)).unwrap();
        }
        let wrong = system.upgrade(pid, |_: &mut Second| Ok(Collector::default())).await.unwrap_err();
        assert!(wrong.to_string().contains("is not a "), "{wrong}");
        let refused = system.upgrade(pid, |_: &mut Collector| Err::<Collector, _>(Failure::new("no"))).await;
        assert_eq!(refused.unwrap_err().to_string(), "no");
        let panicked = system.upgrade(pid, |_: &mut Collector| -> Result<Collector, _> { panic!("it bursts") }).await;
        assert_eq!(panicked.unwrap_err().to_string(), "it bursts");
        assert!(system.info(pid).unwrap().kind.ends_with("Collector"));
        let upgrade = |old: &mut Collector| Ok(Second { first: std::mem::take(old) });
        system.upgrade(pid, upgrade).await.unwrap();
        assert!(system.info(pid).unwrap().kind.ends_with("Second"));
        system.send(pid, Payload::new(1000_u32)).await.unwrap();
        assert_eq!(seen(&system, pid).await, (0..=1000).collect::<Vec<_>>());
        // While one upgrade waits, a second one fails.
        let blocked = system.spawn(idle()).unwrap();
        let held = keep_in_step(&system, blocked);
        let mut first = Box::pin(system.upgrade(blocked, upgrade));
        assert!(poll_once(first.as_mut()).await.is_none());
        let second = system.upgrade(blocked, upgrade).await.unwrap_err();
        assert!(second.to_string().starts_with("another upgrade of "), "{second}");
        drop(held);
        assert!(first.await.unwrap_err().to_string().contains("is not a "));
        // The process exits before the upgrade takes place.
        let held = keep_in_step(&system, blocked);
        let mut late = Box::pin(system.upgrade(blocked, upgrade));
        assert!(poll_once(late.as_mut()).await.is_none());
        system.kill(blocked);
        drop(held);
        assert!(late.await.unwrap_err().to_string().ends_with("has exited"));
        // An upgrade that arrives before `init` takes place after it.
        for _ in 0..100 {
            let pid = system.spawn(Spawn::new(Collector::default())).unwrap();
            system.upgrade(pid, upgrade).await.unwrap();
            assert!(seen(&system, pid).await.is_empty());
            assert!(system.kill(pid));
        }
    });
}
