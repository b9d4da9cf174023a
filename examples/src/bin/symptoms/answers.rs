//! A symptom of tasks that wait for each other's messages.

use std::sync::Arc;
use std::time::Duration;

use volt::net::TcpListener;
use volt::sync::{Notify, mpsc, oneshot, watch};

use crate::scene::Scene;

/// How long the server needs for an answer.
const WORK: Duration = Duration::from_millis(20);
/// The number of requests that are answered: more than ten seconds, in which the runtime sees what
/// is usual.
const ANSWERED: usize = 700;
/// Longer than any run.
const FOR_EVER: Duration = Duration::from_secs(86_400);

/// A request, with the channel for the answer.
type Request = oneshot::Sender<u64>;

/// A client that sends requests one after the other, and a server that stops replying, or a
/// client that stops sending them. Beside the latter, tasks wait for what may never happen: a
/// connection, a shutdown, a change of the settings and a notification.
pub(crate) fn waiting_forever(scene: &Scene) {
    let (requests, mut received) = mpsc::channel::<Request>(8);
    let has_symptom = scene.has_symptom;
    let server = async move {
        let mut unanswered = Vec::new();
        let mut answered = 0;
        while let Some(request) = received.recv().await {
            volt::time::sleep(WORK).await;
            if has_symptom && answered == ANSWERED {
                unanswered.push(request);
                continue;
            }
            answered += 1;
            let _client_has_exited = request.send(7);
        }
    };
    let client = async move {
        let mut sum = 0;
        while has_symptom || sum < 7 * ANSWERED as u64 {
            let (sender, answer) = oneshot::channel();
            if requests.send(sender).await.is_err() {
                break;
            }
            sum += answer.await.unwrap_or(0);
        }
        // The server waits for the next request as long as the sender exists.
        volt::time::sleep(FOR_EVER).await;
        drop(requests);
    };
    drop(volt::task::Builder::new().name("server").spawn_on(server, &scene.runtime));
    drop(volt::task::Builder::new().name("client").spawn_on(client, &scene.runtime));
    if !has_symptom {
        idle(scene);
    }
}

/// Tasks that were busy for a while, and now wait for what may never happen.
fn idle(scene: &Scene) {
    let (shutdown, mut is_over) = oneshot::channel::<()>();
    let (settings, mut changed) = watch::channel(0);
    let (connected, notified) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (accepted, notifies) = (connected.clone(), notified.clone());
    drop(scene.runtime.spawn(async move {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        for number in 0..ANSWERED {
            volt::time::sleep(WORK).await;
            drop(volt::net::TcpStream::connect(address).await);
            let _no_receiver = settings.send(number);
            notifies.notify_one();
            volt::select! {
                _ = &mut is_over => return,
                _ = listener.accept() => accepted.notify_one(),
            }
        }
        volt::select! {
            _ = &mut is_over => {}
            _ = listener.accept() => {}
        }
        drop(settings);
    }));
    drop(scene.runtime.spawn(async move { while changed.changed().await.is_ok() {} }));
    for notice in [connected, notified] {
        drop(scene.runtime.spawn(async move {
            loop {
                notice.notified().await;
            }
        }));
    }
    drop(scene.runtime.spawn(async move {
        volt::time::sleep(FOR_EVER).await;
        drop(shutdown);
    }));
}
