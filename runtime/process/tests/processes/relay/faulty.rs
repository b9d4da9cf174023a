//! A relay that loses, repeats, reorders and refuses frames, and delivers hostile ones.

use super::*;

/// A relay that treats each frame as the test specifies.
struct FaultyRelay {
    relay: HubRelay,
    faults: Arc<Mutex<VecDeque<Fault>>>,
    held: Mutex<Option<Bytes>>,
    incoming: Arc<Mutex<Option<Incoming>>>,
}

enum Fault {
    None,
    Lose,
    Double,
    /// Sends it after the next one.
    Hold,
    Refuse,
}

type Faults = Arc<Mutex<VecDeque<Fault>>>;

impl Relay for FaultyRelay {
    fn node(&self) -> Node {
        self.relay.node()
    }

    fn start(&self, incoming: Incoming) -> Result<(), RelayError> {
        *self.incoming.lock().unwrap() = Some(incoming.clone());
        self.relay.start(incoming)
    }

    fn send(&self, to: Peer, frame: Bytes) -> Result<(), RelayError> {
        let fault = self.faults.lock().unwrap().pop_front();
        match fault {
            Some(Fault::Lose) => return Ok(()),
            Some(Fault::Refuse) => return Err(RelayError::full()),
            Some(Fault::Double) => self.relay.send(to, frame.clone())?,
            Some(Fault::Hold) => {
                *self.held.lock().unwrap() = Some(frame);
                return Ok(());
            }
            Some(Fault::None) | None => {}
        }
        self.relay.send(to, frame)?;
        match self.held.lock().unwrap().take() {
            Some(held) => self.relay.send(to, held),
            None => Ok(()),
        }
    }

    fn leave(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        self.relay.leave()
    }
}

/// Like [`with_two`], with a relay that injects faults into the frames that alpha sends.
fn with_faulty_relay<F: Future<Output = ()>>(test: impl Fn(Faults, Incoming, System, System) -> F) {
    watchdog::with_workers(|runtime| {
        runtime.block_on(async {
            let hub = Hub::new();
            let (faults, incoming) = (Faults::default(), Arc::default());
            let relay = FaultyRelay {
                relay: hub.join(node("alpha")),
                faults: faults.clone(),
                held: Mutex::default(),
                incoming: Arc::clone(&incoming),
            };
            let (alpha, beta) = (system(relay), system(hub.join(node("beta"))));
            meet(&alpha, &beta).await;
            let incoming = incoming.lock().unwrap().clone().unwrap();
            test(faults, incoming, alpha.clone(), beta.clone()).await;
            for system in [alpha, beta] {
                assert!(system.shutdown(Some(LONG)).await.forced.is_empty());
            }
        });
    });
}

#[test]
fn a_duplicate_frame_is_accepted_once() {
    with_faulty_relay(async |faults, _incoming, alpha, beta| {
        let (pid, mut reports) = probe(&beta);
        faults.lock().unwrap().extend([Fault::Double, Fault::Double]);
        for n in 0..3_u64 {
            alpha.send(pid, Payload::bytes(n.to_le_bytes().to_vec())).await.unwrap();
        }
        for n in 0..3 {
            assert!(matches!(reports.recv().await, Some(Received::Message(None, bytes)) if number(&bytes) == n));
        }
        echo(&alpha, pid).await.unwrap();
        assert!(reports.try_recv().is_err());
        assert_eq!(beta.relay_counts().unwrap().duplicates, 2);
    });
}

#[test]
fn reordered_frames_are_never_handled_in_the_wrong_order() {
    with_faulty_relay(async |faults, _incoming, alpha, beta| {
        let (pid, mut reports) = probe(&beta);
        faults.lock().unwrap().push_back(Fault::Hold);
        for n in 0..2_u64 {
            alpha.send(pid, Payload::bytes(n.to_le_bytes().to_vec())).await.unwrap();
        }
        // The second frame reveals that the first is missing, and both belong to a conversation
        // that has been broken off.
        while beta.relay_counts().unwrap().lost == 0 {
            volt::task::yield_now().await;
        }
        meet(&beta, &alpha).await;
        while echo(&alpha, pid).await.is_err() {
            volt::task::yield_now().await;
        }
        assert!(reports.try_recv().is_err());
    });
}

#[test]
fn frames_that_are_lost_break_the_conversation_off_at_both_ends() {
    with_faulty_relay(async |faults, incoming, alpha, beta| {
        let (here, mut here_hears) = probe(&alpha);
        let (there, mut there_hears) = probe(&beta);
        order(&alpha, here, Order::Monitor(there)).await;
        order(&beta, there, Order::Monitor(here)).await;
        echo(&alpha, there).await.unwrap();
        echo(&beta, here).await.unwrap();
        // The frame that reports the exit of `here` is lost, and no frame follows it, until the
        // relay reports that frames may be missing.
        faults.lock().unwrap().push_back(Fault::Lose);
        alpha.kill(here);
        alpha.wait(here).await;
        incoming.interrupted();
        assert!(matches!(there_hears.recv().await, Some(Received::Down(pid, ExitReason::NoConnection)) if pid == here));
        assert!(here_hears.recv().await.is_none());
        assert!(beta.relay_counts().unwrap().lost > 0);
        meet(&alpha, &beta).await;
        while beta.info(there).unwrap().monitor_count > 0 {
            volt::task::yield_now().await;
        }
        while echo(&alpha, there).await.is_err() {
            volt::task::yield_now().await;
        }
    });
}

