//! A dump for one client. A separate thread makes it: it takes up to seconds, and the server's
//! thread must not wait that long.
//!
//! Only the server's thread uses a [`Dumping`]. When its client leaves, it is dropped, which
//! cancels the dump. The thread checks for that between its polls, so it may run for a while
//! without a client. Bounds: one dump per client, one at a time per runtime, and `Limits::dumps`
//! threads.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use volt_telemetry::dump::Query;
use volt_telemetry::wire::Reply;

use super::cost::processor_time;
use super::recording::FAULT;
use super::registry::{Observed, Registry};
use crate::scheduler::readers::limit::{Canceller, Limit, TIME_MAX};

/// How often the server checks whether the dump is complete.
const CHECK_INTERVAL: Duration = Duration::from_millis(5);

/// A dump that is being made for a client. Cancelled when this is dropped.
#[derive(Debug)]
pub(super) struct Dumping {
    /// The reply, and the processor time that it took.
    made: Receiver<(Reply, Duration)>,
    _canceller: Canceller,
}

impl Dumping {
    /// Starts the thread. It keeps the runtime alive while it makes the dump.
    pub(super) fn begin(runtime: Weak<dyn Observed>, query: Query, registry: &Registry) -> Result<Self, String> {
        // One reference is the registry's, and each thread has another one. Only this thread adds
        // some, so the number cannot grow meanwhile.
        let running = Arc::strong_count(&registry.dumps) - 1;
        if running >= registry.limits.dumps {
            return Err(format!("dumps in progress: {running}, which is the limit: try again later"));
        }
        let counted = registry.dumps.clone();
        let (sender, made) = sync_channel(1);
        let (limit, canceller) = Limit::new(TIME_MAX);
        let make = move || {
            let began = processor_time();
            let reply = match runtime.upgrade() {
                // Unwind safe: a dump that panicked is discarded with all that it has used.
                Some(runtime) => catch_unwind(AssertUnwindSafe(|| Reply::Dump(Box::new(runtime.dump(&query, &limit)))))
                    .unwrap_or_else(|_| Reply::Error { message: FAULT.to_owned() }),
                None => Reply::Error { message: "the runtime was shut down".to_owned() },
            };
            drop(counted);
            // Fails if the client has disconnected.
            let _is_sent = sender.send((reply, processor_time().saturating_sub(began)));
        };
        thread::Builder::new()
            .name("volt-dump".into())
            .spawn(make)
            .map_err(|error| format!("no thread could be started for the dump: {error}"))?;
        Ok(Self { made, _canceller: canceller })
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
