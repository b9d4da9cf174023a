//! Processes that do not keep up with their messages, and such that do not live.

use std::thread;
use std::time::Duration;

use volt_process::{Backoff, ChildSpec, Failure, Overflow, Payload, Spawn, Strategy, Supervisor, System};

use crate::scene::Scene;

/// Room in the mailbox: enough for some seconds of what comes too much.
const CAPACITY: usize = 20_000;
/// How long the process takes for a message.
const WORK: Duration = Duration::from_millis(1);
/// Messages sent in that time.
const SENT: usize = 8;
/// Between two restarts of what fails at once.
const BACKOFF: Duration = Duration::from_millis(10);

/// More messages than a process takes, which nobody tells the sender; or which the sender waits for
/// room with.
pub(crate) fn mailbox_growing(scene: &mut Scene) {
    let system = System::new(&scene.runtime);
    let slow = volt_process::from_fn(async |mut inbox, _input| {
        while let Some(_message) = inbox.recv().await {
            volt::time::sleep(WORK).await;
        }
        Ok(Payload::empty())
    });
    let (capacity, overflow) = if scene.is_ill { (CAPACITY, Overflow::DropNewest) } else { (512, Overflow::Block) };
    let slow = system.spawn(Spawn::new(slow).name("slow").mailbox(capacity, overflow)).expect("the first process");
    let end = scene.end_flag();
    drop(scene.runtime.spawn(async move {
        while !end.has_come() {
            for _ in 0..SENT {
                // It ends with the program.
                let _ = system.send(slow, Payload::empty()).await;
            }
            volt::time::sleep(WORK).await;
        }
    }));
}

/// A child that fails at once, started anew without a pause to speak of; or with the pauses that
/// supervisors make.
pub(crate) fn restart_storm(scene: &mut Scene) {
    let system = System::new(&scene.runtime);
    let child = ChildSpec::permanent("child", || {
        Spawn::new(volt_process::from_fn(async |_inbox, _input| Err(Failure::new("the database does not answer"))))
    });
    let supervisor = Supervisor::new(Strategy::OneForOne).child(child);
    let supervisor = if scene.is_ill {
        supervisor.backoff(Backoff::new(BACKOFF, BACKOFF)).intensity(u32::MAX, Duration::from_secs(1))
    } else {
        supervisor
    };
    system.spawn(supervisor.into_spawn()).expect("the first process");
    // The system lives as long as somebody has it.
    scene.outside(move |_runtime| {
        let _kept = &system;
        thread::sleep(BACKOFF);
    });
}
