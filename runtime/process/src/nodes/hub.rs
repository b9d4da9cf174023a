//! A relay within one program: connects several systems without a server. It is meant for tests and
//! experiments.
//!
//! Each member has an inbox, which a task in the runtime of its system empties. A frame is put into
//! the receiver's inbox by the call that sends it, so frames arrive in the order of the sends.
//! Frames count against the capacity of the inbox. Notices of nodes that connect or disconnect do
//! not count; their number is that of joins and of calls of [`Hub::cut`], [`Hub::lose`] and
//! [`Hub::mend`].
//!
//! Invariant: *NO FOREIGN CODE*: no code of a system runs under the lock of the hub or of an inbox.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use super::relay::{Incoming, Peer, Relay, RelayError};
use crate::messages::pid::Node;
use volt::sync::Notify;
use volt::task;

/// The default capacity of an inbox, in frames.
const CAPACITY: usize = 4096;
/// The maximum number of items that a member's task delivers before it yields to other tasks.
const BATCH: usize = 64;

/// Connects the systems of one program. Cheap to clone: all clones are the same hub.
///
/// ```
/// use std::time::Duration;
/// use volt_process::{ExitReason, Hub, Node, Payload, Spawn, System};
///
/// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build()?;
/// # runtime.block_on(async {
/// let (alpha, beta): (Node, Node) = ("alpha".parse()?, "beta".parse()?);
/// let hub = Hub::new();
/// let here = System::builder().relay(hub.join(alpha)).build(&volt::Handle::current())?;
/// let there = System::builder().relay(hub.join(beta)).build(&volt::Handle::current())?;
///
/// let shout = volt_process::from_fn(async |mut inbox, _input| {
///     while let Some(message) = inbox.recv().await {
///         if let (Some(reply), Some(text)) = (message.reply, message.payload.as_bytes()) {
///             reply.send(Payload::bytes(text.to_ascii_uppercase()));
///         }
///     }
///     Ok(Payload::empty())
/// });
/// there.spawn(Spawn::new(shout).name("shout"))?;
///
/// here.wait_for_node(beta).await;
/// let shout = here.whereis_on(beta, "shout").await?.expect("it was started");
/// let answer = here.call(shout, Payload::bytes("hello"), Duration::from_secs(5)).await?;
/// assert_eq!(answer.as_bytes().unwrap(), "HELLO".as_bytes());
///
/// let ends = here.wait(shout);
/// hub.cut(alpha, beta);
/// assert_eq!(ends.await, ExitReason::NoConnection);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// # Ok::<(), volt::BuildError>(())
/// ```
#[derive(Clone, Default)]
pub struct Hub(Arc<Mutex<Members>>);

#[derive(Default)]
struct Members {
    members: HashMap<Node, Member>,
    /// Pairs that are disconnected, the lower node first.
    cuts: HashSet<(Node, Node)>,
}

#[derive(Clone)]
struct Member {
    peer: Peer,
    inbox: Arc<Inbox>,
}

struct Inbox {
    queue: Mutex<Queue>,
    filled: Notify,
    capacity: usize,
}

#[derive(Default)]
struct Queue {
    items: VecDeque<Item>,
    frames: usize,
    is_closed: bool,
}

enum Item {
    Up(Peer),
    Down(Peer),
    Frame(Peer, Bytes),
}

impl Hub {
    /// Creates a hub without members.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns a relay for `node`. The node becomes a member when a system is built with the relay.
    pub fn join(&self, node: Node) -> HubRelay {
        self.join_with(node, CAPACITY)
    }

    /// Like [`join`](Self::join), with room for `capacity` frames that wait for the node. A frame
    /// that finds no room is rejected.
    pub fn join_with(&self, node: Node, capacity: usize) -> HubRelay {
        HubRelay { hub: self.clone(), node, capacity, me: Mutex::default() }
    }

    /// Disconnects two nodes. Each detects the loss of the other, and frames that wait between them
    /// are dropped.
    pub fn cut(&self, one: Node, other: Node) {
        self.sever(one, other, true);
        self.lose(one, other);
        self.lose(other, one);
    }

    /// Makes `node` lose `other`, as if `other` had been paused for a while. `other` does not
    /// detect the loss. No frame is delivered between the two until they are
    /// [connected](Self::mend) again.
    pub fn lose(&self, node: Node, other: Node) {
        self.sever(node, other, true);
        let (member, lost) = (self.member(node), self.member(other));
        if let (Some(member), Some(lost)) = (member, lost) {
            member.inbox.forget(lost.peer);
            member.inbox.put(Item::Down(lost.peer));
        }
    }

    /// Connects two nodes again.
    pub fn mend(&self, one: Node, other: Node) {
        self.sever(one, other, false);
        if let (Some(one), Some(other)) = (self.member(one), self.member(other)) {
            one.inbox.put(Item::Up(other.peer));
            other.inbox.put(Item::Up(one.peer));
        }
    }

    fn sever(&self, one: Node, other: Node, is_cut: bool) {
        let pair = (one.min(other), one.max(other));
        let cuts = &mut self.lock().cuts;
        if is_cut {
            cuts.insert(pair)
        } else {
            cuts.remove(&pair)
        };
    }

