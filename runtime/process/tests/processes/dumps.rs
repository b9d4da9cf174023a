//! Processes in a task dump: the await of an async function, and the event that a state machine
//! waits for.

use volt::telemetry::dump::{Dump, Query};

use super::*;

/// Repeats the dump until it has read this many waiting tasks.
async fn dump(tasks: u64) -> Dump {
    let began = std::time::Instant::now();
    loop {
        let dump = volt::Handle::current().dump_with(Query::default()).await;
        if (dump.waiting, dump.read) == (tasks, tasks) {
            return dump;
        }
        assert!(began.elapsed() < LONG, "{}", dump.text());
        volt::task::yield_now().await;
    }
}

/// Returns the line in this file, and the function, at which the chain of the process ends.
fn end(dump: &Dump, name: &str) -> (Option<u32>, String) {
    let named = |group: &&volt::telemetry::dump::Group| group.examples[0].name.as_deref() == Some(name);
    let group = dump.groups.iter().find(named).unwrap_or_else(|| panic!("{name}: {}", dump.text()));
    let own = group.chain.iter().rev().find(|link| link.file.as_deref().is_some_and(|file| file.ends_with("dumps.rs")));
    (own.and_then(|link| link.line), group.chain.last().and_then(|link| link.function.clone()).unwrap_or_default())
}

/// Returns the line that ends with this comment.
fn line(marker: &str) -> Option<u32> {
    let wanted = format!("// LINE: {marker}");
    let found = include_str!("dumps.rs").lines().position(|line| line.ends_with(&wanted));
    Some(found.unwrap_or_else(|| panic!("no line {wanted}")) as u32 + 1)
}

async fn next_order(inbox: &mut volt_process::Inbox) -> Option<volt_process::Message> {
    inbox.recv().await // LINE: recv
}

#[cfg_attr(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))), ignore)]
#[test]
fn a_dump_names_the_line_where_a_function_receives_or_calls() {
    with_system(async |system| {
        let till = volt_process::from_fn(async |mut inbox, _| {
            let mut unanswered = Vec::new();
            while let Some(message) = next_order(&mut inbox).await {
                // LINE: next_order
                unanswered.push(message);
            }
            Ok(Payload::empty())
        });
        let till = system.spawn(Spawn::new(till).name("till")).unwrap();
        let customer = volt_process::from_fn(async move |inbox, _| {
            let answer = inbox.context().call(till, Payload::empty(), LONG).await; // LINE: call
            drop(answer);
            Ok(Payload::empty())
        });
        system.spawn(Spawn::new(customer).name("customer")).unwrap();
        until(|| system.info(till).unwrap().mailbox_high_water == 1).await;
        // Twice, since the first dump changes which waker the functions have.
        for _ in 0..2 {
            let dump = dump(2).await;
            let (till, customer) = (end(&dump, "till"), end(&dump, "customer"));
            assert_eq!((till.0, customer.0), (line("recv"), line("call")), "{}", dump.text());
            assert!(till.1.contains("nbox") && customer.1.contains("ontext"), "{}", dump.text());
        }
    });
}

#[test]
fn a_function_that_was_dumped_is_woken_by_what_it_awaits() {
    with_system(async |system| {
        let (pays, paid) = volt::sync::oneshot::channel::<u32>();
        let waits = volt_process::from_fn(async move |mut inbox, _| {
            let sum = paid.await.unwrap();
            let more = inbox.recv().await.unwrap().payload.downcast::<u32>().unwrap();
            volt::time::sleep(Duration::from_millis(1)).await;
            Ok(Payload::new(sum + more))
        });
        let ends = system.exec(Spawn::new(waits).name("waits"));
        let ends = volt::spawn(ends);
        until(|| system.whereis("waits").is_some()).await;
        let pid = system.whereis("waits").unwrap();
        until(|| system.info(pid).unwrap().lifecycle == Lifecycle::Blocked).await;
        // The function and the task that waits for its end.
        dump(2).await;
        pays.send(40).unwrap();
        until(|| system.info(pid).unwrap().lifecycle == Lifecycle::Idle).await;
        dump(2).await;
        let steps = system.info(pid).unwrap().steps;
        dump(2).await;
        assert_eq!(system.info(pid).unwrap().steps, steps, "the poll of a dump is no step");
        system.send(pid, Payload::new(2_u32)).await.unwrap();
        assert_eq!(ends.await.unwrap().unwrap().downcast::<u32>().unwrap(), 42);
    });
}

/// Yields a call, if it has a pid for it. Keeps its events, and so replies to no call.
struct Asks(Option<Pid>, Vec<Event>);

impl Process for Asks {
    fn init(&mut self, context: &Context, _method: &str, _input: Payload) -> Result<(), Failure> {
        context.waker().wake();
        Ok(())
    }

    fn step(&mut self, events: Events<'_>, out: &mut Output) -> Result<(), Failure> {
        self.1.extend(events);
        if let Some(pid) = self.0.take() {
            out.call(1, pid, Payload::empty(), LONG);
            out.wait();
        }
        Ok(())
    }
}

#[cfg_attr(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))), ignore)]
#[test]
fn a_dump_shows_what_a_state_machine_waits_for() {
    with_system(async |system| {
        let idle = system.spawn(Spawn::new(Asks(None, Vec::new())).name("idle")).unwrap();
        let asks = system.spawn(Spawn::new(Asks(Some(idle), Vec::new())).name("asks")).unwrap();
        until(|| system.info(asks).unwrap().lifecycle == Lifecycle::Blocked).await;
        until(|| system.info(idle).unwrap().lifecycle == Lifecycle::Idle).await;
        let steps = system.info(idle).unwrap().steps;
        let dump = dump(2).await;
        assert!(end(&dump, "idle").1.contains("waits_for_events"), "{}", dump.text());
        assert!(end(&dump, "asks").1.contains("waits_for_yields"), "{}", dump.text());
        assert_eq!(system.info(idle).unwrap().steps, steps, "a state machine does not step in a dump");
        assert!([idle, asks].iter().all(|pid| system.kill(*pid)));
    });
}
