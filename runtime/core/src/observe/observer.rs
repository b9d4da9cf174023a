//! The observer's thread: it starts with the first runtime that wants a control socket, and ends
//! when no runtime needs it.

use std::io;
use std::sync::{Arc, Weak};
use std::thread;

use mio::{Poll, Waker};

use super::listener::Listener;
use super::registry::{Observed, Observer, Registration, Registry, State};
use super::server::{self, Server};

/// Name of the observer's thread.
const THREAD_NAME: &str = "volt-observer";

impl Registration {
    /// Makes the runtime visible to observers, and opens a control socket if it wants one.
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
        let started = if open_socket { self.start(&mut state) } else { Ok(()) };
        drop(state);
        self.changed.notify_all();
        // After unlocking: a log subscriber is foreign code.
        if let Err(error) = started {
            tracing::warn!(
                target: "volt::observe",
                %error,
                "no control socket: consoles cannot attach until another runtime is built; the program runs on"
            );
        }
    }

    fn start(self: &Arc<Self>, state: &mut State) -> io::Result<()> {
        if state.observer.is_some() {
            return Ok(());
        }
        let listener = Listener::open(&(self.environment)())?;
        let path = listener.path().to_path_buf();
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), server::WAKER)?;
        let server = Server::new(poll, listener, self.limits)?;
        let registry = Arc::clone(self);
        let thread = thread::Builder::new().name(THREAD_NAME.into()).spawn(move || registry.observe(server))?;
        state.observer = Some(Observer { thread, waker, path });
        Ok(())
    }

    /// The main function of the observer's thread.
    fn observe(&self, server: Server) {
        let mut run = Run { registry: self, server: Some(server) };
        while let Some(server) = &mut run.server {
            let turn = server.turn(self);
            match turn {
                Ok(false) => continue,
                Ok(true) => {
                    let mut state = self.lock();
                    if !state.is_observer_wanted() {
                        run.end(&mut state);
                    }
                }
                Err(error) => {
                    run.end(&mut self.lock());
                    tracing::warn!(target: "volt::observe", %error, "the control socket was closed: its poll failed");
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
        state.ended.extend(state.observer.take().map(|observer| observer.thread));
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
