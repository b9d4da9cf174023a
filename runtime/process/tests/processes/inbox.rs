//! Tests of an async function's inbox that another task reads.

use super::*;

#[test]
fn an_inbox_that_another_task_reads_is_emptied() {
    with_system(async |system| {
        let (report, received) = volt::sync::oneshot::channel();
        let function = volt_process::from_fn(async move |mut inbox, _| {
            let reads = volt::spawn(async move {
                let mut got = Vec::new();
                while let Some(message) = inbox.recv().await {
                    got.push(message.payload.downcast::<u32>().unwrap());
                    volt::task::yield_now().await;
                }
                got
            });
            drop(report.send(reads.await?));
            Ok(Payload::empty())
        });
        let ends = system.exec(Spawn::new(function).name("reads").mailbox(2, Overflow::Block));
        let pid = system.whereis("reads").unwrap();
        for number in 0..500_u32 {
            system.send(pid, Payload::new(number)).await.unwrap();
        }
        until(|| system.info(pid).unwrap().mailbox_len == 0).await;
        system.cancel(pid);
        assert_eq!(ends.await.unwrap_err(), ExitReason::Shutdown);
        assert_eq!(received.await.unwrap(), (0..500).collect::<Vec<_>>());
    });
}

#[test]
fn an_inbox_moved_to_another_task_ends_with_its_process() {
    with_system(async |system| {
        for is_killed in [true, false] {
            let (hands, reads) = volt::sync::oneshot::channel();
            let function = volt_process::from_fn(async move |mut inbox, _| {
                drop(hands.send(volt::spawn(async move { while inbox.recv().await.is_some() {} })));
                if is_killed { std::future::pending().await } else { Ok(Payload::empty()) }
            });
            let pid = system.spawn(Spawn::new(function)).unwrap();
            let reads = reads.await.unwrap();
            system.kill(pid);
            reads.await.unwrap();
        }
        // A call that is in the inbox and was not received fails, too.
        let (hands, inbox) = volt::sync::oneshot::channel();
        let function = volt_process::from_fn(async move |inbox, _| {
            drop(hands.send(inbox));
            std::future::pending().await
        });
        let pid = system.spawn(Spawn::new(function)).unwrap();
        let mut inbox = inbox.await.unwrap();
        assert!(poll_once(std::pin::pin!(inbox.recv())).await.is_none(), "it waits for mail from now on");
        let caller = system.clone();
        let call = volt::spawn(async move { caller.call(pid, Payload::empty(), LONG).await });
        until(|| system.info(pid).is_some_and(|info| info.mailbox_high_water == 1 && info.mailbox_len == 0)).await;
        system.kill(pid);
        assert!(!call.await.unwrap().unwrap_err().is_timed_out());
        assert!(inbox.recv().await.is_none());
    });
}