    fn member(&self, node: Node) -> Option<Member> {
        self.lock().members.get(&node).cloned()
    }

    /// Returns the member `to` if both are members, with these incarnations, and are not
    /// disconnected.
    fn reach(&self, from: Peer, to: Peer) -> Option<Member> {
        let members = self.lock();
        let pair = (from.node.min(to.node), from.node.max(to.node));
        members.members.get(&from.node).filter(|member| member.peer == from)?;
        members.members.get(&to.node).filter(|member| member.peer == to && !members.cuts.contains(&pair)).cloned()
    }

    fn add(&self, me: Peer, inbox: &Arc<Inbox>) -> Result<(), RelayError> {
        let mut members = self.lock();
        if members.members.contains_key(&me.node) {
            return Err(RelayError::new(format_args!("the hub has a node {} already: choose another name", me.node)));
        }
        let joined = Member { peer: me, inbox: inbox.clone() };
        for member in members.members.values() {
            // Under the lock, so that two systems that join at the same time both receive this
            // notice before any frame.
            member.inbox.put(Item::Up(me));
            inbox.put(Item::Up(member.peer));
        }
        members.members.insert(me.node, joined);
        Ok(())
    }

    fn remove(&self, me: Peer) {
        let mut members = self.lock();
        let Some(gone) = members.members.get(&me.node).filter(|member| member.peer == me).cloned() else { return };
        members.members.remove(&me.node);
        gone.inbox.close();
        for member in members.members.values() {
            member.inbox.put(Item::Down(me));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Members> {
        // No code of a system runs under this lock, so a panic leaves nothing half-done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inbox {
    fn put(&self, item: Item) -> bool {
        let mut queue = self.lock();
        let is_frame = matches!(item, Item::Frame(..));
        if queue.is_closed || (is_frame && queue.frames >= self.capacity) {
            return false;
        }
        queue.frames += usize::from(is_frame);
        queue.items.push_back(item);
        drop(queue);
        self.filled.notify_one();
        true
    }

    /// Drops the frames from a peer.
    fn forget(&self, peer: Peer) {
        let mut queue = self.lock();
        queue.items.retain(|item| !matches!(item, Item::Frame(from, _) if *from == peer));
        queue.frames = queue.items.iter().filter(|item| matches!(item, Item::Frame(..))).count();
    }

    fn take(&self) -> Option<Item> {
        let mut queue = self.lock();
        let item = queue.items.pop_front();
        queue.frames -= usize::from(matches!(item, Some(Item::Frame(..))));
        item
    }

    fn close(&self) {
        let mut queue = self.lock();
        queue.is_closed = true;
        queue.items.clear();
        queue.frames = 0;
        drop(queue);
        self.filled.notify_one();
    }

    fn is_closed(&self) -> bool {
        self.lock().is_closed
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The relay of one member of a [`Hub`]. The node leaves when its system is shut down or dropped.
pub struct HubRelay {
    hub: Hub,
    node: Node,
    capacity: usize,
    me: Mutex<Option<Peer>>,
}

impl HubRelay {
    fn me(&self) -> Option<Peer> {
        *self.me.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn quit(&self) {
        if let Some(me) = self.me() {
            self.hub.remove(me);
        }
    }
}

impl Relay for HubRelay {
    fn node(&self) -> Node {
        self.node
    }

    fn start(&self, incoming: Incoming) -> Result<(), RelayError> {
        let me = incoming.me();
        let inbox = Arc::new(Inbox { queue: Mutex::default(), filled: Notify::new(), capacity: self.capacity });
        self.hub.add(me, &inbox)?;
        *self.me.lock().unwrap_or_else(PoisonError::into_inner) = Some(me);
        let runtime = incoming.runtime().clone();
        drop(task::Builder::new().name("hub").spawn_on(empty(inbox, incoming), &runtime));
        Ok(())
    }

    fn send(&self, to: Peer, frame: Bytes) -> Result<(), RelayError> {
        let me = self.me().ok_or_else(RelayError::lost)?;
        let member = self.hub.reach(me, to).ok_or_else(RelayError::lost)?;
        if member.inbox.put(Item::Frame(me, frame)) { Ok(()) } else { Err(RelayError::full()) }
    }

    fn leave(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        // Frames that were sent are in the inboxes of their receivers already, before this notice.
        self.quit();
        Box::pin(std::future::ready(()))
    }
}

impl Drop for HubRelay {
    fn drop(&mut self) {
        self.quit();
    }
}

/// Delivers the items of the inbox until the member has left.
async fn empty(inbox: Arc<Inbox>, incoming: Incoming) {
    loop {
        for _ in 0..BATCH {
            match inbox.take() {
                Some(Item::Up(peer)) => incoming.up(peer),
                Some(Item::Down(peer)) => incoming.down(peer),
                Some(Item::Frame(peer, frame)) => incoming.received(peer, frame),
                None if inbox.is_closed() => return,
                None => inbox.filled.notified().await,
            }
        }
        task::yield_now().await;
    }
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hub").field("members", &self.lock().members.len()).finish_non_exhaustive()
    }
}

impl fmt::Debug for HubRelay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HubRelay").field("node", &self.node).finish_non_exhaustive()
    }
}
