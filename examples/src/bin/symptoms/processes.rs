//! Symptoms of processes (actors) that cannot keep up with their messages, or that fail
//! immediately.

use std::thread;
use std::time::Duration;

use volt_process::{Backoff, ChildSpec, Failure, Overflow, Payload, Spawn, Strategy, Supervisor, System};

use crate::scene::Scene;

/// The capacity of the mailbox: enough for some seconds of surplus messages.
const CAPACITY: usize = 20_000;
/// How long the process takes for a message.
const WORK: Duration = Duration::from_millis(1);
/// The number of messages sent in that time.
const SENT: usize = 8;
/// Time between two restarts of a child that fails immediately.
const BACKOFF: Duration = Duration::from_millis(10);

/// A sender that outpaces the process: its surplus messages are dropped without notice. In the
/// counterpart, the sender waits for room.
pub(crate) fn mailbox_growing(scene: &mut Scene) {
    let system = System::new(&scene.runtime);
    let slow = volt_process::from_fn(async |mut inbox, _input| {
        while let Some(_message) = inbox.recv().await {
            volt::time::sleep(WORK).await;
        }
        Ok(Payload::empty())
    });
    let (capacity, overflow) =
        if scene.has_symptom { (CAPACITY, Overflow::DropNewest) } else { (512, Overflow::Block) };
    let slow = system.spawn(Spawn::new(slow).name("slow").mailbox(capacity, overflow)).expect("the first process");
    let end = scene.end_flag();
    drop(scene.runtime.spawn(async move {
        while !end.has_come() {
            for _ in 0..SENT {
                // The process ends with the program.
                let _ = system.send(slow, Payload::empty()).await;
            }
            volt::time::sleep(WORK).await;
        }
    }));
}

/// A child that fails immediately, restarted almost without a pause, or with the default pauses of
/// supervisors.
pub(crate) fn restart_storm(scene: &mut Scene) {
    let system = System::new(&scene.runtime);
    let child = ChildSpec::permanent("child", || {
        Spawn::new(volt_process::from_fn(async |_inbox, _input| Err(Failure::new("the database does not respond"))))
    });
    let supervisor = Supervisor::new(Strategy::OneForOne).child(child);
    let supervisor = if scene.has_symptom {
        supervisor.backoff(Backoff::new(BACKOFF, BACKOFF)).intensity(u32::MAX, Duration::from_secs(1))
    } else {
        supervisor
    };
    system.spawn(supervisor.into_spawn()).expect("the first process");
    // The thread keeps the system alive.
    scene.outside(move |_runtime| {
        let _kept = &system;
        thread::sleep(BACKOFF);
    });
}
