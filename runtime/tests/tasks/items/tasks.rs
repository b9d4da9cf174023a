//! Every public item of `super::task` for single tasks and their values, and the macros: nothing
//! here runs, but all of it has to compile with Volt's types and with Tokio's.

#![allow(clippy::let_underscore_future, reason = "only the types matter")]

use std::any::Any;
use std::cell::Cell;
use std::error::Error;
use std::fmt::{Debug, Display};
use std::future::{Future, Ready, pending, ready};
use std::hash::Hash;
use std::hint::black_box;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::pin::Pin;
use std::task::{Context, Poll};

use super::task::coop::{self, Coop, RestoreOnPending, Unconstrained};
use super::task::futures::TaskLocalFuture;
use super::task::{self, AbortHandle, Id, JoinError, JoinHandle, LocalKey};
use super::this;

/// A value that is `Send`, and neither `Sync`, `Clone`, `Debug` nor comparable.
struct Plain(#[expect(dead_code, reason = "it makes the type what it is")] Cell<u8>);

fn is_shared<T: Send + Sync>() {}
fn is_clone<T: Clone>() {}
fn is_debug<T: Debug>() {}
fn is_unpin<T: Unpin>() {}
fn is_unwind_safe<T: UnwindSafe + RefUnwindSafe>() {}
fn is_value<T: Copy + Debug + Display + Eq + Hash + Send + Sync>() {}
fn is_error<T: Error + Send + Sync + Into<std::io::Error>>() {}
fn is_future<F: Future<Output = T>, T>() {}
fn is_same<T>(_: T, _: T) {}

/// Ambiguous for types that are `Unpin`, so that only the others compile.
trait NotUnpin<A> {
    fn check() {}
}
struct Is;
impl<T> NotUnpin<()> for T {}
impl<T: Unpin> NotUnpin<Is> for T {}

/// Refers to all that follows.
pub fn all() {
    black_box((traits, functions, join_handle, abort_handle, join_error, keys, key, budget, macros));
}

fn traits() {
    is_shared::<JoinHandle<Plain>>();
    is_unpin::<JoinHandle<Plain>>();
    is_unwind_safe::<JoinHandle<Plain>>();
    is_future::<JoinHandle<Plain>, Result<Plain, JoinError>>();
    is_debug::<JoinHandle<u8>>();
    is_shared::<AbortHandle>();
    is_clone::<AbortHandle>();
    is_debug::<AbortHandle>();
    is_unwind_safe::<AbortHandle>();
    is_value::<Id>();
    is_error::<JoinError>();
    is_debug::<LocalKey<u8>>();
    is_debug::<TaskLocalFuture<u8, Plain>>();
    is_future::<TaskLocalFuture<Plain, Ready<u8>>, u8>();
    <TaskLocalFuture<u8, Ready<u8>> as NotUnpin<_>>::check();
    is_future::<Unconstrained<Ready<u8>>, u8>();
    is_future::<Coop<Ready<u8>>, u8>();
    is_debug::<RestoreOnPending>();
}

async fn functions() {
    let _: JoinHandle<Plain> = task::spawn::<Ready<Plain>>(ready(Plain(Cell::new(0))));
    let _: JoinHandle<()> = this::spawn(pending());
    let _: JoinHandle<u8> = task::spawn_blocking::<_, u8>(|| 0);
    let _: JoinHandle<*const u8> = task::spawn_local::<Ready<*const u8>>(ready(std::ptr::null()));
    let _: u8 = task::block_in_place::<_, u8>(|| 0);
    let _: Id = task::id();
    let _: Option<Id> = task::try_id();
    let () = task::yield_now().await;
}

fn join_handle(handle: JoinHandle<Plain>) {
    handle.abort();
    let _: (bool, Id) = (handle.is_finished(), handle.id());
    let _: AbortHandle = handle.abort_handle();
}

fn abort_handle(handle: &AbortHandle) {
    handle.abort();
    let _: (bool, Id) = (handle.is_finished(), handle.id());
}

fn join_error(error: JoinError, another: JoinError) -> Result<(), JoinError> {
    let _: (bool, bool, Id) = (error.is_cancelled(), error.is_panic(), error.id());
    let _: Box<dyn Any + Send + 'static> = error.try_into_panic()?;
    let _: Box<dyn Any + Send + 'static> = another.into_panic();
    Ok(())
}

fn keys() {
    this::task_local! {
        /// With attributes, and visible to others.
        pub(crate) static VISIBLE: u8;
        static HIDDEN: Plain;
    }
    this::task_local! { static ALONE: Cell<u8> }
    let _: (&'static LocalKey<u8>, &'static LocalKey<Plain>, &'static LocalKey<Cell<u8>>) = (&VISIBLE, &HIDDEN, &ALONE);
}

fn key(key: &'static LocalKey<u8>) {
    let mut future: Pin<Box<TaskLocalFuture<u8, Ready<u8>>>> = Box::pin(key.scope::<Ready<u8>>(0, ready(0)));
    let _: Option<u8> = future.as_mut().take_value();
    let _: u8 = key.sync_scope::<_, u8>(0, || 0);
    let _: u8 = key.with::<_, u8>(|value: &u8| *value);
    let _: u8 = key.get();
    let Err(error) = key.try_with::<_, u8>(|value: &u8| *value) else { return };
    let Err(another) = key.try_get() else { return };
    let copy = error;
    let _: bool = copy == error;
    is_same(error, another);
    let _: Box<dyn Error + Send + Sync> = Box::new(error);
}

async fn budget(cx: &mut Context<'_>) {
    let _: bool = coop::has_budget_remaining();
    let () = coop::consume_budget().await;
    let _: Unconstrained<Ready<u8>> = coop::unconstrained(ready(0));
    let _: Coop<Ready<u8>> = coop::cooperative(ready(0));
    let Poll::Ready(unit) = coop::poll_proceed(cx) else { return };
    let _: RestoreOnPending = unit;
    unit.made_progress();
}

async fn macros() -> Result<(), ()> {
    let future = pending::<u8>();
    this::pin!(future);
    let _: Pin<&mut _> = future.as_mut();
    this::pin! {
        let another = pending::<u8>();
    }
    let _: Pin<&mut _> = another.as_mut();
    let _: (u8, bool) = this::join!(ready(0), ready(true));
    let _: (u8, bool) = this::join!(biased; ready(0), ready(true));
    let both: Result<(u8, bool), ()> = this::try_join!(ready(Ok::<_, ()>(0)), ready(Ok(true)));
    let _: (u8, bool) = both?;
    let _: u8 = this::select! {
        biased;
        value = ready(0), if true => value,
        Some(value) = ready(Some(1)) => value,
        else => 2,
    };
    Ok(())
}
