//! Volt inside another program: a library with a C interface, which `embedded.py` loads.
//!
//! An extension module of Python has the same form: the interpreter loads the library at run time,
//! calls it from any of its threads, may fork, and may exit while tasks run. Three rules follow,
//! and each function here obeys them:
//! * The library owns its runtimes, and the host has only handles of them.
//! * No panic crosses the border, since that would abort the host. A panic becomes an error code.
//! * A call waits in `block_on`, so the host must not hold a lock meanwhile that others need. The
//!   calls of `ctypes` release Python's interpreter lock; in PyO3, call `Python::detach`.
//!
//! `cargo build -p volt-examples --example embedded`, then
//! `python3 examples/examples/embedded.py target/debug/examples/libembedded.so`.

use std::ffi::{CStr, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use volt::Runtime;

/// The result of a call that panicked, for example in a forked child.
const PANICKED: i64 = -1;
/// The result of a task that failed.
const FAILED: i64 = -2;

/// Runs `f`, and returns [`PANICKED`] if it panics.
fn guarded(f: impl FnOnce() -> i64) -> i64 {
    // Unwind safe: what `f` has changed is state of the runtime, which contains panics of its
    // tasks itself.
    catch_unwind(AssertUnwindSafe(f)).unwrap_or(PANICKED)
}

/// Starts a runtime. Returns null if it cannot be started.
///
/// # Safety
/// `name` is a string that ends with NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn embedded_start(name: *const c_char, workers: c_int) -> *mut Runtime {
    // SAFETY: see above.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
    let build = move || {
        let builder = volt::Builder::new_multi_thread().worker_threads(usize::try_from(workers).unwrap_or(0));
        builder.name(name).build().map_or(std::ptr::null_mut(), |runtime| Box::into_raw(Box::new(runtime)))
    };
    catch_unwind(build).unwrap_or(std::ptr::null_mut())
}

/// Runs one task for each number below `count`, and returns the sum of the numbers.
///
/// # Safety
/// `runtime` is from [`embedded_start`], and was not stopped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn embedded_sum(runtime: *const Runtime, count: i64) -> i64 {
    // SAFETY: see above.
    let runtime = unsafe { &*runtime };
    guarded(|| {
        runtime.block_on(async {
            let tasks: Vec<_> = (0..count).map(|number| volt::spawn(async move { number })).collect();
            let mut sum = 0;
            for task in tasks {
                sum += task.await.unwrap_or(FAILED);
            }
            sum
        })
    })
}

/// Spawns a task that never ends. Returns 0.
///
/// # Safety
/// `runtime` is from [`embedded_start`], and was not stopped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn embedded_tick_forever(runtime: *const Runtime) -> i64 {
    // SAFETY: see above.
    let runtime = unsafe { &*runtime };
    guarded(|| {
        runtime.spawn(async {
            loop {
                volt::time::sleep(Duration::from_millis(1)).await;
            }
        });
        0
    })
}

/// Spawns a task that blocks its worker for some milliseconds, and waits for it. Returns how many
/// incidents of this runtime have a line of this file in their stack so far: a stack is resolved a
/// moment after the poll.
///
/// # Safety
/// `runtime` is from [`embedded_start`], and was not stopped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn embedded_block(runtime: *const Runtime, milliseconds: i64) -> i64 {
    // SAFETY: see above.
    let runtime = unsafe { &*runtime };
    guarded(|| {
        let time = Duration::from_millis(u64::try_from(milliseconds).unwrap_or(0));
        let task = runtime.spawn(async move { std::thread::sleep(time) });
        if runtime.block_on(task).is_err() {
            return FAILED;
        }
        let incidents = runtime.handle().snapshot().incidents.latest;
        let is_here = |file: &Option<String>| file.as_ref().is_some_and(|file| file.ends_with("embedded.rs"));
        let named = incidents.iter().filter(|incident| incident.stack.iter().any(|frame| is_here(&frame.file)));
        i64::try_from(named.count()).unwrap_or(FAILED)
    })
}

/// Stops the runtime: cancels its tasks, and waits for its threads.
///
/// # Safety
/// `runtime` is from [`embedded_start`], and is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn embedded_stop(runtime: *mut Runtime) -> i64 {
    // SAFETY: see above.
    let runtime = unsafe { Box::from_raw(runtime) };
    guarded(|| {
        drop(runtime);
        0
    })
}
