//! What clients of the control socket may cost.

use std::time::Duration;

use volt_telemetry::wire::MAX_REPLY_BYTES;

/// What a client may cost.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Clients at once.
    pub(super) clients: usize,
    /// How long the first request may take, and each request from its first byte to its last.
    pub(super) request: Duration,
    /// How long the outbox may stay unread.
    pub(super) unread: Duration,
    /// Bytes in the outbox, unless it is a single frame.
    pub(super) outbox_bytes: usize,
    /// Bytes of a reply.
    pub(super) reply_bytes: usize,
    /// How many times what a snapshot took of a processor subscriptions rest after it: 200 for 0.5
    /// % of one, however often is wished for; what it takes to listen comes to that.
    pub(super) rest: u32,
    /// How many times what its answers took of a processor a client waits for its next one: 50 for
    /// 2 % of a processor a client.
    pub(super) pays: u32,
    /// What its answers may take of a processor before it waits.
    pub(super) credit: Duration,
}

impl Limits {
    pub(super) const DEFAULT: Limits = Limits {
        clients: 8,
        request: Duration::from_secs(5),
        unread: Duration::from_secs(30),
        outbox_bytes: 256 * 1024,
        reply_bytes: MAX_REPLY_BYTES,
        rest: 200,
        pays: 50,
        credit: Duration::from_millis(100),
    };
}
