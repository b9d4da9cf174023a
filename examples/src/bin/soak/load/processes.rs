//! Processes with supervision: calls are answered in order, and a failed process is restarted.

use std::sync::Arc;
use std::time::Duration;

use volt::Handle;
use volt_process::{Backoff, ChildSpec, Failure, Inbox, Payload, Spawn, Strategy, Supervisor, System};

use crate::part::{Part, pause};
use crate::random::Random;

const NAMES: [&str; 4] = ["north", "east", "south", "west"];
const CALLS_MAX: u64 = 60;
const CALL_LIMIT: Duration = Duration::from_secs(60);
const PAUSE_MAX: Duration = Duration::from_millis(10);
const BACKOFF: Duration = Duration::from_millis(20);

/// A message to a counter.
enum Order {
    Add,
    Fail,
}

pub(super) fn start(runtime: &Handle, part: &Arc<Part>) {
    let system = Arc::new(System::new(runtime));
    let add = |supervisor: Supervisor, name| {
        supervisor.child(ChildSpec::permanent(name, move || Spawn::new(volt_process::from_fn(counter)).name(name)))
    };
    let supervisor = Supervisor::new(Strategy::OneForOne)
        .backoff(Backoff::new(BACKOFF, BACKOFF))
        .intensity(u32::MAX, Duration::from_secs(1));
    let supervisor = NAMES.into_iter().fold(supervisor, add);
    system.spawn(supervisor.into_spawn()).expect("the first process");
    for (seed, name) in NAMES.into_iter().enumerate() {
        drop(runtime.spawn(calls(part.clone(), system.clone(), name, seed as u64)));
    }
}

/// Counts orders, and replies with the count, until it receives the order to fail.
async fn counter(mut inbox: Inbox, _input: Payload) -> Result<Payload, Failure> {
    let mut count: u64 = 0;
    while let Some(message) = inbox.recv().await {
        match message.payload.downcast() {
            Ok(Order::Add) => count += 1,
            Ok(Order::Fail) => return Err(Failure::new("as ordered")),
            Err(_) => return Err(Failure::new("not an order")),
        }
        if let Some(reply) = message.reply {
            reply.send(Payload::new(count));
        }
    }
    Ok(Payload::empty())
}

async fn calls(part: Arc<Part>, system: Arc<System>, name: &'static str, seed: u64) {
    let mut random = Random::new(seed);
    while !part.is_over() {
        let Some(pid) = system.whereis(name) else {
            // The supervisor waits before it restarts the process.
            pause(&mut random, PAUSE_MAX).await;
            continue;
        };
        for expected in 1..=random.below(CALLS_MAX) {
            match system.call(pid, Payload::new(Order::Add), CALL_LIMIT).await {
                Ok(reply) => {
                    let count = reply.downcast::<u64>().ok();
                    part.verify(count == Some(expected), format_args!("{name} replies {count:?}, not {expected}"));
                }
                Err(error) => part.verify(false, format_args!("{name} does not reply: {error}")),
            }
            pause(&mut random, PAUSE_MAX).await;
        }
        part.verify(system.send(pid, Payload::new(Order::Fail)).await.is_ok(), format_args!("{name} has ended"));
        system.wait(pid).await;
    }
}
