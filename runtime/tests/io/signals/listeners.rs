//! Signals of the operating system, through the public API. Each test runs in a separate program,
//! since signals reach the whole program.

use crate::watchdog;
use std::io::ErrorKind;
use std::time::Duration;

use crate::watchdog::{alone, watched, with_workers};
use rustix::process::{Signal, getpid, kill_process};
use volt::signal::unix::{SignalKind, signal};
use volt::time::timeout;

const SOON: Duration = Duration::from_millis(20);

fn raise(signal: Signal) {
    kill_process(getpid(), signal).unwrap();
}

/// Raises a signal in this thread. The handler has run when this returns.
fn handle(number: i32) {
    // SAFETY: a call of the C library without pointers.
    assert_eq!(unsafe { libc::raise(number) }, 0);
}

#[test]
fn every_signal_listener_gets_each_burst_at_least_once() {
    alone(|| {
        with_workers(|runtime| {
            runtime.block_on(async {
                let mut listeners = Vec::new();
                for _ in 0..3 {
                    listeners.push(signal(SignalKind::user_defined1()).unwrap());
                }
                let mut others = signal(SignalKind::user_defined2()).unwrap();
                for burst in [1, 1, 100_000] {
                    (0..burst).for_each(|_| raise(Signal::USR1));
                    for listener in &mut listeners {
                        listener.recv().await.unwrap();
                    }
                }
                for listener in &mut listeners {
                    // A signal that the last read left in the pipe; then nothing comes.
                    while timeout(SOON, listener.recv()).await.is_ok() {}
                }
                assert!(timeout(SOON, others.recv()).await.is_err(), "that was another signal");
            });
            assert_eq!(runtime.handle().snapshot().driver.registrations, 0);
        });
    });
}

#[test]
fn a_signal_that_comes_between_two_calls_is_not_lost() {
    alone(|| {
        with_workers(|runtime| {
            runtime.block_on(async {
                let mut listener = signal(SignalKind::hangup()).unwrap();
                for _ in 0..100 {
                    raise(Signal::HUP);
                    listener.recv().await.unwrap();
                }
                assert!(timeout(Duration::ZERO, listener.recv()).await.is_err());
                raise(Signal::HUP);
                listener.recv().await.unwrap();
            });
        });
    });
}

#[test]
fn a_signal_between_two_listeners_reaches_the_second() {
    alone(|| {
        with_workers(|runtime| {
            runtime.block_on(async {
                let kind = SignalKind::window_change();
                drop(signal(kind).unwrap());
                handle(libc::SIGWINCH);
                let mut listener = signal(kind).unwrap();
                listener.recv().await.unwrap();
                // Reported once, also to listeners that are created later.
                for mut listener in [listener, signal(kind).unwrap()] {
                    assert!(timeout(SOON, listener.recv()).await.is_err(), "it was reported twice");
                }
            });
        });
    });
}

#[test]
fn a_signal_in_a_dropped_listener_reaches_the_next() {
    alone(|| {
        with_workers(|runtime| {
            runtime.block_on(async {
                let kind = SignalKind::window_change();
                let unpolled = signal(kind).unwrap();
                handle(libc::SIGWINCH);
                drop(unpolled);
                signal(kind).unwrap().recv().await.unwrap();
            });
        });
    });
}

#[test]
fn signals_reach_all_runtimes_after_one_has_shut_down() {
    alone(|| {
        watched(|| {
            let (one, other) = (watchdog::runtime(1), watchdog::runtime(2));
            let listen = |runtime: &volt::Runtime| runtime.block_on(async { signal(SignalKind::terminate()).unwrap() });
            let (mut first, mut second) = (listen(&one), listen(&other));
            raise(Signal::TERM);
            one.block_on(first.recv()).unwrap();
            other.block_on(second.recv()).unwrap();
            drop(one);
            assert_eq!(other.block_on(first.recv()), None, "its runtime was shut down");
            raise(Signal::TERM);
            other.block_on(second.recv()).unwrap();
            drop(first);
            raise(Signal::TERM);
            other.block_on(second.recv()).unwrap();
        });
    });
}

#[test]
fn ctrl_c_completes_and_the_program_continues() {
    alone(|| {
        with_workers(|runtime| {
            runtime.block_on(async {
                let mut listening = signal(SignalKind::interrupt()).unwrap();
                let waits = volt::spawn(volt::signal::ctrl_c());
                while !waits.is_finished() {
                    raise(Signal::INT);
                    listening.recv().await.unwrap();
                }
                waits.await.unwrap().unwrap();
            });
        });
    });
}

#[test]
fn signals_that_cannot_be_handled_are_errors() {
    alone(|| {
        with_workers(|runtime| {
            runtime.block_on(async {
                for number in [9, 11, 19, 0, 100, 1000, -1] {
                    let error = signal(SignalKind::from_raw(number)).unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{number}: {error}");
                    assert!(error.to_string().contains(&number.to_string()), "{error}");
                }
            });
        });
    });
}

#[test]
fn a_forked_childs_signals_are_its_own() {
    alone(|| {
        watched(|| {
            let runtime = watchdog::runtime(1);
            let mut listener = runtime.block_on(async { signal(SignalKind::user_defined1()).unwrap() });
            // SAFETY: the child only calls functions that are allowed in a copy of a program with
            // several threads, or that concern only this thread, and ends.
            let child = unsafe { libc::fork() };
            if child == 0 {
                raise(Signal::USR1);
                // SAFETY: ends the program immediately.
                unsafe { libc::_exit(0) };
            }
            let mut status = 0;
            // SAFETY: waits for the child above.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            assert_eq!(status, 0);
            runtime.block_on(async {
                assert!(timeout(SOON, listener.recv()).await.is_err(), "the child's signal came to its parent");
                raise(Signal::USR1);
                listener.recv().await.unwrap();
            });
        });
    });
}
