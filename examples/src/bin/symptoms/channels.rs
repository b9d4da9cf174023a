//! A symptom of tasks that send to each other.

use std::time::Duration;

use volt::sync::mpsc;

use crate::scene::Scene;

/// The number of messages in a channel.
const CHANNEL_CAPACITY: usize = 4;
/// How long a task works on a message.
const WORK: Duration = Duration::from_millis(5);

/// Two tasks that send each other two messages for each one that they receive. Their channels fill
/// up. Each then waits for room, and receives nothing, or receives while it waits.
pub(crate) fn deadlock_channels(scene: &Scene) {
    let [orders, bills] = [(); 2].map(|()| mpsc::channel::<u32>(CHANNEL_CAPACITY));
    let ends = [("kitchen", orders.1, bills.0.clone()), ("till", bills.1, orders.0.clone())];
    for (name, mut from, to) in ends {
        let receives_meanwhile = !scene.has_symptom;
        let exchanges = async move {
            while let Some(number) = from.recv().await {
                for _ in 0..2 {
                    if receives_meanwhile {
                        send_and_receive(&to, &mut from, number).await;
                    } else if to.send(number).await.is_err() {
                        return;
                    }
                }
                volt::time::sleep(WORK).await;
            }
        };
        drop(volt::task::Builder::new().name(name).spawn_on(exchanges, &scene.runtime));
    }
    orders.0.try_send(1).expect("the channel is empty");
}

/// Sends a message, and discards those that arrive until there is room for it.
async fn send_and_receive(to: &mpsc::Sender<u32>, from: &mut mpsc::Receiver<u32>, number: u32) {
    loop {
        volt::select! {
            Ok(permit) = to.reserve() => return permit.send(number),
            Some(_) = from.recv() => {}
            else => return,
        }
    }
}
