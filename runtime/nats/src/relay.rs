//! The relay of a node over NATS. It consists of three tasks in the runtime of the system:
//!
//! * `pump` takes frames out of the queue, which `send` fills, and publishes them. So `send` never
//!   waits, and frames are published in the order of the sends.
//! * `beat` publishes a heartbeat at each interval. It is separate from the pump because a full
//!   queue must not delay heartbeats.
//! * `listen` receives frames, presence messages and requests for the name, and detects silent
//!   nodes. Only `listen` calls [`Incoming`], so its calls are in order.
//!
//! `listen` handles all messages that have arrived before it checks for silent nodes. So a node
//! that was stopped itself first finds the heartbeats of the others. A flood of frames never ends;
//! therefore presence messages come before frames, the check also takes place after each batch, and
//! a goodbye waits only for the frames that may have arrived before it.
//!
//! The relay ends (`Exit`) by `leave`, when it is dropped, or when `listen` finds an earlier node
//! with the same name. That stops the heartbeats and closes the queue. The pump publishes what is
//! in the queue, then a goodbye, and flushes.

use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use async_nats::{Client, Message, Subscriber};
use bytes::Bytes;
use futures_util::{FutureExt, StreamExt};
use volt::sync::{Notify, mpsc, watch};
use volt::time::{MissedTickBehavior, interval, timeout};
use volt_process::{Incoming, Node, Peer, Relay, RelayError};

use crate::presence::{Presence, Sign};
use crate::subject::Subjects;

/// The default number of frames that may wait for the connection; see
/// [`Options::queue`](crate::Options::queue).
pub const QUEUE: usize = 4096;
/// The number of received messages that may wait in each subscription. The client drops further
/// ones, and the system detects the gap.
pub const BACKLOG: usize = 1 << 14;
/// The time limit of `leave`, in which all frames in the queue should reach the server.
const LEAVE_LIMIT: Duration = Duration::from_secs(2);
/// The number of messages that are handled before the task yields to others.
const BATCH: usize = 128;
/// The number of checks for silent nodes per heartbeat. A loss is detected at most this fraction of
/// a heartbeat late.
const CHECKS: u32 = 4;

const UP: &[u8] = b"up";
const BYE: &[u8] = b"bye";

/// A node's relay over NATS, for [`volt_process::Builder::relay`].
/// [`Options::connect`](crate::Options::connect) creates it.
pub struct Nats {
    node: Node,
    subjects: Subjects,
    client: Client,
    state: Arc<State>,
    heartbeat: Duration,
    loss: Duration,
    /// The arguments of the tasks until the relay starts: the receiver of the queue, and the
    /// requests for the name, which this node has had since it connected.
    unstarted: Mutex<Option<(mpsc::Receiver<Outgoing>, Subscriber)>>,
    exit: Arc<Exit>,
}

/// Ends the relay.
struct Exit {
    /// The sender of the queue, until the relay ends.
    sender: Mutex<Option<mpsc::Sender<Outgoing>>>,
    /// Notifies the tasks that the relay ends.
    stop: watch::Sender<bool>,
}

impl Exit {
    fn quit(&self) {
        // First, so that no heartbeat is published after the goodbye.
        self.stop.send_replace(true);
        *self.sender() = None;
    }

    fn sender(&self) -> MutexGuard<'_, Option<mpsc::Sender<Outgoing>>> {
        self.sender.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Outgoing {
    to: Peer,
    frame: Bytes,
}

/// The state that the relay shares with its tasks and with the client's callback.
#[derive(Default)]
pub(crate) struct State {
    incoming: OnceLock<Incoming>,
    connects: AtomicU64,
    slow_consumer: AtomicU64,
    refused: AtomicU64,
    rejected: AtomicU64,
    pumped: Notify,
}

/// The counters of a relay since it was connected. They remain readable after the relay has been
/// passed to a system.
#[derive(Clone)]
pub struct Counts(Arc<State>);

impl Counts {
    /// Returns how often the connection was restored.
    pub fn reconnects(&self) -> u64 {
        // ORDERING: Relaxed; a counter that is only displayed.
        self.0.connects.load(Ordering::Relaxed).saturating_sub(1)
    }

    /// Returns how often the NATS client dropped messages because this node did not keep up.
    pub fn slow_consumer(&self) -> u64 {
        // ORDERING: Relaxed; a counter that is only displayed.
        self.0.slow_consumer.load(Ordering::Relaxed)
    }

    /// Returns the number of frames that were rejected because the queue was full.
    pub fn refused(&self) -> u64 {
        // ORDERING: Relaxed; a counter that is only displayed.
        self.0.refused.load(Ordering::Relaxed)
    }

