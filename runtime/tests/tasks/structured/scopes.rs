//! Scopes: children that borrow nothing and end with their scope.

use super::*;

#[test]
fn a_scope_waits_for_all_its_children() {
    with_workers(|runtime| {
        let count = Arc::new(AtomicUsize::new(0));
        let inside = count.clone();
        let body = task::scope(async move |scope| {
            for _ in 0..50 {
                let (scope_of_child, count) = (scope.clone(), inside.clone());
                let _value = scope.spawn(async move {
                    yield_now().await;
                    // Grandchildren are awaited too.
                    let count_of_child = count.clone();
                    let _value = scope_of_child.spawn(async move {
                        yield_now().await;
                        count_of_child.fetch_add(1, Ordering::SeqCst);
                        Ok::<(), String>(())
                    });
                    count.fetch_add(1, Ordering::SeqCst);
                    Ok(())
                });
            }
            Ok("body")
        });
        assert_eq!(runtime.block_on(body).unwrap(), "body");
        assert_eq!(count.load(Ordering::SeqCst), 100);
    });
}

#[test]
fn the_first_error_cancels_the_scope_and_is_returned_last() {
    with_workers(|runtime| {
        let held = Arc::new(());
        let inside = held.clone();
        let result = runtime.block_on(task::scope::<(), _, _>(async move |scope| {
            for _ in 0..10 {
                let held = inside.clone();
                let _value = scope.spawn(async move {
                    let _held = held;
                    pending::<Result<(), String>>().await
                });
            }
            let failing = scope.spawn(async { Err::<(), _>("no".to_owned()) });
            failing.await;
            unreachable!("a child that fails never resolves");
        }));
        assert!(matches!(result, Err(ScopeError::Failed(error)) if error == "no"));
        assert_eq!(Arc::strong_count(&held), 1, "all children are dropped");

        let panicked = runtime.block_on(task::scope::<(), String, _>(async |scope| {
            let _value = scope.spawn(async { if true { panic!("child") } else { Ok(()) } });
            pending().await
        }));
        assert!(matches!(panicked, Err(ScopeError::Panicked(error)) if error.is_panic()));
    });
}

/// An error, or a future, that spawns one more child on its scope when it is dropped.
struct Reenters {
    scope: task::Scope<Reenters>,
    times: Arc<AtomicUsize>,
}

impl Drop for Reenters {
    fn drop(&mut self) {
        let _value = self.scope.spawn(async { Ok(()) });
        self.times.fetch_add(1, Ordering::SeqCst);
    }
}

impl Future for Reenters {
    type Output = Result<(), Reenters>;

    fn poll(self: std::pin::Pin<&mut Self>, _cx: &mut std::task::Context<'_>) -> std::task::Poll<Self::Output> {
        std::task::Poll::Pending
    }
}

#[test]
fn late_scope_errors_may_use_the_scope_in_drop() {
    with_workers(|runtime| {
        let times = Arc::new(AtomicUsize::new(0));
        let inside = times.clone();
        let first = runtime.block_on(task::scope::<(), _, _>(async move |scope| {
            for _ in 0..10 {
                let error = Reenters { scope: scope.clone(), times: inside.clone() };
                let _value = scope.spawn(async { Err::<(), _>(error) });
            }
            // All have failed before the scope polls the first.
            while volt::Handle::current().snapshot().tasks.completed < 10 {
                std::thread::yield_now();
            }
            pending().await
        }));
        assert_eq!(times.load(Ordering::SeqCst), 9, "all but the first, which is here");
        let _entered = runtime.enter();
        drop(first);
        assert_eq!(times.load(Ordering::SeqCst), 10);
    });
}

#[test]
fn a_scope_still_waits_if_a_late_error_panics_in_drop() {
    struct Bomb(Arc<AtomicUsize>, bool);
    impl Drop for Bomb {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
            if std::mem::take(&mut self.1) {
                std::panic::resume_unwind(Box::new("in drop"));
            }
        }
    }
    with_workers(|runtime| {
        let drops = Arc::new(AtomicUsize::new(0));
        let inside = drops.clone();
        let result = runtime.block_on(task::scope::<(), _, _>(async move |scope| {
            for _ in 0..10 {
                let drops = inside.clone();
                let _value = scope.spawn(async { Err::<(), _>(Bomb(drops, true)) });
            }
            while volt::Handle::current().snapshot().tasks.completed < 10 {
                std::thread::yield_now();
            }
            pending().await
        }));
        let Err(ScopeError::Failed(mut first)) = result else { panic!("the first error comes back") };
        first.1 = false;
        assert_eq!(drops.load(Ordering::SeqCst), 9);
    });
}

