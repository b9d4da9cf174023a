//! The table of a driver's registered sockets, by index. A token also has a generation, so that an
//! old event does not reach the next socket with the same index.

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
    /// The generation of the next socket. It wraps around after 2^32 sockets, and after 2^16 on
    /// 32-bit systems. So an old event can reach another socket only if a multiple of that many
    /// were registered in one turn, between the kernel's report and `Turn::collect`. This does no
    /// harm: an attempt of that socket would block, which clears the flags (`readiness`).
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
