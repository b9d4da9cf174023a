//! Every public item of `super::runtime`: nothing here runs, but all of it has to compile with
//! Volt's types and with Tokio's.

#![allow(clippy::let_underscore_future, reason = "only the types matter")]

use std::error::Error;
use std::fmt::{Debug, Display};
use std::future::{Ready, ready};
use std::hash::Hash;
use std::hint::black_box;
use std::io;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::ptr;
use std::time::Duration;

use super::runtime::{
    self, Builder, EnterGuard, Handle, Id, LocalOptions, LocalRuntime, Runtime, RuntimeFlavor, RuntimeMetrics,
    TryCurrentError,
};
use super::task::JoinHandle;

fn is_shared<T: Debug + Send + Sync + UnwindSafe + RefUnwindSafe>() {}
fn is_unwind_safe<T: UnwindSafe + RefUnwindSafe>() {}
fn is_debug<T: Debug>() {}
fn is_clone<T: Clone>() {}
fn is_default<T: Default>() {}
fn is_id<T: Copy + Debug + Display + Eq + Hash>() {}
fn is_flavor<T: Debug + Eq>() {}
fn is_error<T: Error + Send + Sync>() {}

/// Refers to all that follows.
pub fn all() {
    black_box((traits, builder, hooks, build, runtime, ends, handle, local_runtime, metrics, functions));
}

fn traits() {
    is_shared::<Runtime>();
    is_shared::<Handle>();
    is_clone::<Handle>();
    is_debug::<EnterGuard<'_>>();
    is_debug::<LocalRuntime>();
    is_unwind_safe::<LocalRuntime>();
    is_default::<LocalOptions>();
    is_debug::<Builder>();
    is_debug::<RuntimeMetrics>();
    is_clone::<RuntimeMetrics>();
    is_id::<Id>();
    is_flavor::<RuntimeFlavor>();
    is_error::<TryCurrentError>();
}

fn builder() {
    let _ = Builder::new_multi_thread()
        .enable_all()
        .enable_io()
        .enable_time()
        .worker_threads(1)
        .max_blocking_threads(1)
        .thread_name("name")
        .thread_name(String::new())
        .thread_name_fn(String::new)
        .name("name")
        .thread_stack_size(1)
        .thread_keep_alive(Duration::ZERO)
        .global_queue_interval(1)
        .event_interval(1)
        .max_io_events_per_tick(1);
}

fn hooks() {
    let _ = Builder::new_current_thread()
        .on_thread_start(|| {})
        .on_thread_stop(|| {})
        .on_thread_park(|| {})
        .on_thread_unpark(|| {});
}

fn build() {
    let built: Option<Runtime> = Builder::new_multi_thread().build().ok();
    let local: Option<LocalRuntime> = Builder::new_current_thread().build_local(LocalOptions::default()).ok();
    drop((built, local));
    let _: (Option<Runtime>, Option<LocalRuntime>) = (Runtime::new().ok(), LocalRuntime::new().ok());
}

fn runtime(runtime: &Runtime) {
    let _: &Handle = runtime.handle();
    let _: JoinHandle<u8> = runtime.spawn::<Ready<u8>>(ready(0));
    let _: JoinHandle<u8> = runtime.spawn_blocking::<_, u8>(|| 0);
    let _: *const u8 = runtime.block_on::<Ready<*const u8>>(ready(ptr::null()));
    let _: EnterGuard<'_> = runtime.enter();
    let _: RuntimeMetrics = runtime.metrics();
}

fn ends(first: Runtime, second: Runtime, third: LocalRuntime, fourth: LocalRuntime) {
    first.shutdown_timeout(Duration::ZERO);
    second.shutdown_background();
    third.shutdown_timeout(Duration::ZERO);
    fourth.shutdown_background();
}

fn handle(handle: &Handle) -> Result<(), TryCurrentError> {
    let _: EnterGuard<'_> = handle.enter();
    let _: Handle = Handle::current();
    let current: Result<Handle, TryCurrentError> = Handle::try_current();
    if let Err(error) = &current {
        let _: (bool, bool) = (error.is_missing_context(), error.is_thread_local_destroyed());
    }
    current?;
    let _: JoinHandle<u8> = handle.spawn::<Ready<u8>>(ready(0));
    let _: JoinHandle<u8> = handle.spawn_blocking::<_, u8>(|| 0);
    let _: *const u8 = handle.block_on::<Ready<*const u8>>(ready(ptr::null()));
    let _: bool = handle.runtime_flavor() == RuntimeFlavor::CurrentThread;
    let _: bool = handle.runtime_flavor() == RuntimeFlavor::MultiThread;
    let _: (Id, Option<&str>, RuntimeMetrics) = (handle.id(), handle.name(), handle.metrics());
    Ok(())
}

fn local_runtime(runtime: &LocalRuntime) {
    let _: &Handle = runtime.handle();
    let _: JoinHandle<*const u8> = runtime.spawn_local::<Ready<*const u8>>(ready(ptr::null()));
    let _: JoinHandle<u8> = runtime.spawn_blocking::<_, u8>(|| 0);
    let _: *const u8 = runtime.block_on::<Ready<*const u8>>(ready(ptr::null()));
    let _: EnterGuard<'_> = runtime.enter();
    let _: RuntimeMetrics = runtime.metrics();
}

fn metrics(metrics: &RuntimeMetrics) {
    let _: (usize, usize, usize) = (metrics.num_workers(), metrics.num_alive_tasks(), metrics.global_queue_depth());
    let _: Duration = metrics.worker_total_busy_duration(0);
    let _: (u64, u64) = (metrics.worker_park_count(0), metrics.worker_park_unpark_count(0));
}

fn functions(error: &io::Error) {
    let _: Option<usize> = runtime::worker_index();
    let _: bool = runtime::is_rt_shutdown_err(error);
}
