//! The observer's thread: it starts with the first runtime that needs a control socket, and ends
//! when no runtime has needed it for a while.

use std::io;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Instant;

use mio::{Poll, Waker};

use super::listener::Listener;
use super::registry::{Observed, Observer, Registration, Registry, State};
use super::server::{self, Server};

/// Name of the observer's thread.
const THREAD_NAME: &str = "volt-observer";

impl Registration {
    /// Makes the runtime visible to observers, and opens a control socket if it needs one.
    ///
    /// If the socket cannot be opened, logs a warning; the next runtime tries again.
    pub(crate) fn show(&self, runtime: Weak<dyn Observed>, open_socket: bool) {
        self.registry.show(self.id, runtime, open_socket);
    }
}

impl Registry {
    fn show(self: &Arc<Self>, id: u64, runtime: Weak<dyn Observed>, open_socket: bool) {
        let mut state = self.lock();
        let entry = state.entries.iter_mut().find(|entry| entry.id == id);
        let entry = entry.expect("a place is in the list for as long as its registration lives");
        entry.runtime = Some(runtime);
        entry.wants_socket = open_socket;
        state.wanted += u64::from(open_socket);
        let started = if open_socket { self.start(&mut state) } else { Ok(()) };
        drop(state);
        self.changed.notify_all();
        // After unlocking: a log subscriber is foreign code.
        if let Err(error) = started {
            tracing::warn!(
                target: "volt::observe",
                %error,
                "no control socket: consoles cannot attach until another runtime is built; the program continues"
            );
        }
    }

    fn start(self: &Arc<Self>, state: &mut State) -> io::Result<()> {
        if state.observer.is_some() {
            return Ok(());
        }
        let listener = Listener::open(&(self.environment)())?;
        let file = listener.file.clone();
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), server::WAKER)?;
        let server = Server::new(poll, listener, self.limits)?;
        let registry = Arc::clone(self);
        let thread = thread::Builder::new().name(THREAD_NAME.into()).spawn(move || registry.observe(server))?;
        state.observer = Some(Observer { thread, waker, file, is_lingering: false });
        Ok(())
    }

    /// The main function of the observer's thread.
    fn observe(&self, server: Server) {
        let mut run = Run { registry: self, server: Some(server) };
        // While it lingers: until when, and how many runtimes had needed a socket before.
        let mut lingers: Option<(Instant, u64)> = None;
        while let Some(server) = &mut run.server {
            let turn = server.turn(self, lingers.map(|(until, _)| until));
            let now = Instant::now();
            let is_over = lingers.is_some_and(|(until, _)| until <= now);
            match turn {
                Ok(is_woken) if !is_woken && !is_over => continue,
                Ok(_) => {
                    let mut state = self.lock();
                    let is_unused = is_over && lingers.is_some_and(|(_, wanted)| wanted == state.wanted);
                    let is_wanted = state.is_observer_wanted();
                    if !is_wanted && (self.limits.linger.is_zero() || is_unused) {
                        run.end(&mut state);
                        continue;
                    }
                    lingers = (!is_wanted).then(|| (now + self.limits.linger, state.wanted));
                    state.observer.iter_mut().for_each(|observer| observer.is_lingering = !is_wanted);
                }
                Err(error) => {
                    run.end(&mut self.lock());
                    tracing::warn!(target: "volt::observe", %error, "the control socket was closed, because polling it failed: consoles cannot attach until another runtime is built");
                }
            }
        }
    }
}

/// A run of the observer's thread. It ends in order even if the thread panics, so that no thread
/// waits for it in vain.
struct Run<'a> {
    registry: &'a Registry,
    server: Option<Server>,
}

impl Run<'_> {
    fn end(&mut self, state: &mut State) {
        // Closes every connection and unlinks the socket.
        self.server = None;
        self.registry.count(|health| health.clients = 0);
        // Where observers linger, no thread waits for their end: they are detached.
        let joined = state.observer.take().filter(|_| self.registry.limits.linger.is_zero());
        state.ended.extend(joined.map(|observer| observer.thread));
        self.registry.changed.notify_all();
    }
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        if self.server.is_some() {
            self.end(&mut self.registry.lock());
        }
    }
}
