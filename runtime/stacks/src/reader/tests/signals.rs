//! Tests of the signal: coexistence with other handlers, threads that have it blocked, and what a
//! thread finds unchanged afterwards.

use super::*;

static PASSED_ON: AtomicUsize = AtomicUsize::new(0);

extern "C" fn count(_signal: c_int) {
    PASSED_ON.fetch_add(1, Ordering::Relaxed);
}

#[test]
fn a_foreign_signal_goes_to_the_previous_handler() {
    let signal = own_signal(5);
    handle(signal, 0, count);
    let sampler = Sampler::new(Some(signal)).unwrap();
    let _again = Sampler::new(Some(signal)).unwrap();
    let registered = sampler.register().unwrap();
    raise(signal);
    assert_eq!(PASSED_ON.load(Ordering::Relaxed), 1);
    assert!(sampler.capture(registered.thread(), TIMEOUT).is_ok());
    assert_eq!(PASSED_ON.load(Ordering::Relaxed), 1, "ours was passed on");
}

fn is_blocked(signal: c_int) -> bool {
    let mut now = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: nothing is changed, and there is room for the set of blocked signals.
    assert_eq!(unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, ptr::null(), now.as_mut_ptr()) }, 0);
    // SAFETY: it was written.
    unsafe { libc::sigismember(now.as_ptr(), signal) == 1 }
}

#[test]
fn a_handler_before_ours_runs_with_its_own_mask() {
    let (asked_for, blocked, other) = (libc::SIGUSR1, libc::SIGUSR2, libc::SIGWINCH);
    mask(libc::SIG_BLOCK, blocked);
    for (signal, flags) in [(own_signal(9), 0), (own_signal(10), libc::SA_NODEFER)] {
        handle_with_mask(signal, flags, asked_for, do_in_handler);
        let _sampler = Sampler::new(Some(signal)).unwrap();
        let which = || [signal, asked_for, blocked, other].map(is_blocked);
        let seen = Cell::new([true; 4]);
        with_handler(&|| seen.set(which()), || raise(signal));
        assert_eq!(seen.get(), [flags == 0, true, true, false], "in the handler");
        assert_eq!(which(), [false, false, true, false], "afterwards");
    }
}

#[test]
fn a_handler_installed_over_ours_is_named_as_the_cause() {
    let signal = own_signal(6);
    let sampler = Sampler::new(Some(signal)).unwrap();
    let registered = sampler.register().unwrap();
    handle(signal, 0, do_in_handler);
    let error = no_answer(&sampler, registered.thread());
    assert!(matches!(error, CaptureError::NoAnswer { is_replaced: true, .. }), "{error:?}");
    assert!(error.to_string().contains("another handler was installed"), "{error}");
}

#[test]
fn a_signal_that_cannot_be_used_is_refused() {
    for signal in [-1, 0, libc::SIGSEGV, libc::SIGKILL, 32, 65, 1000] {
        assert!(Sampler::new(Some(signal)).is_err(), "{signal}");
    }
}

/// Returns the address of this thread's error number.
fn errno() -> *mut c_int {
    // SAFETY: every thread has one.
    unsafe { libc::__errno_location() }
}

extern "C" fn fail(_signal: c_int) {
    // SAFETY: it belongs to this thread.
    unsafe { errno().write(libc::EIO) };
}

#[test]
fn the_error_number_of_the_thread_stays() {
    const OWN: c_int = 4711;
    let signal = own_signal(7);
    handle(signal, 0, fail);
    let sampler = Sampler::new(Some(signal)).unwrap();
    let registered = sampler.register().unwrap();
    // SAFETY: it belongs to this thread.
    unsafe { errno().write(OWN) };
    raise(signal);
    // SAFETY: likewise.
    assert_eq!(unsafe { errno().read() }, OWN, "after the handler that was there before");
    sampler.capture(registered.thread(), TIMEOUT).unwrap();
}

#[test]
fn registering_unblocks_the_signal_and_dropping_restores_it() {
    let signal = own_signal(8);
    let sampler = Sampler::new(Some(signal)).unwrap();
    mask(libc::SIG_BLOCK, signal);
    let registered = sampler.register().unwrap();
    assert!(sampler.capture(registered.thread(), TIMEOUT).is_ok());
    drop(registered);
    assert!(mask(libc::SIG_UNBLOCK, signal), "it was not blocked");
}
