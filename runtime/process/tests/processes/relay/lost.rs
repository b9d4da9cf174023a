//! Tests of nodes that are lost, leave, and come back.

use super::*;

#[test]
fn losing_a_node_ends_its_calls_monitors_and_links() {
    with_two(async |hub, alpha, beta| {
        let silent = volt_process::from_fn(async |mut inbox, _input| {
            let mut held: Vec<Option<Reply>> = Vec::new();
            while let Some(message) = inbox.recv().await {
                held.push(message.reply);
            }
            Ok(Payload::empty())
        });
        let silent = beta.spawn(Spawn::new(silent)).unwrap();
        let (there, mut there_hears) = probe(&beta);
        let (watcher, mut reports) = probe(&alpha);
        for watched in [silent, there] {
            order(&alpha, watcher, Order::Monitor(watched)).await;
        }
        order(&beta, there, Order::Link(watcher)).await;
        echo(&beta, watcher).await.unwrap();
        let caller = alpha.clone();
        let call = volt::spawn(async move { caller.call(silent, Payload::empty(), LONG).await });
        while beta.info(silent).unwrap().mailbox_high_water == 0 {
            volt::task::yield_now().await;
        }
        hub.cut(alpha.node(), beta.node());
        assert!(call.await.unwrap().unwrap_err().is_no_connection());
        let mut downs = Vec::new();
        for _ in 0..3 {
            match reports.recv().await.unwrap() {
                Received::Down(pid, ExitReason::NoConnection) => downs.push(pid),
                Received::Exit(pid, ExitReason::NoConnection) => assert_eq!(pid, there),
                _ => panic!("another message than the lost connection"),
            }
        }
        downs.sort();
        let mut watched = [silent, there];
        watched.sort();
        assert_eq!(downs, watched);
        assert!(
            matches!(there_hears.recv().await, Some(Received::Exit(pid, ExitReason::NoConnection)) if pid == watcher)
        );
        for (system, pid) in [(&beta, silent), (&beta, there), (&alpha, watcher)] {
            let info = system.info(pid).unwrap();
            assert_eq!((info.link_count, info.monitor_count), (0, 0));
        }
        // Operations that start now fail immediately.
        assert!(alpha.send(there, Payload::empty()).await.unwrap_err().is_no_connection());
        assert!(echo(&alpha, there).await.unwrap_err().is_no_connection());
        assert_eq!(alpha.wait(there).await, ExitReason::NoConnection);
        assert!(alpha.whereis_on(beta.node(), "x").await.unwrap_err().is_no_connection());
        order(&alpha, watcher, Order::Monitor(there)).await;
        assert!(matches!(reports.recv().await, Some(Received::Down(pid, ExitReason::NoConnection)) if pid == there));
        // The process is still alive, and can be reached again.
        hub.mend(alpha.node(), beta.node());
        meet(&alpha, &beta).await;
        echo(&alpha, there).await.unwrap();
        order(&alpha, watcher, Order::Monitor(there)).await;
        echo(&alpha, there).await.unwrap();
        beta.kill(there);
        assert!(matches!(reports.recv().await, Some(Received::Down(pid, ExitReason::Killed)) if pid == there));
    });
}

#[test]
fn a_node_unaware_of_its_loss_is_notified_on_return() {
    with_two(async |hub, alpha, beta| {
        let (here, _here_hears) = probe(&alpha);
        let (there, mut reports) = probe(&beta);
        order(&beta, there, Order::Monitor(here)).await;
        echo(&beta, here).await.unwrap();
        assert_eq!(alpha.info(here).unwrap().monitor_count, 1);
        hub.lose(alpha.node(), beta.node());
        while alpha.info(here).unwrap().monitor_count > 0 {
            volt::task::yield_now().await;
        }
        assert_eq!(alpha.nodes(), []);
        hub.mend(alpha.node(), beta.node());
        assert!(matches!(reports.recv().await, Some(Received::Down(pid, ExitReason::NoConnection)) if pid == here));
        meet(&alpha, &beta).await;
        echo(&beta, here).await.unwrap();
        echo(&alpha, there).await.unwrap();
    });
}

#[test]
fn a_pid_from_a_nodes_earlier_run_matches_no_process() {
    watchdog::with_workers(|runtime| {
        runtime.block_on(async {
            let hub = Hub::new();
            let alpha = system(hub.join(node("alpha")));
            let beta = system(hub.join(node("beta")));
            alpha.wait_for_node(node("beta")).await;
            let old = mortal(&beta);
            let ends = alpha.wait(old);
            echo(&alpha, old).await.unwrap();
            beta.shutdown(Some(LONG)).await;
            // The process exited before its node left, and both are reported in that order.
            assert_eq!(ends.await, ExitReason::Shutdown);
            while !alpha.nodes().is_empty() {
                volt::task::yield_now().await;
            }
            let beta = system(hub.join(node("beta")));
            alpha.wait_for_node(node("beta")).await;
            let new: Vec<Pid> = (0..256).map(|_| mortal(&beta)).collect();
            assert!(new.iter().any(|pid| pid.index() == old.index()), "its place is used again");
            assert!(!new.contains(&old));
            assert!(echo(&alpha, old).await.unwrap_err().is_no_process());
            for system in [alpha, beta] {
                system.shutdown(Some(LONG)).await;
            }
        });
    });
}

#[test]
fn a_departing_node_delivers_its_last_messages_first() {
    with_two(async |hub, alpha, _beta| {
        let gamma = system(hub.join(node("gamma")));
        meet(&alpha, &gamma).await;
        let (watcher, mut reports) = probe(&alpha);
        let (first, second) = (mortal(&gamma), mortal(&gamma));
        for pid in [first, second] {
            order(&alpha, watcher, Order::Monitor(pid)).await;
        }
        echo(&alpha, first).await.unwrap();
        gamma.shutdown(Some(LONG)).await;
        for _ in 0..2 {
            assert!(matches!(reports.recv().await, Some(Received::Down(_, ExitReason::Shutdown))));
        }
        while alpha.nodes().contains(&gamma.node()) {
            volt::task::yield_now().await;
        }
    });
}
