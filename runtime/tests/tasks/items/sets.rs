//! Every public item of `super::task` for sets of tasks: nothing here runs, but all of it has to
//! compile with Volt's types and with Tokio's.

#![allow(clippy::let_underscore_future, reason = "only the types matter")]

use std::cell::Cell;
use std::fmt::Debug;
use std::future::{Future, Ready, ready};
use std::hint::black_box;
use std::ptr;
use std::rc::Rc;
use std::task::{Context, Poll};

use super::runtime::{Handle, Id as RuntimeId, Runtime};
use super::task::{AbortHandle, Id, JoinError, JoinHandle, JoinSet, LocalEnterGuard, LocalSet};

/// A value that is `Send`, and neither `Sync`, `Clone`, `Debug` nor comparable.
struct Plain(#[expect(dead_code, reason = "it makes the type what it is")] Cell<u8>);

type Output = Result<Plain, JoinError>;

fn is_shared<T: Send + Sync>() {}
fn is_debug<T: Debug>() {}
fn is_default<T: Default>() {}
fn is_unpin<T: Unpin>() {}
fn is_future<F: Future<Output = T>, T>() {}
fn collects<C: FromIterator<F> + Extend<F>, F: Future>() {}

/// Refers to all that follows.
pub fn all() {
    black_box((traits, spawns, joins, local_spawns, ends, local_set));
}

fn traits() {
    is_shared::<JoinSet<Plain>>();
    is_debug::<JoinSet<Plain>>();
    is_default::<JoinSet<Plain>>();
    is_unpin::<JoinSet<Plain>>();
    collects::<JoinSet<Plain>, Ready<Plain>>();
    is_debug::<LocalSet>();
    is_default::<LocalSet>();
    is_unpin::<LocalSet>();
    is_future::<LocalSet, ()>();
    is_debug::<LocalEnterGuard>();
}

fn spawns(set: &mut JoinSet<Plain>, handle: &Handle) {
    let _: JoinSet<Plain> = JoinSet::new();
    let _: (usize, bool) = (set.len(), set.is_empty());
    let _: AbortHandle = set.spawn::<Ready<Plain>>(ready(Plain(Cell::new(0))));
    let _: AbortHandle = set.spawn_on::<Ready<Plain>>(ready(Plain(Cell::new(0))), handle);
    let _: AbortHandle = set.spawn_blocking(|| Plain(Cell::new(0)));
    let _: AbortHandle = set.spawn_blocking_on(|| Plain(Cell::new(0)), handle);
}

fn local_spawns(set: &mut JoinSet<Rc<u8>>, local: &LocalSet) {
    let _: AbortHandle = set.spawn_local::<Ready<Rc<u8>>>(ready(Rc::new(0)));
    let _: AbortHandle = set.spawn_local_on::<Ready<Rc<u8>>>(ready(Rc::new(0)), local);
}

async fn joins(set: &mut JoinSet<Plain>, cx: &mut Context<'_>) {
    let _: Option<Output> = set.join_next().await;
    let _: Option<Result<(Id, Plain), JoinError>> = set.join_next_with_id().await;
    let _: Option<Output> = set.try_join_next();
    let _: Option<Result<(Id, Plain), JoinError>> = set.try_join_next_with_id();
    let _: Poll<Option<Output>> = set.poll_join_next(cx);
    let _: Poll<Option<Result<(Id, Plain), JoinError>>> = set.poll_join_next_with_id(cx);
}

async fn ends(mut set: JoinSet<Plain>) {
    set.abort_all();
    set.detach_all();
    let () = set.shutdown().await;
    let _: Vec<Plain> = set.join_all().await;
}

async fn local_set(runtime: &Runtime) {
    let set: LocalSet = LocalSet::new();
    let _: LocalEnterGuard = set.enter();
    let _: JoinHandle<*const u8> = set.spawn_local::<Ready<*const u8>>(ready(ptr::null()));
    let _: *const u8 = set.block_on::<Ready<*const u8>>(runtime, ready(ptr::null()));
    let _: *const u8 = set.run_until::<Ready<*const u8>>(ready(ptr::null())).await;
    let _: RuntimeId = set.id();
}