    /// Returns the number of messages on the cluster's subjects that were invalid, or from
    /// incarnations that have left.
    pub fn rejected(&self) -> u64 {
        // ORDERING: Relaxed; a counter that is only displayed.
        self.0.rejected.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counts")
            .field("reconnects", &self.reconnects())
            .field("slow_consumer", &self.slow_consumer())
            .field("refused", &self.refused())
            .field("rejected", &self.rejected())
            .finish()
    }
}

impl State {
    /// Called by the client, also for the first connection.
    pub(crate) fn reconnected(&self) {
        count(&self.connects);
        self.interrupted();
    }

    pub(crate) fn fell_behind(&self) {
        count(&self.slow_consumer);
        self.interrupted();
    }

    fn interrupted(&self) {
        if let Some(incoming) = self.incoming.get() {
            incoming.interrupted();
        }
    }
}

fn count(cell: &AtomicU64) {
    // ORDERING: Relaxed; a counter, which publishes nothing.
    cell.fetch_add(1, Ordering::Relaxed);
}

impl Nats {
    pub(crate) fn new(
        (node, subjects): (Node, Subjects),
        client: Client,
        name: Subscriber,
        state: Arc<State>,
        (heartbeat, loss): (Duration, Duration),
        queue: usize,
    ) -> Self {
        let (sender, receiver) = mpsc::channel(queue);
        let (stop, _) = watch::channel(false);
        let unstarted = Mutex::new(Some((receiver, name)));
        let exit = Arc::new(Exit { sender: Mutex::new(Some(sender)), stop });
        Self { node, subjects, client, state, heartbeat, loss, unstarted, exit }
    }

    /// Returns the counters of this relay.
    pub fn counts(&self) -> Counts {
        Counts(self.state.clone())
    }
}

impl Relay for Nats {
    fn node(&self) -> Node {
        self.node
    }

    fn start(&self, incoming: Incoming) -> Result<(), RelayError> {
        let unstarted = self.unstarted.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some((receiver, name)) = unstarted else {
            return Err(RelayError::new("a relay can serve only one system: connect another one"));
        };
        drop(self.state.incoming.set(incoming.clone()));
        let session = Session {
            me: incoming.me(),
            client: self.client.clone(),
            subjects: self.subjects.clone(),
            state: self.state.clone(),
        };
        let runtime = incoming.runtime().clone();
        drop(runtime.spawn(pump(session.clone(), receiver)));
        drop(runtime.spawn(beat(session.clone(), self.heartbeat, self.exit.stop.subscribe())));
        let exit = (self.exit.clone(), self.exit.stop.subscribe());
        drop(runtime.spawn(listen(session, incoming, name, (self.heartbeat, self.loss), exit)));
        Ok(())
    }

    fn send(&self, to: Peer, frame: Bytes) -> Result<(), RelayError> {
        // The server would close the connection.
        if frame.len() > self.client.max_payload() {
            return Err(RelayError::too_large());
        }
        let sender = self.exit.sender();
        let sender = sender.as_ref().ok_or_else(RelayError::lost)?;
        sender.try_send(Outgoing { to, frame }).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => {
                count(&self.state.refused);
                RelayError::full()
            }
            mpsc::error::TrySendError::Closed(_) => RelayError::lost(),
        })
    }

    fn leave(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move {
            self.exit.quit();
            // The notification is stored if it comes before this wait, so it cannot be missed.
            let _in_time = timeout(LEAVE_LIMIT, self.state.pumped.notified()).await;
        })
    }
}

impl Drop for Nats {
    fn drop(&mut self) {
        self.exit.quit();
    }
}

impl fmt::Debug for Nats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nats").field("node", &self.node).field("counts", &self.counts()).finish_non_exhaustive()
    }
}

/// The values that all three tasks use.
#[derive(Clone)]
struct Session {
    me: Peer,
    client: Client,
    subjects: Subjects,
    state: Arc<State>,
}

impl Session {
    /// Publishes a message. The reply subject identifies this node. An error means that the client
    /// has ended, which the tasks detect by themselves.
    async fn publish(&self, subject: String, payload: Bytes) {
        if let Err(error) = self.client.publish_with_reply(subject, self.subjects.frame(self.me), payload).await {
            tracing::warn!(target: "volt::process", %error, "a message could not be published to the NATS server");
        }
    }

    async fn announce(&self, what: &'static [u8]) {
        self.publish(self.subjects.presence(), Bytes::from_static(what)).await;
    }

    async fn subscribe(&self) -> Result<(Subscriber, Subscriber), async_nats::SubscribeError> {
        let frames = self.client.subscribe(self.subjects.frame(self.me)).await?;
        let presence = self.client.subscribe(self.subjects.presence()).await?;
        Ok((frames, presence))
    }
}

async fn pump(session: Session, mut queue: mpsc::Receiver<Outgoing>) {
    while let Some(Outgoing { to, frame }) = queue.recv().await {
        session.publish(session.subjects.frame(to), frame).await;
    }
    session.announce(BYE).await;
    if let Err(error) = session.client.flush().await {
        tracing::warn!(target: "volt::process", %error, "the last messages may not have reached the NATS server");
    }
    session.state.pumped.notify_one();
}

