//! Tests of dumps for clients: several at the same time, cancelled ones, and those that fail.

use super::*;

fn request_dump(stream: &UnixStream) {
    request(stream, &Request::Dump { runtime: None, query: dump::Query::default() });
}

fn error(stream: &UnixStream) -> String {
    match read(stream) {
        Some(Reply::Error { message }) => message,
        reply => panic!("no error: {reply:?}"),
    }
}

/// A dump that waits until this is dropped.
struct Held {
    begun: mpsc::Receiver<()>,
    #[expect(dead_code, reason = "the dump goes on when this is dropped")]
    goes_on: mpsc::Sender<()>,
}

impl Scene {
    fn on_dump(&self, on_dump: impl FnOnce(&Limit) + Send + 'static) {
        self.fake.on_dump.lock().unwrap().push_back(Box::new(on_dump));
    }

    /// Requests a dump that waits, and waits until it has begun.
    fn hold_dump(&self, stream: &UnixStream) -> Held {
        let ((begins, begun), (goes_on, wait)) = (mpsc::channel(), mpsc::channel::<()>());
        self.on_dump(move |_| {
            begins.send(()).unwrap();
            _ = wait.recv();
        });
        request_dump(stream);
        let held = Held { begun, goes_on };
        held.begun.recv_timeout(LONG).unwrap();
        held
    }
}

#[test]
fn a_client_that_leaves_cancels_its_dump() {
    let scene = Scene::new();
    let stream = scene.raw();
    let ((begins, begun), (ends, ended)) = (mpsc::channel(), mpsc::channel());
    scene.on_dump(move |limit| {
        begins.send(()).unwrap();
        while !limit.is_cancelled() && !limit.left().is_zero() {
            std::thread::yield_now();
        }
        ends.send(limit.is_cancelled()).unwrap();
    });
    request_dump(&stream);
    begun.recv_timeout(LONG).unwrap();
    drop(stream);
    assert_eq!(ended.recv_timeout(LONG), Ok(true));
    scene.until("the client has left", |health| health.clients == 0);
    let began = Instant::now();
    while Arc::strong_count(&scene.registry.dumps) > 1 {
        assert!(began.elapsed() < LONG, "its thread ends");
    }
}

#[test]
fn a_dump_that_panics_is_an_error_for_its_client_only() {
    let scene = Scene::new();
    let stream = scene.raw();
    scene.on_dump(|_| std::panic::resume_unwind(Box::new("on purpose")));
    request_dump(&stream);
    assert!(error(&stream).contains("panicked"));
    request_dump(&stream);
    assert!(matches!(read(&stream), Some(Reply::Dump(dump)) if dump.runtime == "main"));
}

#[test]
fn a_dump_delays_neither_snapshots_nor_other_dumps() {
    let scene = Scene::new();
    let (first, second) = (scene.raw(), scene.raw());
    let held = scene.hold_dump(&first);
    request_dump(&second);
    assert!(matches!(read(&second), Some(Reply::Dump(_))));
    scene.client().snapshot().unwrap();
    drop(held);
    assert!(matches!(read(&first), Some(Reply::Dump(_))));
}

#[test]
fn the_number_of_dumps_at_the_same_time_is_bounded() {
    let scene = Scene::with(Limits { dumps: 1, ..Limits::DEFAULT }, Fake { name: "main".into(), ..Fake::default() });
    let (first, second) = (scene.raw(), scene.raw());
    let held = scene.hold_dump(&first);
    request_dump(&second);
    assert!(error(&second).contains("dumps in progress: 1, which is the limit"));
    drop(held);
    assert!(matches!(read(&first), Some(Reply::Dump(_))));
    request_dump(&second);
    assert!(matches!(read(&second), Some(Reply::Dump(_))));
}

#[test]
fn a_runtime_that_ends_during_its_dump_is_kept_until_then() {
    let scene = Scene::new();
    let stream = scene.raw();
    let held = scene.hold_dump(&stream);
    let fake = Arc::downgrade(&scene.fake);
    drop(scene.fake);
    assert!(fake.upgrade().is_some());
    drop(held);
    assert!(matches!(read(&stream), Some(Reply::Dump(_))));
    request_dump(&stream);
    assert!(error(&stream).contains("the runtime was shut down"));
}
