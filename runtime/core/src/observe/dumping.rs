//! A dump for one client, which a thread of its own makes: it takes up to seconds, and the server's
//! thread must not wait that long.
//!
//! Only the server's thread uses a [`Dumping`]. Bound: one dump per client, and one at a time per
//! runtime.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Weak;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use volt_telemetry::dump::Query;
use volt_telemetry::wire::Reply;

use super::cost::processor_time;
use super::recording::FAULT;
use super::registry::Observed;

/// How often the server checks whether the dump is complete.
const CHECK_INTERVAL: Duration = Duration::from_millis(5);

/// A dump that is being made for a client.
#[derive(Debug)]
pub(super) struct Dumping {
    /// The reply, and the processor time that it took.
    made: Receiver<(Reply, Duration)>,
}

impl Dumping {
    /// Starts the thread. It keeps the runtime alive while it makes the dump.
    pub(super) fn begin(runtime: Weak<dyn Observed>, query: Query) -> Result<Self, String> {
        let (sender, made) = sync_channel(1);
        let make = move || {
            let began = processor_time();
            let reply = match runtime.upgrade() {
                Some(runtime) => catch_unwind(AssertUnwindSafe(|| Reply::Dump(Box::new(runtime.dump(&query)))))
                    .unwrap_or_else(|_| Reply::Error { message: FAULT.to_owned() }),
                None => Reply::Error { message: "the runtime has ended".to_owned() },
            };
            // Fails if the client has gone.
            let _is_sent = sender.send((reply, processor_time().saturating_sub(began)));
        };
        thread::Builder::new()
            .name("volt-dump".into())
            .spawn(make)
            .map_err(|error| format!("no thread could be started for the dump: {error}"))?;
        Ok(Self { made })
    }

    /// Returns the reply and the processor time that it took, if it is complete.
    pub(super) fn take(&self) -> Option<(Reply, Duration)> {
        match self.made.try_recv() {
            Ok(made) => Some(made),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some((Reply::Error { message: FAULT.to_owned() }, Duration::ZERO)),
        }
    }

    /// Returns when to check next.
    pub(super) fn due_at(&self) -> Instant {
        Instant::now() + CHECK_INTERVAL
    }
}
