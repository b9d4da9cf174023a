//! TCP's urgent data, at which a read ends.

use super::*;
use std::os::fd::AsFd;

use rustix::net::{RecvFlags, SendFlags, recv, send};

/// Waits until the driver has collected all events that have happened.
async fn collect_events() {
    let polls = || volt::Handle::current().snapshot().driver.polls;
    // The next poll to end may have begun already.
    let enough = polls() + 2;
    while polls() < enough {
        volt::time::sleep(SOON).await;
    }
}

#[test]
fn data_behind_urgent_data_is_read_without_a_new_event() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let (there, mut here) = pair().await;
            there.set_nodelay(true).unwrap();
            assert!(timeout(SOON, here.read(&mut [0])).await.is_err(), "there is nothing to read");
            for (text, flags) in [("ab", SendFlags::empty()), ("!", SendFlags::OOB), ("cd", SendFlags::empty())] {
                assert_eq!(send(&there, text.as_bytes(), flags).unwrap(), text.len());
            }
            collect_events().await;
            let mut text = [0; 8];
            assert_eq!(here.read(&mut text).await.unwrap(), 2, "it ends at the urgent data");
            let rest = timeout(Duration::from_secs(10), here.read(&mut text[2..])).await;
            assert_eq!(rest.expect("it has arrived").unwrap(), 2);
            assert_eq!(&text[..4], b"abcd");
        });
    });
}

#[test]
fn a_read_that_waits_does_not_discard_urgent_data() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let (there, mut here) = pair().await;
            let receiver = here.as_fd().try_clone_to_owned().unwrap();
            let mut buffer = [0; 8];
            let mut read = pin!(here.read(&mut buffer));
            assert!(timeout(SOON, read.as_mut()).await.is_err());
            assert_eq!(send(&there, b"!", SendFlags::OOB).unwrap(), 1);
            volt::select! {
                read = read.as_mut() => panic!("{read:?}"),
                () = collect_events() => {}
            }
            let mut urgent = [0; 1];
            assert_eq!(recv(&receiver, &mut urgent, RecvFlags::OOB).unwrap().1, 1);
            assert_eq!(&urgent, b"!");
            assert_eq!(send(&there, b"a", SendFlags::empty()).unwrap(), 1);
            assert_eq!(read.await.unwrap(), 1);
        });
    });
}

#[test]
fn a_read_behind_a_short_one_does_not_discard_urgent_data() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let (there, mut here) = pair().await;
            let receiver = here.as_fd().try_clone_to_owned().unwrap();
            there.set_nodelay(true).unwrap();
            assert!(timeout(SOON, here.read(&mut [0])).await.is_err(), "there is nothing to read");
            for (text, flags) in [("ab", SendFlags::empty()), ("!", SendFlags::OOB)] {
                assert_eq!(send(&there, text.as_bytes(), flags).unwrap(), text.len());
            }
            collect_events().await;
            let mut buffer = [0; 8];
            assert_eq!(here.read(&mut buffer).await.unwrap(), 2, "it ends at the urgent data");
            let mut read = pin!(here.read(&mut buffer));
            volt::select! {
                read = read.as_mut() => panic!("{read:?}"),
                () = collect_events() => {}
            }
            let mut urgent = [0; 1];
            assert_eq!(recv(&receiver, &mut urgent, RecvFlags::OOB).unwrap().1, 1);
            assert_eq!(&urgent, b"!");
            assert_eq!(send(&there, b"c", SendFlags::empty()).unwrap(), 1);
            assert_eq!(read.await.unwrap(), 1);
        });
    });
}