async fn beat(session: Session, heartbeat: Duration, mut stop: watch::Receiver<bool>) {
    let mut beats = interval(heartbeat);
    // Do not catch up on heartbeats that are late.
    beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        volt::select! {
            biased;
            _ = stop.changed() => return,
            _ = beats.tick() => {}
        }
        session.announce(UP).await;
    }
}

async fn listen(
    session: Session,
    incoming: Incoming,
    mut name: Subscriber,
    (heartbeat, loss): (Duration, Duration),
    (exit, mut stop): (Arc<Exit>, watch::Receiver<bool>),
) {
    let (mut frames, mut presence) = match session.subscribe().await {
        Ok(subscribers) => subscribers,
        Err(error) => {
            tracing::error!(target: "volt::process", %error, "the node cannot subscribe to its cluster, so it reaches no other node");
            return;
        }
    };
    // Nodes that received the first heartbeat before we had subscribed now get a second one, which
    // they can reply to.
    session.announce(UP).await;
    let mut known = Presence::new(session.me);
    let mut checks = interval(heartbeat / CHECKS);
    checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut received = 0;
    let report_lost =
        |known: &mut Presence| known.lost(Instant::now(), loss).into_iter().for_each(|peer| incoming.down(peer));
    loop {
        let goes_on = volt::select! {
            biased;
            _ = stop.changed() => return,
            Some(message) = presence.next() => {
                if message.payload[..] == *BYE {
                    // The goodbye was published after the last frames, but those arrive by another
                    // subscription: handle them first. It holds at most `BACKLOG` frames. Those
                    // that a flood adds meanwhile are later than the goodbye.
                    for handled in 1..=BACKLOG {
                        let Some(Some(message)) = frames.next().now_or_never() else { break };
                        receive_frame(&session, &incoming, &mut known, message);
                        if handled % BATCH == 0 {
                            volt::task::yield_now().await;
                        }
                    }
                }
                receive_presence(&session, &incoming, &mut known, &message)
            }
            Some(message) = frames.next() => {
                receive_frame(&session, &incoming, &mut known, message);
                true
            }
            Some(message) = name.next() => {
                answer(&session, message).await;
                true
            }
            _ = checks.tick() => {
                report_lost(&mut known);
                true
            }
        };
        if !goes_on {
            exit.quit();
            known.all().into_iter().for_each(|peer| incoming.down(peer));
            return;
        }
        received += 1;
        if received % BATCH == 0 {
            volt::task::yield_now().await;
            report_lost(&mut known);
        }
    }
}

/// Handles a presence message. Returns false if this node has to leave.
fn receive_presence(session: &Session, incoming: &Incoming, known: &mut Presence, message: &Message) -> bool {
    let from = message.reply.as_ref().and_then(|reply| session.subjects.peer(reply));
    match (from, &message.payload[..]) {
        (Some(peer), BYE) => {
            if known.bye(peer) {
                incoming.down(peer);
            }
            true
        }
        (Some(peer), UP) => sign(session, incoming, known, peer),
        _ => {
            count(&session.state.rejected);
            true
        }
    }
}

/// Handles a frame. It is also a sign of life, and may be the first one of its peer.
fn receive_frame(session: &Session, incoming: &Incoming, known: &mut Presence, message: Message) {
    let from = message.reply.as_ref().and_then(|reply| session.subjects.peer(reply));
    match from {
        Some(peer) => match known.received(peer, Instant::now()) {
            Sign::There { is_new } => {
                if is_new {
                    incoming.up(peer);
                }
                incoming.received(peer, message.payload);
            }
            _ => count(&session.state.rejected),
        },
        None => count(&session.state.rejected),
    }
}

fn sign(session: &Session, incoming: &Incoming, known: &mut Presence, peer: Peer) -> bool {
    match known.received(peer, Instant::now()) {
        Sign::There { .. } => incoming.up(peer),
        Sign::Own => {}
        Sign::Stale => count(&session.state.rejected),
        Sign::Double { is_earlier: false } => {
            tracing::error!(target: "volt::process", node = %peer.node, "another node started later with this node's name, and has to leave the cluster: give it a different name");
        }
        Sign::Double { is_earlier: true } => {
            tracing::error!(target: "volt::process", node = %peer.node, "another node already uses this name, so this node reaches no other node: choose a different name");
            return false;
        }
    }
    true
}

/// Replies to a request for our name.
async fn answer(session: &Session, message: Message) {
    if let Some(reply) = message.reply
        && let Err(error) = session.client.publish(reply, "taken".into()).await
    {
        tracing::warn!(target: "volt::process", %error, "cannot reply to a request for this node's name");
    }
}
