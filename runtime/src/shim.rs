//! What the protocols stand on: std's atomics, cells and locks, or loom's when a model explores them (`--cfg loom`).
//!
//! Every file that has a loom model beside it takes these types from here and from nowhere else. Locks here ignore poison:
//! no lock of the runtime is held while code of the user runs, so a panic never leaves one half-changed.

pub(crate) use imp::*;

#[cfg(not(loom))]
mod imp {
    pub(crate) use std::sync::Arc;
    #[cfg(any(test, miri, not(target_os = "linux")))]
    pub(crate) use std::sync::Condvar;
    pub(crate) use std::sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
    };

    /// A `const fn`, but under loom, whose atomics have none.
    macro_rules! const_new {
        ($(#[$meta:meta])* $vis:vis fn $name:ident($($arguments:tt)*) -> Self $body:block) => {
            $(#[$meta])* $vis const fn $name($($arguments)*) -> Self $body
        };
    }
    pub(crate) use const_new;

    /// An `UnsafeCell` whose accesses loom can watch.
    #[derive(Debug, Default)]
    #[repr(transparent)]
    pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        pub(crate) const fn new(value: T) -> Self {
            Self(std::cell::UnsafeCell::new(value))
        }

        /// Calls `f` with a pointer for reading.
        #[inline]
        pub(crate) fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
            f(self.0.get())
        }

        /// Calls `f` with a pointer for writing.
        #[inline]
        pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
            f(self.0.get())
        }
    }
}

#[cfg(loom)]
mod imp {
    pub(crate) use loom::cell::UnsafeCell;
    pub(crate) use loom::sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
    };
    pub(crate) use loom::sync::{Arc, Condvar};

    macro_rules! const_new {
        ($(#[$meta:meta])* $vis:vis fn $name:ident($($arguments:tt)*) -> Self $body:block) => {
            $(#[$meta])* $vis fn $name($($arguments)*) -> Self $body
        };
    }
    pub(crate) use const_new;
}

/// A lock that ignores poison.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(Lock<T>);

#[cfg(loom)]
use loom::sync::{Mutex as Lock, MutexGuard as Guard};
#[cfg(not(loom))]
use std::sync::{Mutex as Lock, MutexGuard as Guard};

/// What [`Mutex::lock`] gives.
pub(crate) type MutexGuard<'a, T> = Guard<'a, T>;

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Lock::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(std::sync::TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(std::sync::TryLockError::WouldBlock) => None,
        }
    }
}

/// Keeps what is inside on cache lines of its own: 128 bytes, since processors fetch lines in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct CachePadded<T>(pub(crate) T);

impl<T> std::ops::Deref for CachePadded<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// How the loom models are run.
#[cfg(all(test, loom))]
pub(crate) mod explore {
    use std::process::Command;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Instant;
    use std::{env, thread};

    /// The most preemptions tried in one order, switches away from a thread that could go on,
    /// unless `LOOM_MAX_PREEMPTIONS` says otherwise.
    const PREEMPTIONS: usize = 3;
    /// With `full`, models that have a lower bound get one preemption more. Without it they take a
    /// minute at most.
    const FORM: &str = "VOLT_GATE";
    /// Set in a process that runs a model with a fault put in.
    const IN_CHILD: &str = "VOLT_LOOM_FAULT";

    /// Runs `model` in every order of its threads with at most [`PREEMPTIONS`]. `preemptions` is a
    /// lower bound, for models with so many threads or steps that the usual one takes minutes.
    ///
    /// # Panics
    ///
    /// If one order panics or ends with threads that wait for ever; or if there was only one, which means that nothing was explored.
    pub(crate) fn holds(preemptions: Option<usize>, model: impl Fn() + Send + Sync + 'static) {
        let orders = explore(preemptions, model);
        assert!(orders > 1, "the model has one order only");
    }

    /// Runs `model`, which has a fault put in, and requires that some order fails with `failure` in its message. Once a test.
    ///
    /// In a process of its own: loom, when it gives up on threads that wait for ever, drops what they hold, and that aborts.
    ///
    /// # Panics
    ///
    /// If no order fails, or one fails otherwise.
    pub(crate) fn breaks(failure: &str, preemptions: Option<usize>, model: impl Fn() + Send + Sync + 'static) {
        if env::var_os(IN_CHILD).is_some() {
            explore(preemptions, model);
            return;
        }
        let test = thread::current().name().expect("the test harness names its threads").to_owned();
        let child = Command::new(env::current_exe().unwrap())
            .args([&test, "--exact", "--nocapture"])
            .env(IN_CHILD, "1")
            .env("RUST_BACKTRACE", "0")
            .output()
            .unwrap();
        let output = [child.stdout, child.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
        assert!(!child.status.success() && output.contains(failure), "expected \"{failure}\", but:\n{output}");
    }

    fn explore(preemptions: Option<usize>, model: impl Fn() + Send + Sync + 'static) -> usize {
        let is_full = env::var_os(FORM).is_some_and(|form| form == "full");
        let mut builder = loom::model::Builder::new();
        let usual = builder.preemption_bound.unwrap_or(PREEMPTIONS);
        let bound = preemptions.map_or(usual, |lower| lower + usize::from(is_full));
        builder.preemption_bound = Some(bound);
        let orders = Arc::new(AtomicUsize::new(0));
        let counted = orders.clone();
        let began = Instant::now();
        builder.check(move || {
            counted.fetch_add(1, Ordering::Relaxed);
            model();
        });
        let orders = orders.load(Ordering::Relaxed);
        println!("{orders} orders with at most {bound} preemptions in {:.1} s", began.elapsed().as_secs_f64());
        orders
    }
}
