//! Adds sockets to a driver and removes them.

use std::io;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

use mio::event::Source;
use mio::{Interest, Token};
use volt_shim::{MutexGuard, Ordering};

use super::Driver;
use super::registrations::{INDEX_BITS, MAX_REGISTRATIONS, Registered, Registrations, index_of};
use crate::driver::readiness::{Flags, Readiness, ShutDownError};

// A panic in a task leaves the driver and its sockets intact: no waker is called under a lock.
impl UnwindSafe for Driver {}
impl RefUnwindSafe for Driver {}

impl Driver {
    /// Registers a socket, normally for both directions.
    ///
    /// # Errors
    /// Fails if the runtime is shut down, if too many sockets are registered, or if the system
    /// refuses.
    pub(crate) fn register(
        &self,
        source: &mut impl Source,
        interest: Interest,
        begin: Flags,
    ) -> io::Result<(Token, Arc<Readiness>)> {
        let readiness = Arc::new(Readiness::new(begin));
        let token = self.enter(readiness.clone())?;
        if let Err(error) = self.registry.register(source, token, interest) {
            self.sockets.table.lock().registered -= 1;
            self.leave(token);
            return Err(error);
        }
        Ok((token, readiness))
    }

    /// Removes a socket. Its descriptor must still be open, since the kernel's list is keyed by
    /// descriptor.
    pub(crate) fn deregister(&self, source: &mut impl Source, token: Token) -> io::Result<()> {
        if !self.home.is_here() {
            // This is a forked child's copy of a socket. The child shares the kernel's list with
            // its parent, whose socket must stay in it.
            return Ok(());
        }
        let result = self.registry.deregister(source);
        self.leave(token);
        result
    }

    fn enter(&self, readiness: Arc<Readiness>) -> io::Result<Token> {
        let mut registrations = self.sockets.table.lock();
        if registrations.is_shut_down {
            return Err(ShutDownError::io());
        }
        if registrations.sockets.len() >= MAX_REGISTRATIONS {
            return Err(io::Error::other(format!("{MAX_REGISTRATIONS} sockets are registered, which is the limit")));
        }
        let generation = registrations.next_generation;
        registrations.next_generation = (generation + 1) % (1 << INDEX_BITS);
        registrations.registered += 1;
        let index = registrations.sockets.insert(Registered { generation, readiness });
        self.publish(&registrations);
        Ok(Token(generation << INDEX_BITS | index))
    }

    fn leave(&self, token: Token) {
        let mut registrations = self.sockets.table.lock();
        let registered = registrations.sockets.try_remove(index_of(token));
        self.publish(&registrations);
        // Wakers that are still in the socket's queue are dropped after the lock is released.
        drop(registrations);
        drop(registered);
    }

    /// Returns how many sockets were registered since the driver was created, and how many of these
    /// are registered no longer.
    pub(crate) fn registered_and_left(&self) -> (u64, u64) {
        let registrations = self.sockets.table.lock();
        let left = registrations.registered.saturating_sub(registrations.sockets.len() as u64);
        (registrations.registered, left)
    }

    /// Returns how many events the kernel has reported.
    pub(crate) fn events(&self) -> u64 {
        // ORDERING: Relaxed; a single-writer cell, here read for a metric.
        self.counters.events.load(Ordering::Relaxed)
    }

    fn publish(&self, registrations: &MutexGuard<'_, Registrations>) {
        // ORDERING: Relaxed; a single-writer cell (the lock is held). Telemetry reads it, and so do
        // workers and turns, as a hint.
        self.sockets.count.store(registrations.sockets.len() as u64, Ordering::Relaxed);
    }
}
