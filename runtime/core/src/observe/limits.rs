//! Limits on what clients of the control socket may cost.

use std::time::Duration;

use volt_telemetry::wire::MAX_REPLY_BYTES;

/// Limits of the server and of each client.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Clients at the same time.
    pub(super) clients: usize,
    /// Maximum time until the first request is complete, and for each further request from its
    /// first byte to its last.
    pub(super) request: Duration,
    /// Maximum time for which the outbox may stay unread.
    pub(super) unread: Duration,
    /// Maximum number of bytes in the outbox, unless it is a single frame.
    pub(super) outbox_bytes: usize,
    /// Maximum number of bytes in a reply.
    pub(super) reply_bytes: usize,
    /// How long subscriptions pause after a snapshot, as a multiple of its processor time. 200
    /// limits them to 0.5 % of one processor, whatever rate a client requests.
    pub(super) rest: u32,
    /// How long a client waits for its next answer, as a multiple of the processor time of its last
    /// answers. 50 limits a client to 2 % of one processor.
    pub(super) pays: u32,
    /// The same for a dump, which people request one at a time. 5 limits a client that requests
    /// nothing else to 20 % of one processor.
    pub(super) dump_pays: u32,
    /// Threads that make dumps at the same time. Two per client, since that of a client which has
    /// left runs for a while.
    pub(super) dumps: usize,
    /// Processor time that a client's answers may take before it has to wait.
    pub(super) credit: Duration,
    /// How long the observer continues after the last runtime that needs it. Zero: the drop of that
    /// runtime waits until the observer has ended.
    pub(super) linger: Duration,
    /// How long the drop of the last runtime waits for the observer to end: long enough for a
    /// snapshot, but bounded, in case one never returns.
    pub(super) end: Duration,
}

impl Limits {
    /// The limits of a program's observer. Another runtime often follows the last one, in a test
    /// suite for example, and then finds the socket open: opening it takes a hundred times as long
    /// as the rest of a runtime's start.
    pub(super) const OF_PROGRAM: Limits = Limits { linger: Duration::from_secs(1), ..Limits::DEFAULT };

    pub(super) const DEFAULT: Limits = Limits {
        clients: 8,
        request: Duration::from_secs(5),
        unread: Duration::from_secs(30),
        outbox_bytes: 256 * 1024,
        reply_bytes: MAX_REPLY_BYTES,
        rest: 200,
        pays: 50,
        dump_pays: 5,
        dumps: 16,
        credit: Duration::from_millis(100),
        linger: Duration::ZERO,
        end: Duration::from_secs(5),
    };
}
