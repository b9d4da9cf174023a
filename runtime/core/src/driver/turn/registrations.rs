//! The table of a driver's registered sockets, by index. Each has a token that is never reused
//! while an old event may be on its way.

use std::sync::Arc;

use mio::Token;
use slab::Slab;

use crate::driver::readiness::Readiness;

/// Bits of a token that hold the index; the remaining bits hold the generation.
pub(super) const INDEX_BITS: u32 = usize::BITS / 2;
/// Maximum number of registered sockets. An index is lower than this, so no token of a socket
/// equals that of the waker.
pub(super) const MAX_REGISTRATIONS: usize = (1 << INDEX_BITS) - 1;

#[derive(Debug, Default)]
pub(super) struct Registrations {
    pub(super) sockets: Slab<Registered>,
    /// The generation of the next socket. It wraps around after 2^32 sockets, so a token could be
    /// mistaken for another only if that many were registered within one turn.
    pub(super) next_generation: usize,
    /// The number of sockets that were ever registered.
    pub(super) registered: u64,
    pub(super) is_shut_down: bool,
}

#[derive(Debug)]
pub(super) struct Registered {
    pub(super) generation: usize,
    pub(super) readiness: Arc<Readiness>,
}

pub(super) fn index_of(token: Token) -> usize {
    token.0 & MAX_REGISTRATIONS
}