#[test]
fn a_child_refused_by_a_closed_runtime_may_use_scope_in_drop() {
    watched(|| {
        let (open, closed) = (runtime(1), runtime(1));
        let handle = closed.handle().clone();
        drop(closed);
        let times = Arc::new(AtomicUsize::new(0));
        let inside = times.clone();
        let result = open.block_on(task::scope(async move |scope| {
            let _entered = handle.enter();
            let _value = scope.spawn(Reenters { scope: scope.clone(), times: inside });
            Ok(())
        }));
        assert!(matches!(result, Err(ScopeError::Panicked(error)) if error.is_cancelled()));
        assert_eq!(times.load(Ordering::SeqCst), 1);
    });
}

#[test]
fn dropping_a_scope_aborts_children_that_refer_to_it() {
    with_workers(|runtime| {
        let (held, (scopes, given)) = (Arc::new(()), mpsc::channel());
        let child = |scope: &task::Scope<()>, held: &Arc<()>| {
            let held = (scope.clone(), held.clone());
            let _value = scope.spawn(async move {
                let _held = held;
                pending::<Result<(), ()>>().await
            });
        };
        let inside = held.clone();
        let mut scope = Box::pin(task::scope::<(), (), _>(async move |scope| {
            (0..10).for_each(|_| child(&scope, &inside));
            scopes.send(scope).unwrap();
            pending().await
        }));
        runtime.block_on(std::future::poll_fn(|cx| {
            assert!(scope.as_mut().poll(cx).is_pending());
            std::task::Poll::Ready(())
        }));
        // Ten that the scope has polled, one that it has not, and one that comes too late.
        let given = given.recv().unwrap();
        let _entered = runtime.enter();
        child(&given, &held);
        assert_eq!(Arc::strong_count(&held), 13);
        drop(scope);
        child(&given, &held);
        while Arc::strong_count(&held) > 1 {
            std::thread::yield_now();
        }
    });
}

#[test]
fn a_panicking_scope_body_cancels_its_children_first() {
    with_workers(|runtime| {
        let held = Arc::new(());
        let inside = held.clone();
        let body = runtime.spawn(task::scope::<(), (), _>(async move |scope| {
            for _ in 0..10 {
                let (scope_of_child, held) = (scope.clone(), inside.clone());
                let _value = scope.spawn(async move {
                    let _held = (scope_of_child, held);
                    pending::<Result<(), ()>>().await
                });
            }
            yield_now().await;
            panic!("the body")
        }));
        let error = runtime.block_on(body).unwrap_err();
        assert!(error.to_string().ends_with("panicked with message \"the body\""), "{error}");
        assert_eq!(Arc::strong_count(&held), 1, "all children are dropped");
    });
}

/// Takes longer to drop than its scope would take to end without it.
struct SlowToDrop(#[allow(dead_code, reason = "dropped")] Arc<()>);

impl Drop for SlowToDrop {
    fn drop(&mut self) {
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(20) {
            std::thread::yield_now();
        }
    }
}

#[test]
fn a_scope_waits_for_children_spawned_during_cancellation() {
    with_workers(|runtime| {
        let held = Arc::new(());
        let inside = held.clone();
        let result = runtime.block_on(task::scope::<(), &str, _>(async move |scope| {
            let (scope_of_child, (entered, has_entered)) = (scope.clone(), mpsc::channel());
            let _value = scope.spawn(async move {
                let shield = Shield::new().unwrap();
                entered.send(()).unwrap();
                volt::time::sleep(Duration::from_millis(20)).await;
                let slow = SlowToDrop(inside);
                let _value = scope_of_child.spawn(async move {
                    let _slow = slow;
                    pending::<Result<(), &str>>().await
                });
                drop(shield);
                pending::<Result<(), &str>>().await
            });
            while has_entered.try_recv().is_err() {
                yield_now().await;
            }
            Err("no")
        }));
        assert!(matches!(result, Err(ScopeError::Failed("no"))));
        assert_eq!(Arc::strong_count(&held), 1, "the grandchild is dropped, too");
    });
}