#[test]
fn a_full_relay_refuses_messages_and_keeps_reports_of_exits() {
    with_faulty_relay(async |faults, _incoming, alpha, beta| {
        let (here, _here_hears) = probe(&alpha);
        let (there, mut reports) = probe(&beta);
        order(&beta, there, Order::Monitor(here)).await;
        echo(&beta, here).await.unwrap();
        faults.lock().unwrap().extend((0..3).map(|_| Fault::Refuse));
        assert!(alpha.send(there, Payload::empty()).await.unwrap_err().is_full());
        alpha.kill(here);
        assert!(matches!(reports.recv().await, Some(Received::Down(pid, ExitReason::Killed)) if pid == here));
        assert_eq!(alpha.relay_counts().unwrap().refused, 3);
    });
}

#[test]
fn a_full_relay_keeps_monitors_links_and_kills() {
    with_faulty_relay(async |faults, _incoming, alpha, beta| {
        let (watcher, mut reports) = probe(&alpha);
        let (there, _there_hears) = probe(&beta);
        for tie in [Order::Monitor(there), Order::Link(there)] {
            faults.lock().unwrap().push_back(Fault::Refuse);
            order(&alpha, watcher, tie).await;
        }
        while beta.info(there).is_some_and(|info| (info.monitor_count, info.link_count) != (1, 1)) {
            volt::task::yield_now().await;
        }
        faults.lock().unwrap().push_back(Fault::Refuse);
        assert!(alpha.kill(there));
        assert!(matches!(reports.recv().await, Some(Received::Down(pid, ExitReason::Killed)) if pid == there));
        assert!(matches!(reports.recv().await, Some(Received::Exit(pid, ExitReason::Killed)) if pid == there));
    });
}

#[test]
fn a_process_on_another_node_is_ended_though_the_relay_is_full() {
    with_faulty_relay(async |faults, _incoming, alpha, beta| {
        for refused in 0..3 {
            let stubborn = volt_process::from_fn(async |_inbox, _input| std::future::pending().await);
            let stubborn = beta.spawn(Spawn::new(stubborn)).unwrap();
            // The monitor, the cancellation or the kill.
            faults.lock().unwrap().extend((0..refused).map(|_| Fault::None).chain([Fault::Refuse]));
            assert_eq!(alpha.terminate(stubborn, Duration::ZERO).await, ExitReason::Killed);
        }
    });
}

#[test]
fn hostile_frames_do_no_harm_and_are_counted() {
    with_faulty_relay(async |_faults, incoming, alpha, beta| {
        let (pid, _hears) = probe(&alpha);
        let known = Peer { node: beta.node(), incarnation: 7 };
        incoming.received(known, Bytes::from_static(b"x"));
        assert_eq!(alpha.relay_counts().unwrap().strangers, 1);
        let mallory = Peer { node: node("mallory"), incarnation: 1 };
        incoming.up(mallory);
        let frame = |kind: u8, session: u64, heard: u64, number: u64, body: &[u8]| {
            let mut frame = vec![1, kind];
            for part in [session, heard, number] {
                frame.extend(part.to_le_bytes());
            }
            frame.extend(body);
            Bytes::from(frame)
        };
        incoming.received(mallory, Bytes::from_static(b"rubbish"));
        incoming.received(mallory, vec![1; volt_process::FRAME_BYTES_MAX + 1].into());
        // The maximum number, which has no successor: in a first conversation, and in one that
        // starts anew.
        incoming.received(mallory, frame(1, 3, 0, u64::MAX, b""));
        incoming.received(mallory, frame(1, 3, 0, 0, b""));
        incoming.received(mallory, frame(1, 4, 0, u64::MAX, b""));
        incoming.received(mallory, frame(1, 5, 0, 0, b""));
        // The session of a conversation is a small number, which a hostile node receives.
        let mut number = 1;
        for heard in 0..8 {
            for kind in 0..=255 {
                for body in [&b""[..], b"\x01", &[0; 8], &[0xff; 25], &[0xff; 4096]] {
                    incoming.received(mallory, frame(kind, 5, heard, number, body));
                    number += 1;
                }
            }
        }
        let counts = alpha.relay_counts().unwrap();
        assert!(counts.malformed > 2 && counts.unknown > 0 && counts.stale > 0, "{counts:?}");
        echo(&beta, pid).await.unwrap();
        incoming.down(mallory);
        assert_eq!(alpha.nodes(), [beta.node()]);
    });
}
