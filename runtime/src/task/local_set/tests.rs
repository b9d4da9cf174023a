//! Sets that are polled by hand.

use super::*;
use std::cell::Cell;
use std::future::{pending, poll_fn};
use std::sync::Arc;
use std::task::Waker;

use volt_core::task::Shield;

fn poll(set: &mut LocalSet) -> Poll<()> {
    Pin::new(set).poll(&mut Context::from_waker(Waker::noop()))
}

fn finish<T>(mut task: JoinHandle<T>) -> Result<T, crate::task::JoinError> {
    match Pin::new(&mut task).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("the task has completed"),
    }
}

#[test]
fn futures_that_are_not_send_run_and_start_others() {
    let mut set = LocalSet::new();
    let log = Rc::new(Cell::new(0));
    let task = set.spawn_local({
        let log = log.clone();
        async move {
            log.set(log.get() + 1);
            spawn_local(async move { log.set(log.get() + 10) });
            Rc::new("output")
        }
    });
    assert_eq!(poll(&mut set), Poll::Ready(()));
    assert_eq!(log.get(), 11);
    assert_eq!(*finish(task).unwrap(), "output");
}

#[test]
fn a_waker_on_another_thread_wakes_a_task_that_stays_on_its_own() {
    let mut set = LocalSet::new();
    let kept: Arc<std::sync::Mutex<Option<Waker>>> = Arc::default();
    let mut polls = 0;
    let here = std::thread::current().id();
    let task = set.spawn_local(poll_fn({
        let kept = kept.clone();
        move |cx| {
            assert_eq!(std::thread::current().id(), here);
            polls += 1;
            *kept.lock().unwrap() = Some(cx.waker().clone());
            if polls == 2 { Poll::Ready(Rc::new(polls)) } else { Poll::Pending }
        }
    }));
    assert!(poll(&mut set).is_pending());
    let waker = kept.lock().unwrap().take().unwrap();
    std::thread::spawn(move || waker.wake()).join().unwrap();
    assert_eq!(poll(&mut set), Poll::Ready(()));
    assert_eq!(*finish(task).unwrap(), 2);
}

#[test]
fn dropping_a_local_set_drops_its_tasks_on_its_own_thread() {
    struct OnThread(std::thread::ThreadId, Rc<Cell<u32>>);
    impl Drop for OnThread {
        fn drop(&mut self) {
            assert_eq!(std::thread::current().id(), self.0);
            self.1.set(self.1.get() + 1);
        }
    }
    let set = LocalSet::new();
    let drops = Rc::new(Cell::new(0));
    let kept: Arc<std::sync::Mutex<Vec<Waker>>> = Arc::default();
    let tasks = [false, true].map(|is_shielded| {
        let (kept, guard) = (kept.clone(), OnThread(std::thread::current().id(), drops.clone()));
        set.spawn_local(async move {
            let _guard = guard;
            let _shield = is_shielded.then(|| Shield::new().unwrap());
            poll_fn(|cx| {
                kept.lock().unwrap().push(cx.waker().clone());
                Poll::<()>::Pending
            })
            .await;
        })
    });
    let mut set = set;
    assert!(poll(&mut set).is_pending());
    drop(set);
    assert_eq!(drops.get(), 2);
    let wakers = std::mem::take(&mut *kept.lock().unwrap());
    std::thread::spawn(move || wakers.into_iter().for_each(Waker::wake)).join().unwrap();
    assert!(tasks.into_iter().all(|task| finish(task).unwrap_err().is_cancelled()));
}

#[test]
fn a_task_started_by_a_destructor_ends_with_the_set_too() {
    struct Spawns;
    impl Drop for Spawns {
        fn drop(&mut self) {
            spawn_local(pending::<()>());
        }
    }
    let mut set = LocalSet::new();
    set.spawn_local(async {
        let _spawns = Spawns;
        pending::<()>().await;
    });
    assert!(poll(&mut set).is_pending());
    let shared = set.shared.clone();
    drop(set);
    assert!(shared.0.lock().alive.is_empty());
    assert_eq!(Arc::strong_count(&shared.0), 1, "no task holds the set any more");
}
